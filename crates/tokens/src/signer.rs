//! Signing tokens: with an RSA or an elliptic-curve key, or with whatever a test or a simulation brings along.

mod pem;
mod public;

use std::fmt::{self, Debug, Formatter};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::error::{KeyRejected, Unspecified};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_SHA256, RsaKeyPair, UnparsedPublicKey,
};

/// Signs tokens. It shows itself without its key.
pub trait Signer: Debug + Send + Sync {
    /// As the header of a token names it, such as `RS256`.
    fn algorithm(&self) -> &str;

    /// By what those who verify a token find the public key.
    fn key_id(&self) -> &str;

    /// The signature in the form that tokens have.
    ///
    /// # Errors
    /// When the machine gives no randomness, or the key cannot sign.
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignError>;
}

/// The key did not sign, and does not tell why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot sign with the key")]
pub struct SignError;

impl From<Unspecified> for SignError {
    fn from(_: Unspecified) -> Self {
        Self
    }
}

/// Why a file holds no key to sign with. Final: only another file helps.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// There is no private key in it.
    #[error("the file has no private key in PEM")]
    None,
    /// What stands between the lines is no base64.
    #[error("the key is not base64")]
    Base64(#[source] base64::DecodeError),
    /// A form of elliptic-curve keys that is not read.
    #[error("SEC 1 keys (EC PRIVATE KEY) are not supported; convert the key with `openssl pkcs8 -topk8 -nocrypt`")]
    Sec1,
    /// Neither RSA of 2048 to 4096 bits nor P-256.
    #[error("the key must be RSA with 2048 to 4096 bits ({rsa}) or on the curve P-256 ({curve})")]
    Rejected {
        /// Why it is not of the one kind.
        rsa: KeyRejected,
        /// Why it is not of the other.
        curve: KeyRejected,
    },
    /// An RSA key that cannot be used.
    #[error("the RSA key cannot be used: {0}")]
    Rsa(KeyRejected),
}

/// As Kubernetes derives it: those who see it learn nothing of the key.
fn key_id(public_key: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, public_key))
}

/// A private key, which signs tokens and knows its own.
pub struct Key {
    pair: Pair,
    key_id: String,
    random: SystemRandom,
}

enum Pair {
    Rsa(RsaKeyPair),
    Curve(EcdsaKeyPair),
}

impl Key {
    /// Reads a private key: PKCS#8 for RSA and P-256, or PKCS#1 for RSA.
    ///
    /// # Errors
    /// When it is none of these.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        let random = SystemRandom::new();
        let pair = match pem::private_key(text)? {
            pem::Key::Pkcs1(der) => Pair::Rsa(RsaKeyPair::from_der(&der).map_err(KeyError::Rsa)?),
            pem::Key::Pkcs8(der) => match RsaKeyPair::from_pkcs8(&der) {
                Ok(pair) => Pair::Rsa(pair),
                Err(rsa) => Pair::Curve(
                    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, &random)
                        .map_err(|curve| KeyError::Rejected { rsa, curve })?,
                ),
            },
        };
        let public = match &pair {
            Pair::Rsa(pair) => public::rsa(pair.public().as_ref()),
            Pair::Curve(pair) => public::p256(pair.public_key().as_ref()),
        };
        Ok(Self { pair, key_id: key_id(&public), random })
    }

    /// Whether this key signed the message.
    #[must_use]
    pub fn signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let checked =
            match &self.pair {
                Pair::Rsa(pair) => UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public().as_ref())
                    .verify(message, signature),
                Pair::Curve(pair) => UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, pair.public_key().as_ref())
                    .verify(message, signature),
            };
        checked.is_ok()
    }
}

impl Debug for Key {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

impl Signer for Key {
    fn algorithm(&self) -> &str {
        match &self.pair {
            Pair::Rsa(_) => "RS256",
            Pair::Curve(_) => "ES256",
        }
    }

