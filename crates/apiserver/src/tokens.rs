//! Bearer tokens of service accounts: what they claim, and whether it still holds.
//!
//! A token is good as long as its account is, and, if it is bound to a pod, a secret or a node, as long as that is: whoever
//! deletes one of them ends it at once.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};
use tokens::{Key, SignError, jwt};

use crate::identity::{Identity, Stored};

/// Who signs, and whom tokens are for unless they say otherwise: as Kubernetes names itself.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// Who signs tokens that are kept in secrets.
const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
const LEGACY: &str = "kubernetes.io/serviceaccount";
/// An object that is being deleted keeps its tokens for so long, so that what is ending can end well.
const LEEWAY: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);

/// An object that a token is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    /// As claims call it: `pod`, `secret` or `node`.
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// What a token says.
#[derive(Clone, Debug)]
pub(crate) struct Grant<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) account: &'a str,
    pub(crate) account_uid: &'a str,
    pub(crate) audiences: &'a [String],
    /// The pod comes with its node.
    pub(crate) bound: &'a [Bound],
    pub(crate) id: &'a str,
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
}

impl Grant<'_> {
    /// The token.
    pub(crate) fn sign(&self, key: &Key) -> Result<String, SignError> {
        let Self { namespace, account, account_uid, audiences, bound, id, from, until } = self;
        let mut of = json!({ "namespace": namespace, "serviceaccount": { "name": account, "uid": account_uid } });
        for Bound { kind, name, uid } in *bound {
            of[kind] = json!({ "name": name, "uid": uid });
        }
        let claims = json!({
            "aud": audiences, "exp": until.as_second(), "iat": from.as_second(), "nbf": from.as_second(),
            "iss": ISSUER, "jti": id, "kubernetes.io": of, "sub": Identity::account_user(namespace, account),
        });
        jwt::seal(&claims, key)
    }
}

/// Somebody who showed a token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shown {
    pub(crate) identity: Identity,
    /// Those of the audiences that were asked for whom it is for.
    pub(crate) audiences: Vec<String>,
}

/// Who shows a token to one of these audiences.
pub(crate) fn check(token: &str, key: &Key, audiences: &[String], stored: Stored<'_>, now: Timestamp) -> Option<Shown> {
    let claims = jwt::open(token, key)?;
    match claims["iss"].as_str() {
        Some(ISSUER) => check_bound(&claims, audiences, stored, now),
        Some(LEGACY_ISSUER) => check_legacy(token, &claims, audiences, stored, now),
        _ => None,
    }
}

fn check_bound(claims: &Value, audiences: &[String], stored: Stored<'_>, now: Timestamp) -> Option<Shown> {
    let second = |claim: &str| claims[claim].as_i64();
    if now.as_second() >= second("exp")? || now.as_second() < second("nbf")? {
        return None;
    }
    let meant: BTreeSet<&str> = claims["aud"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let audiences: Vec<String> = audiences.iter().filter(|one| meant.contains(one.as_str())).cloned().collect();
    if audiences.is_empty() {
        return None;
    }
    let of = &claims["kubernetes.io"];
    let text = |of: &Value, field: &str| of[field].as_str().map(str::to_owned);
    let (namespace, account) = (text(of, "namespace")?, &of["serviceaccount"]);
    let (name, uid) = (text(account, "name")?, text(account, "uid")?);
    holds(stored.get("", "serviceaccounts", &namespace, &name), &uid, now)?;
    let mut extra = BTreeMap::new();
    for (kind, table) in [("pod", "pods"), ("secret", "secrets"), ("node", "nodes")] {
        let bound = &of[kind];
        if bound.is_null() {
            continue;
        }
        let (name, uid) = (text(bound, "name")?, text(bound, "uid")?);
        let place = if kind == "node" { "" } else { namespace.as_str() };
        // A pod's token names the node as a fact, not as a bond.
        if kind != "node" || of["pod"].is_null() {
            holds(stored.get("", table, place, &name), &uid, now)?;
        }
        if kind != "secret" {
            extra.insert(format!("authentication.kubernetes.io/{kind}-name"), vec![name]);
            extra.insert(format!("authentication.kubernetes.io/{kind}-uid"), vec![uid]);
        }
    }
    if let Some(id) = claims["jti"].as_str() {
        extra.insert("authentication.kubernetes.io/credential-id".to_owned(), vec![format!("JTI={id}")]);
    }
    let identity = Identity { uid, extra, ..Identity::account(&namespace, &name) };
    Some(Shown { identity, audiences })
}

/// Tokens of secrets hold as long as the secret has them.
fn check_legacy(
    token: &str,
    claims: &Value,
    audiences: &[String],
    stored: Stored<'_>,
    now: Timestamp,
) -> Option<Shown> {
    use base64::Engine as _;
    let text = |field: &str| claims[format!("{LEGACY}/{field}")].as_str();
    let (namespace, name) = (text("namespace")?, text("service-account.name")?);
    let (uid, secret) = (text("service-account.uid")?, text("secret.name")?);
    let audiences: Vec<String> = audiences.iter().filter(|one| *one == ISSUER).cloned().collect();
    if audiences.is_empty() {
        return None;
    }
    let kept = stored.get("", "secrets", namespace, secret)?;
    let kept = kept["data"]["token"].as_str().unwrap_or_default();
    let kept = base64::engine::general_purpose::STANDARD.decode(kept).ok()?;
    if kept != token.as_bytes() {
        return None;
    }
    holds(stored.get("", "serviceaccounts", namespace, name), uid, now)?;
    let identity = Identity { uid: uid.to_owned(), ..Identity::account(namespace, name) };
    Some(Shown { identity, audiences })
}

/// Whether an object is there, is the one that is meant, and is not about to be gone.
fn holds(object: Option<Value>, uid: &str, now: Timestamp) -> Option<()> {
    let object = object?;
    let metadata = &object["metadata"];
    let deleted = metadata["deletionTimestamp"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let over = deleted.is_some_and(|deleted| deleted.saturating_add(LEEWAY).is_ok_and(|end| end < now));
    (metadata["uid"].as_str() == Some(uid) && !over).then_some(())
}
