//! Who may send something to a launcher of this node: asked over TLS, as another node's handler asks.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use certificates::tls::{self, Clients};
use certificates::{Authority, CertificateError, Request, Use};
use hypervisor::guest::Guest;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ServerConfig};
use virt_handler::{Credentials, Relay, Settings};

use crate::bench::{Bench, NODE, seconds};
use crate::roles::{change, coming};

const MODEL: &str = include_str!("../../../hypervisor/tests/stored/v1-least.json");

/// The handler of a node, by its certificate.
struct Node {
    authority: Arc<Authority>,
    name: &'static str,
}

impl Node {
    fn leaf(&self) -> Result<certificates::Leaf, CertificateError> {
        let request = Request { used: Use::Peer, ..Request::server(self.name, &[self.name], &[]) };
        self.authority.issue(&request, now(), SignedDuration::from_hours(1))
    }
}

impl Credentials for Node {
    fn server(&self) -> Result<Arc<ServerConfig>, CertificateError> {
        let leaf = self.leaf()?;
        let clients = Clients::Only(tls::roots(self.authority.certificate())?);
        tls::server(tls::chain(&leaf.certificate)?, tls::key(&leaf.key)?, clients, &[]).map(Arc::new)
    }

    fn client(&self) -> Result<Arc<ClientConfig>, CertificateError> {
        tls::client(tls::roots(self.authority.certificate())?, Some(&self.leaf()?)).map(Arc::new)
    }
}

#[expect(clippy::disallowed_methods, reason = "certificates are checked by the machine's clock")]
fn now() -> Timestamp {
    Timestamp::now()
}

/// Another node, and where this node's handler listens.
struct Caller {
    node: Node,
    door: SocketAddr,
}

impl Caller {
    /// What the door answers to a first frame that differs from a good one in this: nothing if it lets it in.
    async fn refused(&self, differs: &Value) -> Option<String> {
        let digest = Guest::from_stored(MODEL.as_bytes()).unwrap().digest().unwrap();
        let mut frame = json!({ "migration": "m", "pod": "pod-t", "digest": digest, "channel": "words" });
        json_patch::merge(&mut frame, differs);
        let connector = TlsConnector::from(self.node.client().unwrap());
        let stream = TcpStream::connect(self.door).await.unwrap();
        let mut stream = connector.connect(ServerName::try_from(NODE).unwrap(), stream).await.unwrap();
        let frame = frame.to_string().into_bytes();
        stream.write_u32(u32::try_from(frame.len()).unwrap()).await.unwrap();
        stream.write_all(&frame).await.unwrap();
        stream.flush().await.unwrap();
        let mut answer = vec![0; usize::try_from(stream.read_u32().await.unwrap()).unwrap()];
        stream.read_exact(&mut answer).await.unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        if answer == "welcome" { None } else { Some(answer["refused"]["why"].as_str().unwrap().to_owned()) }
    }
}

#[tokio::test(start_paused = true)]
async fn only_what_is_awaited_comes_to_a_launcher_and_only_from_where_it_is_awaited() {
    let bench = Bench::new().await;
    let authority = Arc::new(Authority::make("of a test", now(), SignedDuration::from_hours(24)).unwrap());
    let node = |name: &'static str| Node { authority: authority.clone(), name };
    let relay = Relay { address: Ipv4Addr::LOCALHOST.into(), port: 0, credentials: Arc::new(node(NODE)) };
    let _handler = bench.handler_with(Settings { relay: Some(relay), ..bench.settings() }).await;
    let target = bench.launcher("pod-t");
    target.has_model(Some(MODEL));
    coming(&bench).await;
    seconds(5).await;
    let state = bench.vmi("a").await.status.unwrap().migration_state.unwrap();
    let ports = state.target_direct_migration_node_ports.unwrap();
    let door = SocketAddr::from((Ipv4Addr::LOCALHOST, ports.keys().next().unwrap().parse().unwrap()));
    let source = Caller { node: node("other"), door };

    assert_eq!(source.refused(&json!({})).await, None);
    for (differs, why) in [
        (json!({ "pod": "pod-x" }), "no launcher with pod pod-x is on this node"),
        (json!({ "migration": "x" }), "migration x is not under way"),
        (json!({ "digest": "x" }), "the digests of the models differ"),
        (json!({ "channel": "memory" }), "QEMU does not listen"),
    ] {
        let refused = source.refused(&differs).await.unwrap();
        assert!(refused.contains(why), "{differs}: {refused}");
    }
    let stranger = Caller { node: node("third"), door };
    let refused = stranger.refused(&json!({})).await.unwrap();
    assert_eq!(refused, "node third has nothing to send to this launcher");
    target.has_model(None);
    assert!(source.refused(&json!({})).await.is_some(), "whom it awaits is not known");
    target.has_model(Some(MODEL));
    assert_eq!(source.refused(&json!({})).await, None);

    change(&bench, &json!({ "status": { "migrationState": { "failed": true, "completed": true } } })).await;
    seconds(2).await;
    assert!(source.refused(&json!({})).await.is_some(), "it is over");
}
