//! Legacy tokens: they name an account and a secret, and hold as long as both are there.

use serde_json::json;
use tokens::{SignError, Signer, jwt};

const ISSUER: &str = "kubernetes/serviceaccount";

/// Whom a token stands for, and where it is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject<'a> {
    pub(super) namespace: &'a str,
    pub(super) account: &'a str,
    pub(super) account_uid: &'a str,
    pub(super) secret: &'a str,
}

pub(super) fn token(subject: Subject<'_>, signer: &dyn Signer) -> Result<String, SignError> {
    let Subject { namespace, account, account_uid, secret } = subject;
    let claims = json!({
        "iss": ISSUER,
        "sub": format!("system:serviceaccount:{namespace}:{account}"),
        "kubernetes.io/serviceaccount/namespace": namespace,
        "kubernetes.io/serviceaccount/secret.name": secret,
        "kubernetes.io/serviceaccount/service-account.name": account,
        "kubernetes.io/serviceaccount/service-account.uid": account_uid,
    });
    jwt::seal(&claims, signer)
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use serde_json::Value;

    use super::*;

    #[derive(Debug)]
    struct Seal;

    impl Signer for Seal {
        fn algorithm(&self) -> &str {
            "seal"
        }

        fn key_id(&self) -> &str {
            "key"
        }

        fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignError> {
            Ok(vec![message.len().to_le_bytes()[0]])
        }
    }

    #[test]
    fn it_says_for_whom_it_is_and_by_whom() {
        let subject = Subject { namespace: "n", account: "a", account_uid: "u", secret: "s" };
        let token = token(subject, &Seal).unwrap();
        let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
        assert_eq!(
            serde_json::from_slice::<Value>(&claims).unwrap(),
            json!({
                "iss": "kubernetes/serviceaccount",
                "sub": "system:serviceaccount:n:a",
                "kubernetes.io/serviceaccount/namespace": "n",
                "kubernetes.io/serviceaccount/secret.name": "s",
                "kubernetes.io/serviceaccount/service-account.name": "a",
                "kubernetes.io/serviceaccount/service-account.uid": "u",
            })
        );
    }
}
