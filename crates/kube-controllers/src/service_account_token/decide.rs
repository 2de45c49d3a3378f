//! What a secret that holds a token needs, and what an account keeps when a secret is gone.

use k8s_openapi::api::core::v1::{ObjectReference, Secret, ServiceAccount};
use kube::ResourceExt as _;

pub(super) const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
pub(super) const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
pub(super) const TOKEN: &str = "token";
pub(super) const CA: &str = "ca.crt";
pub(super) const NAMESPACE: &str = "namespace";

/// The account that a secret names, and by which UID if it says so.
pub(super) fn account_of(secret: &Secret) -> Option<(&str, Option<&str>)> {
    let said =
        |annotation: &str| secret.annotations().get(annotation).map(String::as_str).filter(|text| !text.is_empty());
    Some((said(ACCOUNT_NAME)?, said(ACCOUNT_UID)))
}

/// Whether an account is the one that a secret means.
pub(super) fn is_meant(account: &ServiceAccount, secret: &Secret) -> bool {
    account_of(secret).is_some_and(|(name, uid)| {
        account.metadata.name.as_deref() == Some(name) && (uid.is_none() || account.metadata.uid.as_deref() == uid)
    })
}

/// What to do about a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    Nothing,
    /// Its account is gone.
    Delete,
    /// Write these, and whose it is.
    Fill(Missing),
}

/// What a secret lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Missing {
    pub(super) token: bool,
    pub(super) ca: bool,
    pub(super) namespace: bool,
}

/// `account` is the one that the secret means; none, if it is known to be gone.
///
/// # Guarantees
/// - A token that is there is never replaced: somebody uses it.
/// - A secret that names no account is left alone; one that is complete is not written.
pub(super) fn decide(secret: &Secret, account: Option<&ServiceAccount>, root_ca: Option<&str>) -> Plan {
    if account_of(secret).is_none() || secret.metadata.deletion_timestamp.is_some() {
        return Plan::Nothing;
    }
    if !account.is_some_and(|account| is_meant(account, secret)) {
        return Plan::Delete;
    }
    let value = |key: &str| secret.data.as_ref().and_then(|data| data.get(key)).map(|bytes| bytes.0.as_slice());
    let empty = |key: &str| value(key).is_none_or(<[u8]>::is_empty);
    let missing = Missing {
        token: empty(TOKEN),
        ca: root_ca.is_some_and(|ca| !ca.is_empty() && value(CA) != Some(ca.as_bytes())),
        namespace: empty(NAMESPACE),
    };
    if missing == Missing::default() { Plan::Nothing } else { Plan::Fill(missing) }
}

/// What is left of an account's list without a secret; none, if the secret is not in it.
pub(super) fn without(account: &ServiceAccount, secret: &str) -> Option<Vec<ObjectReference>> {
    let list = account.secrets.as_deref().unwrap_or_default();
    let rest: Vec<_> = list.iter().filter(|one| one.name.as_deref() != Some(secret)).cloned().collect();
    (rest.len() < list.len()).then_some(rest)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn account(uid: &str) -> ServiceAccount {
        serde_json::from_value(json!({ "metadata": { "name": "a", "uid": uid } })).unwrap()
    }

    fn secret(name: &str, uid: &str, fields: &[(&str, &str)]) -> Secret {
        let annotations = json!({ ACCOUNT_NAME: name, ACCOUNT_UID: uid });
        let mut secret: Secret = serde_json::from_value(json!({ "metadata": { "annotations": annotations } })).unwrap();
        let fields = fields.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())));
        secret.data = Some(fields.collect());
        secret
    }

    #[test]
    fn a_new_secret_gets_all_it_lacks() {
        let all = Missing { token: true, ca: true, namespace: true };
        assert_eq!(decide(&secret("a", "", &[]), Some(&account("u")), Some("ca")), Plan::Fill(all));
        let no_ca = Missing { ca: false, ..all };
        assert_eq!(decide(&secret("a", "u", &[]), Some(&account("u")), None), Plan::Fill(no_ca));
    }

    #[test]
    fn a_new_authority_is_written_and_the_token_stays() {
        let full = secret("a", "u", &[("token", "t"), ("ca.crt", "old"), ("namespace", "n")]);
        let ca = Missing { ca: true, ..Missing::default() };
        assert_eq!(decide(&full, Some(&account("u")), Some("new")), Plan::Fill(ca));
        assert_eq!(decide(&full, Some(&account("u")), Some("old")), Plan::Nothing);
    }

    #[test]
    fn a_secret_goes_with_its_account() {
        let full = secret("a", "u", &[("token", "t")]);
        assert_eq!(decide(&full, None, None), Plan::Delete);
        assert_eq!(decide(&full, Some(&account("another")), None), Plan::Delete);
        assert_eq!(decide(&secret("", "u", &[]), None, None), Plan::Nothing);
    }

    #[test]
    fn a_secret_that_is_gone_leaves_the_list_and_no_other() {
        let mut account = account("u");
        assert_eq!(without(&account, "s"), None);
        let named = |name: &str| ObjectReference { name: Some(name.to_owned()), ..ObjectReference::default() };
        account.secrets = Some(vec![named("s"), named("t")]);
        assert_eq!(without(&account, "s"), Some(vec![named("t")]));
        assert_eq!(without(&account, "x"), None);
    }

    proptest! {
        #[test]
        fn what_is_filled_is_complete_and_what_was_there_stays(
            uid in "|u|v", there in prop::option::of("u|v"), ca in prop::option::of("|x"),
            fields in prop::collection::btree_map("token|ca.crt|namespace", "|x|y", 0..4),
        ) {
            let list: Vec<(&str, &str)> = fields.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            let secret = secret("a", &uid, &list);
            let account = there.as_deref().map(account);
            match decide(&secret, account.as_ref(), ca.as_deref()) {
                Plan::Delete => prop_assert!(there.is_none() || (!uid.is_empty() && there.as_ref() != Some(&uid))),
                plan => {
                    prop_assert!(there.is_some());
                    let missing = match plan { Plan::Fill(missing) => missing, _ => Missing::default() };
                    let kept = |key: &str| fields.get(key).is_some_and(|value| !value.is_empty());
                    prop_assert_eq!(missing.token, !kept("token"));
                    prop_assert_eq!(missing.namespace, !kept("namespace"));
                    let right = ca.as_deref().unwrap_or_default();
                    prop_assert_eq!(missing.ca, !right.is_empty() && fields.get("ca.crt").map(String::as_str) != Some(right));
                }
            }
        }
    }
}
