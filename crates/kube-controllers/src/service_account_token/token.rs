//! Legacy tokens: they name an account and a secret, and hold as long as both are there.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::signer::{SignError, Signer};

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
    let header = json!({ "alg": signer.algorithm(), "kid": signer.key_id() });
    let claims = json!({
        "iss": ISSUER,
        "sub": format!("system:serviceaccount:{namespace}:{account}"),
        "kubernetes.io/serviceaccount/namespace": namespace,
        "kubernetes.io/serviceaccount/secret.name": secret,
        "kubernetes.io/serviceaccount/service-account.name": account,
        "kubernetes.io/serviceaccount/service-account.uid": account_uid,
    });
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", part(&header), part(&claims));
    let signature = URL_SAFE_NO_PAD.encode(signer.sign(message.as_bytes())?);
    Ok(format!("{message}.{signature}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service_account_token::signer::{from_pem, tests::curve};

    #[test]
    fn it_says_for_whom_it_is_and_by_whom() {
        let signer = from_pem(&curve()).unwrap();
        let subject = Subject { namespace: "n", account: "a", account_uid: "u", secret: "s" };
        let token = token(subject, &*signer).unwrap();
        let parts: Vec<Vec<u8>> = token.split('.').map(|part| URL_SAFE_NO_PAD.decode(part).unwrap()).collect();
        assert_eq!(parts.len(), 3);
        let read = |part: &[u8]| serde_json::from_slice::<Value>(part).unwrap();
        assert_eq!(read(&parts[0]), json!({ "alg": "ES256", "kid": signer.key_id() }));
        assert_eq!(
            read(&parts[1]),
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
