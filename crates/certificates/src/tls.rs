//! Certificates as rustls takes them.

use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, ServerConfig};

use crate::{CertificateError, Leaf};

/// Whether a server looks at the certificates of its clients.
#[derive(Clone, Debug)]
pub enum Clients {
    /// It does not.
    Any,
    /// Those who show one are known by it, if one of these signed it; the others may prove who they are in another way.
    Known(RootCertStore),
    /// Nobody is served who does not show one that one of these signed.
    Only(RootCertStore),
}

/// How connections to a server begin: with this chain, the server's own certificate first.
///
/// # Errors
/// When chain and key do not belong together, or no client could be believed.
pub fn server(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    clients: Clients,
    protocols: &[&str],
) -> Result<ServerConfig, CertificateError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let verifier = |roots: RootCertStore| WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = match clients {
        Clients::Any => builder.with_no_client_auth(),
        Clients::Known(roots) => builder.with_client_cert_verifier(verifier(roots).allow_unauthenticated().build()?),
        Clients::Only(roots) => builder.with_client_cert_verifier(verifier(roots).build()?),
    };
    let mut config = builder.with_single_cert(chain, key)?;
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Ok(config)
}

/// How connections of a client begin that trusts these, with a certificate of its own or without.
///
/// # Errors
/// When the certificate cannot be used.
pub fn client(roots: RootCertStore, own: Option<&Leaf>) -> Result<ClientConfig, CertificateError> {
    match own {
        None => Ok(client_trusting(roots)?.with_no_client_auth()),
        Some(leaf) => client_with(roots, chain(&leaf.certificate)?, key(&leaf.key)?),
    }
}

/// How connections of a client begin that trusts these, with this chain, its own certificate first.
///
/// # Errors
/// When chain and key do not belong together.
pub fn client_with(
    roots: RootCertStore,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ClientConfig, CertificateError> {
    Ok(client_trusting(roots)?.with_client_auth_cert(chain, key)?)
}

fn client_trusting(roots: RootCertStore) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, CertificateError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots))
}

/// The certificates of a PEM text.
///
/// # Errors
/// When it has none, or is no PEM.
pub fn chain(text: &str) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let chain = chain.map_err(CertificateError::Text)?;
    if chain.is_empty() { Err(CertificateError::None { place: "a text".to_owned() }) } else { Ok(chain) }
}

/// The key of a PEM text.
///
/// # Errors
/// When it has none.
pub fn key(text: &str) -> Result<PrivateKeyDer<'static>, CertificateError> {
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(CertificateError::Text)
}

/// Authorities to trust, from a PEM text.
///
/// # Errors
/// When it has none.
pub fn roots(text: &str) -> Result<RootCertStore, CertificateError> {
    let mut roots = RootCertStore::empty();
    for certificate in chain(text)? {
        roots.add(certificate)?;
    }
    Ok(roots)
}
