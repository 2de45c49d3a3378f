//! JSON web tokens: a header, claims, and a signature of both.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::signer::{Key, SignError, Signer};

/// A token that makes these claims.
///
/// # Errors
/// When the key does not sign.
pub fn seal(claims: &Value, signer: &dyn Signer) -> Result<String, SignError> {
    let header = json!({ "alg": signer.algorithm(), "kid": signer.key_id() });
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", part(&header), part(claims));
    let signature = URL_SAFE_NO_PAD.encode(signer.sign(message.as_bytes())?);
    Ok(format!("{message}.{signature}"))
}

/// What a token claims, if this key signed it.
#[must_use]
pub fn open(token: &str, key: &Key) -> Option<Value> {
    let (message, signature) = token.rsplit_once('.')?;
    let (header, claims) = message.split_once('.')?;
    let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
    let header: Value = serde_json::from_slice(&decoded(header)?).ok()?;
    // The key says how it signs, not the token: `none` and the like are nobody's signature.
    if header["alg"] != key.algorithm() || !(header["kid"].is_null() || header["kid"] == key.key_id()) {
        return None;
    }
    if !key.signed(message.as_bytes(), &decoded(signature)?) {
        return None;
    }
    serde_json::from_slice(&decoded(claims)?).ok().filter(Value::is_object)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::signer::tests::curve;

    #[test]
    fn a_token_says_what_was_claimed_and_who_signed() {
        let key = Key::from_pem(&curve()).unwrap();
        let claims = json!({ "sub": "somebody", "n": 1 });
        let token = seal(&claims, &key).unwrap();
        let header = URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap()).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&header).unwrap(), json!({ "alg": "ES256", "kid": key.key_id() }));
        assert_eq!(open(&token, &key), Some(claims));
        assert_eq!(open(&token, &Key::from_pem(&curve()).unwrap()), None);
    }

    #[test]
    fn a_token_does_not_choose_how_it_is_checked() {
        let key = Key::from_pem(&curve()).unwrap();
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let claims = part(&json!({ "sub": "somebody" }));
        for header in [json!({ "alg": "none" }), json!({ "alg": "HS256" }), json!({ "alg": "ES256", "kid": "other" })] {
            let message = format!("{}.{claims}", part(&header));
            let signature = URL_SAFE_NO_PAD.encode(key.sign(message.as_bytes()).unwrap());
            assert_eq!(open(&format!("{message}.{signature}"), &key), None, "{header}");
            assert_eq!(open(&format!("{message}."), &key), None, "{header}");
        }
    }

    proptest! {
        #[test]
        fn no_other_text_is_a_token(at in 0_usize..1000, with in any::<char>(), text in ".{0,60}") {
            let key = Key::from_pem(&curve_once()).unwrap();
            prop_assert_eq!(open(&text, &key), None);
            let token = seal(&json!({ "sub": "somebody" }), &key).unwrap();
            let mut other: Vec<char> = token.chars().collect();
            let at = at % other.len();
            other[at] = with;
            let other: String = other.into_iter().collect();
            // The last character of base64 has bits that do not count; a strict reader wants them to be zero.
            prop_assert!(other == token || open(&other, &key).is_none());
        }
    }

    fn curve_once() -> String {
        static KEY: std::sync::OnceLock<String> = std::sync::OnceLock::new();
        KEY.get_or_init(curve).clone()
    }
}