    fn key_id(&self) -> &str {
        &self.key_id
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignError> {
        match &self.pair {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &self.random, message, &mut signature)?;
                Ok(signature)
            }
            Pair::Curve(pair) => Ok(pair.sign(&self.random, message)?.as_ref().to_vec()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    /// Keys are made for each test: none is worth keeping.
    fn openssl(arguments: &str, input: &str) -> Vec<u8> {
        let mut command = Command::new("openssl");
        command.args(arguments.split(' ')).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "openssl {arguments}");
        output.stdout
    }

    fn key(arguments: &str) -> String {
        String::from_utf8(openssl(&format!("genpkey {arguments}"), "")).unwrap()
    }

    fn rsa() -> String {
        key("-algorithm RSA -pkeyopt rsa_keygen_bits:2048")
    }

    pub(crate) fn curve() -> String {
        key("-algorithm EC -pkeyopt ec_paramgen_curve:P-256")
    }

    #[test]
    fn what_a_key_signed_it_knows_again_and_nothing_else() {
        for (key, other, algorithm) in [(rsa(), rsa(), "RS256"), (curve(), curve(), "ES256")] {
            let (key, other) = (Key::from_pem(&key).unwrap(), Key::from_pem(&other).unwrap());
            let signature = key.sign(b"message").unwrap();
            assert!(key.signed(b"message", &signature));
            assert!(!key.signed(b"another", &signature) && !other.signed(b"message", &signature));
            assert!(!key.signed(b"message", &[]) && !key.signed(b"message", &vec![0; signature.len()]));
            assert_eq!(key.algorithm(), algorithm);
        }
    }

    #[test]
    fn openssl_knows_what_a_key_signed() {
        let folder = std::env::temp_dir().join(format!("orlop-tokens-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = |name: &str, content: &[u8]| {
            std::fs::write(folder.join(name), content).unwrap();
            folder.join(name).display().to_string()
        };
        let key = rsa();
        let public = file("public", &openssl("pkey -pubout", &key));
        let signature = file("signature", &Key::from_pem(&key).unwrap().sign(b"message").unwrap());
        let said = openssl(&format!("dgst -sha256 -verify {public} -signature {signature}"), "message");
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(String::from_utf8(said).unwrap().trim(), "Verified OK");
    }

    #[test]
    fn a_signature_of_the_curve_is_two_numbers() {
        assert_eq!(Key::from_pem(&curve()).unwrap().sign(b"message").unwrap().len(), 64, "and not DER");
    }

    #[test]
    fn a_key_is_named_by_the_digest_of_its_public_half() {
        for key in [rsa(), curve()] {
            let public = openssl("pkey -pubout -outform DER", &key);
            let digest = ring::digest::digest(&ring::digest::SHA256, &public);
            let named = base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, digest);
            let signer = Key::from_pem(&key).unwrap();
            assert_eq!(signer.key_id(), named);
            let shown = format!("{signer:?}");
            assert!(shown.len() < 100 && shown.contains(&named), "a signer does not show its key: {shown}");
        }
    }

    #[test]
    fn an_rsa_key_may_be_of_the_old_form() {
        let key = rsa();
        let old = String::from_utf8(openssl("rsa -traditional", &key)).unwrap();
        assert!(old.contains("BEGIN RSA PRIVATE KEY"));
        assert_eq!(Key::from_pem(&old).unwrap().key_id(), Key::from_pem(&key).unwrap().key_id());
    }

    #[test]
    fn what_is_not_read_is_refused_by_name() {
        let refused = |text: &str| Key::from_pem(text).unwrap_err().to_string();
        assert!(refused(&String::from_utf8(openssl("ec", &curve())).unwrap()).contains("openssl pkcs8"));
        assert!(refused(&key("-algorithm EC -pkeyopt ec_paramgen_curve:P-384")).contains("must be RSA"));
        assert_eq!(refused("a: b"), "the file has no private key in PEM");
        let begin = "-----BEGIN PRIVATE KEY-----";
        assert_eq!(refused(&format!("{begin}\n!\n{}", begin.replace("BEGIN", "END"))), "the key is not base64");
    }
}
