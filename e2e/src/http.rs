//! A client of one API server: HTTP/1.1 over TLS, a connection at a time, nothing hidden.
//!
//! It sends exactly what it is told to, right or wrong, and hands back what came: it has to show what a server does with
//! bad requests too.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::kubeconfig::Kubeconfig;

/// A server, and who we are there.
#[derive(Clone)]
pub struct Server {
    authority: String,
    name: ServerName<'static>,
    tls: TlsConnector,
    authorization: Option<HeaderValue>,
}

impl Server {
    /// The server of a kubeconfig.
    ///
    /// # Errors
    /// When a certificate or a key in it is bad.
    pub fn new(config: &Kubeconfig) -> Result<Self> {
        let authority = config.server.strip_prefix("https://").context("the server is no https URL")?;
        let authority = authority.trim_end_matches('/').to_owned();
        let host = authority.rsplit_once(':').map_or(authority.as_str(), |(host, _)| host).to_owned();
        let authorization = match &config.token {
            Some(token) => Some(HeaderValue::try_from(format!("Bearer {token}")).context("a bad token")?),
            None => None,
        };
        let name = ServerName::try_from(host).context("a bad host name")?;
        Ok(Self { authority, name, tls: TlsConnector::from(Arc::new(tls(config)?)), authorization })
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// When nobody listens, or the handshake fails.
    pub async fn connect(&self) -> Result<Connection> {
        let stream = self.stream().await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.context("HTTP")?;
        // It ends by itself when the sender is dropped or the server closes; its errors reach the sender.
        tokio::spawn(connection);
        Ok(Connection { sender, server: self.clone() })
    }

    /// Opens a connection and writes a request on it, or the start of one, byte by byte as it is given: `GET / HTTP/1.1` and
    /// whatever headers are to be there besides those that say who asks and whom.
    ///
    /// # Errors
    /// As for [`Self::connect`].
    pub async fn begin(&self, head: &str, body: &[u8]) -> Result<TlsStream<TcpStream>> {
        let mut request = format!("{head}\r\nHost: {}\r\n", self.authority).into_bytes();
        if let Some(authorization) = &self.authorization {
            request.extend([b"Authorization: ", authorization.as_bytes(), b"\r\n"].concat());
        }
        request.extend([b"\r\n", body].concat());
        let mut stream = self.stream().await?;
        stream.write_all(&request).await.context("write the request")?;
        stream.flush().await.context("write the request")?;
        Ok(stream)
    }

    async fn stream(&self) -> Result<TlsStream<TcpStream>> {
        let stream =
            TcpStream::connect(&self.authority).await.with_context(|| format!("connect {}", self.authority))?;
        stream.set_nodelay(true)?;
        self.tls.connect(self.name.clone(), stream).await.context("TLS")
    }
}

fn tls(config: &Kubeconfig) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&config.authority)? {
        roots.add(certificate).context("the certificate authority")?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    match &config.identity {
        Some((certificate, key)) => {
            let key = PrivateKeyDer::from_pem_slice(key).context("the client key")?;
            builder.with_client_auth_cert(certificates(certificate)?, key).context("the client certificate")
        }
        None => Ok(builder.with_no_client_auth()),
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().context("a bad certificate")?;
    ensure!(!found.is_empty(), "no certificate in the PEM text");
    Ok(found)
}

/// One connection; requests go one after the other.
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    server: Server,
}

impl Connection {
    /// Sends a request and returns the head of the answer; its body is still to be read.
    ///
    /// # Errors
    /// When the request cannot be written, or no answer comes.
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Response<Incoming>> {
        let mut request = Request::builder().method(method).uri(path).header(HOST, &self.server.authority);
        if let Some(authorization) = &self.server.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body)).context("a bad request")?;
        // A connection that the server closed meanwhile is replaced; nothing was sent on it.
        if self.sender.ready().await.is_err() {
            self.sender = self.server.connect().await?.sender;
        }
        self.sender.send_request(request).await.with_context(|| format!("no answer to {path}"))
    }

    /// As [`Self::send`], with the whole body read.
    ///
    /// # Errors
    /// As for [`Self::send`], and when the body breaks off.
    pub async fn ask(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Response<Bytes>> {
        let (head, body) = self.send(method, path, headers, body).await?.into_parts();
        let body = body.collect().await.with_context(|| format!("the answer to {path} broke off"))?;
        Ok(Response::from_parts(head, body.to_bytes()))
    }
}
