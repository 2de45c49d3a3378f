//! Acting as somebody else: `Impersonate-*` headers, which kubectl's `--as` sends, for those who may.

use std::collections::BTreeMap;

use http::HeaderMap;
use percent_encoding::percent_decode_str;

use crate::identity::{Attributes, Identity};
use crate::route::not_allowed;
use crate::server::Inner;
use crate::status::Status;

const PREFIX: &str = "impersonate-";
const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA: &str = "impersonate-extra-";
/// Of what makes a user, besides name and groups.
const AUTHENTICATION: &str = "authentication.k8s.io";

/// Whom the headers ask to act as.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    user: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

/// The user that a request acts as; refuses who may not act as that.
pub(crate) fn apply(server: &Inner, who: Identity, headers: &HeaderMap) -> Result<Identity, Status> {
    let asked = asked(headers)?;
    if asked == Asked::default() {
        return Ok(who);
    }
    if asked.user.is_empty() {
        return Err(Status::bad_request(format!("requested {} without impersonating a user name", shown(&asked))));
    }
    for (group, resource, subresource, namespace, name) in needed(&asked) {
        let what =
            Attributes { verb: "impersonate", group, version: "v1", resource, subresource, namespace, name, path: "" };
        let decision = server.decide(&who, what);
        if !decision.allowed {
            return Err(not_allowed(&who, what, &decision.reason));
        }
    }
    Ok(acting(asked))
}

/// As Go shows it, which is how Kubernetes tells it.
fn shown(asked: &Asked) -> String {
    let list =
        |list: &[String]| format!("{{{}}}", list.iter().map(|one| format!("{one:?}")).collect::<Vec<_>>().join(", "));
    let or_nil = |kind: &str, shown: Option<String>| {
        shown.map_or_else(|| format!("{kind}(nil)"), |shown| format!("{kind}{shown}"))
    };
    let groups = (!asked.groups.is_empty()).then(|| list(&asked.groups));
    let pairs = || asked.extra.iter().map(|(key, values)| format!("{key:?}:[]string{}", list(values)));
    let extra = (!asked.extra.is_empty()).then(|| format!("{{{}}}", pairs().collect::<Vec<_>>().join(", ")));
    format!(
        "&user.DefaultInfo{{Name:\"\", UID:{:?}, Groups:{}, Extra:{}}}",
        asked.uid,
        or_nil("[]string", groups),
        or_nil("map[string][]string", extra)
    )
}

/// A header that cannot be read is not passed over: the request would run as somebody else than it says.
fn asked(headers: &HeaderMap) -> Result<Asked, Status> {
    let mut asked = Asked::default();
    for (name, value) in headers.iter().filter(|(name, _)| name.as_str().starts_with(PREFIX)) {
        let unreadable =
            |_| Status::bad_request(format!("the header {name} may only contain printable ASCII characters"));
        let value = value.to_str().map_err(unreadable)?;
        match name.as_str() {
            USER => value.clone_into(&mut asked.user),
            UID => value.clone_into(&mut asked.uid),
            GROUP => asked.groups.push(value.to_owned()),
            other => {
                if let Some(key) = other.strip_prefix(EXTRA) {
                    let key = percent_decode_str(key).decode_utf8_lossy().to_lowercase();
                    asked.extra.entry(key).or_default().push(value.to_owned());
                }
            }
        }
    }
    Ok(asked)
}

/// Group, resource, subresource, namespace and name of everything that must be allowed.
fn needed(asked: &Asked) -> Vec<(&str, &str, &str, &str, &str)> {
    let mut all = vec![match Identity::as_account(&asked.user) {
        Some((namespace, name)) => ("", "serviceaccounts", "", namespace, name),
        None => ("", "users", "", "", asked.user.as_str()),
    }];
    all.extend(asked.groups.iter().map(|group| ("", "groups", "", "", group.as_str())));
    if !asked.uid.is_empty() {
        all.push((AUTHENTICATION, "uids", "", "", asked.uid.as_str()));
    }
    for (key, values) in &asked.extra {
        all.extend(values.iter().map(|value| (AUTHENTICATION, "userextras", key.as_str(), "", value.as_str())));
    }
    all
}

/// Who is named without groups is in those that everybody like it is in.
fn acting(asked: Asked) -> Identity {
    let Asked { user, uid, groups, extra } = asked;
    let named = if user == Identity::anonymous().user {
        Identity {
            groups: if groups.is_empty() { Identity::anonymous().groups } else { groups },
            user,
            ..Identity::default()
        }
    } else if groups.is_empty()
        && let Some((namespace, name)) = Identity::as_account(&user)
    {
        Identity::account(namespace, name)
    } else {
        Identity::among(user, groups)
    };
    Identity { uid, extra, ..named }
}
