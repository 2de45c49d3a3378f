//! A certificate authority: a key that signs certificates, and the certificate that others verify them with.

use jiff::{SignedDuration, Timestamp};
use rcgen::{BasicConstraints, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::leaf::named;
use crate::{CertificateError, Leaf, Request};

/// An authority that can sign.
pub struct Authority {
    certificate: String,
    key: String,
    issuer: Issuer<'static, KeyPair>,
    ends: Timestamp,
}

impl Authority {
    /// A new one, good for so long from now.
    ///
    /// # Errors
    /// When there is no key to be had.
    pub fn make(name: &str, now: Timestamp, life: SignedDuration) -> Result<Self, CertificateError> {
        let key = KeyPair::generate()?;
        let mut params = named(name, now, life)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?.pem();
        Self::from_pem(certificate, key.serialize_pem())
    }

    /// One that was made before.
    ///
    /// # Errors
    /// When this is not a certificate and its key.
    pub fn from_pem(certificate: String, key: String) -> Result<Self, CertificateError> {
        let issuer = Issuer::from_ca_cert_pem(&certificate, KeyPair::from_pem(&key)?)?;
        let ends = ends(&certificate)?;
        Ok(Self { certificate, key, issuer, ends })
    }

    /// Its certificate, as PEM.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Its key, as PEM.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// When it is no good any more.
    #[must_use]
    pub fn ends(&self) -> Timestamp {
        self.ends
    }

    /// Signs a certificate that is good for so long from now, and no longer than the authority itself.
    ///
    /// # Errors
    /// When a name in it is none, or there is no key to be had.
    pub fn issue(&self, request: &Request, now: Timestamp, life: SignedDuration) -> Result<Leaf, CertificateError> {
        let ends = now.saturating_add(life).unwrap_or(Timestamp::MAX).min(self.ends);
        let params = request.params(now, ends.duration_since(now))?;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Leaf { certificate, key: key.serialize_pem(), made: now, ends })
    }
}

/// A new key, as PEM.
///
/// # Errors
/// When there is none to be had.
pub fn new_key() -> Result<String, CertificateError> {
    Ok(KeyPair::generate()?.serialize_pem())
}

/// A certificate that is signed by itself, with this key or a new one: nobody checks more of it than that it is the one that
/// they know.
///
/// # Errors
/// When the key is none, or a name.
pub fn self_signed(
    request: &Request,
    key: Option<&str>,
    now: Timestamp,
    life: SignedDuration,
) -> Result<Leaf, CertificateError> {
    let key = key.map_or_else(KeyPair::generate, KeyPair::from_pem)?;
    let certificate = request.params(now, life)?.self_signed(&key)?.pem();
    let ends = now.saturating_add(life).unwrap_or(Timestamp::MAX);
    Ok(Leaf { certificate, key: key.serialize_pem(), made: now, ends })
}

/// When the first certificate of a text ends.
fn ends(certificate: &str) -> Result<Timestamp, CertificateError> {
    let der = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(CertificateError::Text)?;
    let (_, parsed) = x509_parser::parse_x509_certificate(&der).map_err(|_| CertificateError::Validity)?;
    Timestamp::from_second(parsed.validity().not_after.timestamp()).map_err(|_| CertificateError::Validity)
}
