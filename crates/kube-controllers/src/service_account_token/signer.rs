//! Signing tokens: with an RSA or an elliptic-curve key, or with whatever a test or a simulation brings along.

mod pem;
mod public;

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::error::{KeyRejected, Unspecified};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair};

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
#[error("the key did not sign")]
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
    #[error("there is no private key in PEM in it")]
    None,
    /// What stands between the lines is no base64.
    #[error("the key is not base64")]
    Base64(#[source] base64::DecodeError),
    /// A form of elliptic-curve keys that is not read.
    #[error("keys in the form of SEC 1 (EC PRIVATE KEY) are not read; convert it with `openssl pkcs8 -topk8 -nocrypt`")]
    Sec1,
    /// Neither RSA of 2048 to 4096 bits nor P-256.
    #[error("the key is neither RSA of 2048 to 4096 bits ({rsa}) nor of the curve P-256 ({curve})")]
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

/// Reads a private key: PKCS#8 for RSA and P-256, or PKCS#1 for RSA.
///
/// # Errors
/// When it is none of these.
pub fn from_pem(text: &str) -> Result<Arc<dyn Signer>, KeyError> {
    match pem::private_key(text)? {
        pem::Key::Pkcs1(der) => Ok(Arc::new(Rsa::new(RsaKeyPair::from_der(&der).map_err(KeyError::Rsa)?))),
        pem::Key::Pkcs8(der) => match RsaKeyPair::from_pkcs8(&der) {
            Ok(pair) => Ok(Arc::new(Rsa::new(pair))),
            Err(rsa) => {
                let random = SystemRandom::new();
                let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, &random)
                    .map_err(|curve| KeyError::Rejected { rsa, curve })?;
                Ok(Arc::new(Curve::new(pair, random)))
            }
        },
    }
}

/// As Kubernetes derives it: those who see it learn nothing of the key.
fn key_id(public_key: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, public_key))
}

struct Rsa {
    pair: RsaKeyPair,
    key_id: String,
    random: SystemRandom,
}

impl Rsa {
    fn new(pair: RsaKeyPair) -> Self {
        let key_id = key_id(&public::rsa(pair.public().as_ref()));
        Self { pair, key_id, random: SystemRandom::new() }
    }
}

impl Debug for Rsa {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rsa").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

impl Signer for Rsa {
    fn algorithm(&self) -> &str {
        "RS256"
    }

    fn key_id(&self) -> &str {
        &self.key_id
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignError> {
        let mut signature = vec![0; self.pair.public().modulus_len()];
        self.pair.sign(&RSA_PKCS1_SHA256, &self.random, message, &mut signature)?;
        Ok(signature)
    }
}

struct Curve {
    pair: EcdsaKeyPair,
    key_id: String,
    random: SystemRandom,
}

impl Curve {
    fn new(pair: EcdsaKeyPair, random: SystemRandom) -> Self {
        let key_id = key_id(&public::p256(pair.public_key().as_ref()));
        Self { pair, key_id, random }
    }
}

impl Debug for Curve {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Curve").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

impl Signer for Curve {
    fn algorithm(&self) -> &str {
        "ES256"
    }

    fn key_id(&self) -> &str {
        &self.key_id
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignError> {
        Ok(self.pair.sign(&self.random, message)?.as_ref().to_vec())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use ring::signature::{ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};

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

    pub(in super::super) fn curve() -> String {
        key("-algorithm EC -pkeyopt ec_paramgen_curve:P-256")
    }

    #[test]
    fn an_rsa_key_signs_as_its_public_half_verifies() {
        let key = rsa();
        let signer = from_pem(&key).unwrap();
        let signature = signer.sign(b"message").unwrap();
        let pem::Key::Pkcs8(der) = pem::private_key(&key).unwrap() else { panic!("it is PKCS#8") };
        let pair = RsaKeyPair::from_pkcs8(&der).unwrap();
        let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public().as_ref());
        public.verify(b"message", &signature).unwrap();
        assert!(public.verify(b"another", &signature).is_err());
        assert_eq!(signer.algorithm(), "RS256");
    }

    #[test]
    fn a_key_of_the_curve_signs_as_its_public_half_verifies() {
        let key = curve();
        let signer = from_pem(&key).unwrap();
        let signature = signer.sign(b"message").unwrap();
        assert_eq!(signature.len(), 64, "two numbers, not DER");
        let pem::Key::Pkcs8(der) = pem::private_key(&key).unwrap() else { panic!("it is PKCS#8") };
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, &SystemRandom::new()).unwrap();
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, pair.public_key().as_ref());
        public.verify(b"message", &signature).unwrap();
        assert_eq!(signer.algorithm(), "ES256");
    }

    #[test]
    fn a_key_is_named_by_the_digest_of_its_public_half() {
        for key in [rsa(), curve()] {
            let public = openssl("pkey -pubout -outform DER", &key);
            let digest = ring::digest::digest(&ring::digest::SHA256, &public);
            let named = base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, digest);
            let signer = from_pem(&key).unwrap();
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
        assert_eq!(from_pem(&old).unwrap().key_id(), from_pem(&key).unwrap().key_id());
    }

    #[test]
    fn what_is_not_read_is_refused_by_name() {
        let refused = |text: &str| from_pem(text).unwrap_err().to_string();
        assert!(refused(&String::from_utf8(openssl("ec", &curve())).unwrap()).contains("openssl pkcs8"));
        assert!(refused(&key("-algorithm EC -pkeyopt ec_paramgen_curve:P-384")).contains("neither RSA"));
        assert_eq!(refused("a: b"), "there is no private key in PEM in it");
        let begin = "-----BEGIN PRIVATE KEY-----";
        assert_eq!(refused(&format!("{begin}\n!\n{}", begin.replace("BEGIN", "END"))), "the key is not base64");
    }
}
