//! The way to guests on other machines: virt-handler of their node, over mutual TLS.
//!
//! A handler says on its Node where it listens. Nobody has to believe that: its certificate must name the node.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use api::names::annotation;
use certificates::Following;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use manager::accepting::mind_absence;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use virt_api::subresources::{Answering, Connection, GuestError, GuestName, Guests, Question, Reply, Way, remote};

/// How long it may take until a handler is known by its certificate.
const GREETING: Duration = Duration::from_secs(15);
/// A handler that is gone without a word is noticed after this long. A guest may take nothing for longer than that.
const SILENCE: Duration = Duration::from_secs(30);

/// Handlers of all nodes. Clones are the same.
#[derive(Clone)]
pub struct Handlers {
    client: Client,
    tls: Arc<Following<ClientConfig>>,
}

impl Handlers {
    /// Finds nodes with this client, and shows their handlers this certificate.
    #[must_use]
    pub fn new(client: Client, tls: Arc<Following<ClientConfig>>) -> Self {
        Self { client, tls }
    }

    /// Connects to the handler of a guest's node.
    async fn connect(&self, guest: &GuestName) -> Result<TlsStream<TcpStream>, GuestError> {
        let node = &guest.node;
        let unknown = |why: String| GuestError::Unknown(why);
        let failed = |error: &dyn std::fmt::Display| {
            GuestError::Failed(format!("cannot connect to virt-handler on node {node:?}: {error}"))
        };
        let found = Api::<Node>::all(self.client.clone()).get_opt(node).await.map_err(|error| failed(&error))?;
        let found = found.ok_or_else(|| unknown(format!("node {node:?} does not exist")))?;
        let told = found.metadata.annotations.as_ref().and_then(|all| all.get(annotation::VIRT_HANDLER));
        let told = told.ok_or_else(|| {
            let (namespace, name) = (&guest.namespace, &guest.name);
            unknown(format!("VMI {namespace}/{name} is on node {node:?}, whose virt-handler does not serve virt-api"))
        })?;
        let server = ServerName::try_from(node.clone()).map_err(|error| failed(&error))?;
        let connector = TlsConnector::from(self.tls.current());
        let connected = async {
            let stream = TcpStream::connect(told.as_str()).await?;
            mind_absence(&stream, SILENCE)?;
            connector.connect(server, stream).await
        };
        let connected = timeout(GREETING, connected).await.map_err(io::Error::from).flatten();
        connected.map_err(|error| failed(&error))
    }
}

impl Guests for Handlers {
    fn ask(&self, guest: GuestName, question: Question) -> Answering<Reply> {
        let this = self.clone();
        Box::pin(async move { remote::ask(this.connect(&guest).await?, guest, question).await })
    }

    fn open(&self, guest: GuestName, way: Way) -> Answering<Connection> {
        let this = self.clone();
        Box::pin(async move { remote::open(this.connect(&guest).await?, guest, way).await })
    }
}

/// There is no way to guests: virt-api has no certificate that handlers know.
#[derive(Clone, Copy, Debug)]
pub struct Nowhere;

impl Nowhere {
    fn refusal() -> GuestError {
        let why = "virt-api cannot reach virt-handler: it was started without --handler-tls-cert-file";
        GuestError::Unknown(why.to_owned())
    }
}

impl Guests for Nowhere {
    fn ask(&self, _: GuestName, _: Question) -> Answering<Reply> {
        Box::pin(async { Err(Self::refusal()) })
    }

    fn open(&self, _: GuestName, _: Way) -> Answering<Connection> {
        Box::pin(async { Err(Self::refusal()) })
    }
}
