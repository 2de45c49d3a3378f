//! The first private key of a PEM file; parameters and certificates beside it do no harm.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::KeyError;

/// A key in DER.
pub(super) enum Key {
    /// Of any kind.
    Pkcs8(Vec<u8>),
    /// RSA.
    Pkcs1(Vec<u8>),
}

pub(super) fn private_key(text: &str) -> Result<Key, KeyError> {
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        let label = line.strip_prefix("-----BEGIN ").and_then(|rest| rest.strip_suffix("-----"));
        let key = match label {
            Some("PRIVATE KEY") => Key::Pkcs8,
            Some("RSA PRIVATE KEY") => Key::Pkcs1,
            Some("EC PRIVATE KEY") => return Err(KeyError::Sec1),
            _ => continue,
        };
        let body: String = lines.by_ref().take_while(|line| !line.starts_with("-----END ")).collect();
        return Ok(key(STANDARD.decode(body).map_err(KeyError::Base64)?));
    }
    Err(KeyError::None)
}
