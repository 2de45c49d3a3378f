//! The way from the API server to an export's server: what KubeVirt has a program of its own for, virt-exportproxy.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use certificates::CertificateError;
use certificates::tls;
use http::{HeaderMap, HeaderName, Method, Request, Response, header};
use http_body::{Body, Frame};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use manager::accepting::mind_silence;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::TOKEN;

/// Where addresses of exports begin.
pub const PREFIX: &str = "/api/export.kubevirt.io/";
/// The versions that addresses name.
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];
/// How long it may take until the server of an export is known by its certificate.
const GREETING: Duration = Duration::from_secs(10);
/// A server that is gone without a word is noticed after this long.
const SILENCE: Duration = Duration::from_secs(30);
/// What a client says to the server of an export.
const SAID: [HeaderName; 4] = [header::ACCEPT, header::RANGE, header::IF_RANGE, HeaderName::from_static(TOKEN)];
/// What it is told.
const TOLD: [HeaderName; 7] = [
    header::CONTENT_TYPE,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::ACCEPT_RANGES,
    header::ETAG,
    header::LOCATION,
    header::ALLOW,
];

/// Why a client was not led to the server of an export.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// Its name or its certificate.
    #[error("use the certificate of the export")]
    Certificate(#[from] CertificateError),
    #[error("{0:?} is not a valid name of a server")]
    Name(String),
    /// The connection.
    #[error("connect to {address}")]
    Connect { address: SocketAddr, source: io::Error },
    /// What was said over it.
    #[error("talk to {address}")]
    Talk { address: SocketAddr, source: hyper::Error },
    /// The request cannot be passed on.
    #[error("pass the request on")]
    Request(#[from] http::Error),
}

/// The export that an address names, and what is asked of its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub namespace: String,
    /// The VirtualMachineExport.
    pub name: String,
    /// A path of its server, with a slash in front.
    pub path: String,
}

impl Asked {
    /// Reads the path of an address.
    #[must_use]
    pub fn parse(path: &str) -> Option<Self> {
        let mut parts = path.strip_prefix(PREFIX)?.splitn(6, '/');
        let (version, namespaces, namespace) = (parts.next()?, parts.next()?, parts.next()?);
        let (resource, name, rest) = (parts.next()?, parts.next()?, parts.next()?);
        let is_export = VERSIONS.contains(&version)
            && namespaces == "namespaces"
            && resource == "virtualmachineexports"
            && [namespace, name].iter().all(|word| is_name(word));
        is_export.then(|| Self { namespace: namespace.to_owned(), name: name.to_owned(), path: format!("/{rest}") })
    }
}

/// A word that is the name of an object as it stands.
fn is_name(word: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    !word.is_empty() && word.len() <= 253 && word.bytes().all(fits) && word != "." && word != ".."
}

/// The server of an export.
#[derive(Clone, Debug)]
pub struct ServerOfExport {
    pub address: SocketAddr,
    /// The name that its certificate must have.
    pub name: String,
    /// The certificate of its authority, as PEM.
    pub authority: String,
}

/// Asks the server of an export in a client's name.
///
/// # Guarantees
/// - Only headers of the client that the server needs are passed on: none that says who the client is to others.
/// - An answer that breaks off is broken off for the client, too.
///
/// # Errors
/// When the server is not reached, or is another.
pub async fn ask(
    server: &ServerOfExport,
    method: &Method,
    path_and_query: &str,
    headers: &HeaderMap,
) -> Result<Response<Passed>, ProxyError> {
    let ServerOfExport { address, name, authority } = server;
    let address = *address;
    let tls = TlsConnector::from(Arc::new(tls::client(tls::roots(authority)?, None)?));
    let known = ServerName::try_from(name.clone()).map_err(|_| ProxyError::Name(name.clone()))?;
    let connected = async {
        let stream = TcpStream::connect(address).await?;
        mind_silence(&stream, SILENCE)?;
        tls.connect(known, stream).await
    };
    let connected = timeout(GREETING, connected).await.map_err(io::Error::from).flatten();
    let stream = connected.map_err(|source| ProxyError::Connect { address, source })?;
    let failed = |source| ProxyError::Talk { address, source };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    // How the connection ends shows in the answer.
    let connection = tokio::spawn(async move { drop(connection.await) });
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.method_mut() = method.clone();
    *request.uri_mut() = path_and_query.parse().map_err(http::Error::from)?;
    for name in SAID {
        for value in headers.get_all(&name) {
            request.headers_mut().append(name.clone(), value.clone());
        }
    }
    let host = http::HeaderValue::from_str(name).map_err(http::Error::from)?;
    request.headers_mut().insert(header::HOST, host);
    let (mut parts, body) = sender.send_request(request).await.map_err(failed)?.into_parts();
    let told = std::mem::take(&mut parts.headers);
    for name in TOLD {
        if let Some(value) = told.get(&name) {
            parts.headers.insert(name, value.clone());
        }
    }
    let mut response = Response::new(Passed { body, connection });
    (*response.status_mut(), *response.headers_mut()) = (parts.status, parts.headers);
    Ok(response)
}

/// What a server answers, as it comes. The connection ends with it.
pub struct Passed {
    body: Incoming,
    connection: JoinHandle<()>,
}

impl Drop for Passed {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Body for Passed {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_an_export_and_what_is_asked_of_it() {
        let asked = |path: &str| Asked::parse(path);
        let of = |path: &str| Some(Asked { namespace: "n".to_owned(), name: "e".to_owned(), path: path.to_owned() });
        let base = "/api/export.kubevirt.io/v1/namespaces/n/virtualmachineexports/e";
        assert_eq!(asked(&format!("{base}/volumes/v/disk.img.gz")), of("/volumes/v/disk.img.gz"));
        assert_eq!(asked(&format!("{base}/external/manifests/all")), of("/external/manifests/all"));
        for path in [
            "/api/v1/namespaces/n/pods/e/x",
            "/api/export.kubevirt.io/v2/namespaces/n/virtualmachineexports/e/x",
            "/api/export.kubevirt.io/v1/namespaces//virtualmachineexports/e/x",
            "/api/export.kubevirt.io/v1/namespaces/n/virtualmachineexports/../x",
            "/api/export.kubevirt.io/v1/namespaces/n/virtualmachineexports/E/x",
            "/api/export.kubevirt.io/v1/namespaces/n/others/e/x",
            "/api/export.kubevirt.io/v1/namespaces/n/virtualmachineexports/e",
            "/api/export.kubevirt.io/",
        ] {
            assert_eq!(asked(path), None, "{path}");
        }
    }
}
