//! Guests of nodes, through virt-api and virt-handler: two hops of TLS.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use certificates::Request as Wanted;
use futures_util::{SinkExt as _, StreamExt as _};
use rustls::pki_types::CertificateDer;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use virt_api::subresources::{Answering, Connection, GuestError, GuestName, Guests, Question, Reply, Way};
use virt_server::Component;

use crate::bench::{Bench, SERVICE, VIRT_API, VMIS, handlers, issue, write};

/// Guests whose console says again what is typed, and who remember what they are asked.
#[derive(Default)]
pub(crate) struct Echo(Mutex<Vec<(String, Question)>>);

impl Guests for Echo {
    fn ask(&self, guest: GuestName, question: Question) -> Answering<Reply> {
        self.0.lock().unwrap().push((guest.name, question));
        Box::pin(async { Ok(Reply::Done) })
    }

    fn open(&self, _: GuestName, way: Way) -> Answering<Connection> {
        let opened = match way {
            Way::Console { .. } => {
                let (near, far) = tokio::io::duplex(4096);
                tokio::spawn(async move {
                    let (mut from, mut to) = tokio::io::split(far);
                    tokio::io::copy(&mut from, &mut to).await
                });
                Ok(Box::new(near) as Connection)
            }
            Way::Vnc { .. } | Way::Port { .. } | Way::Datagrams { .. } => {
                Err(GuestError::Failed("the guest is deaf".to_owned()))
            }
        };
        Box::pin(async move { opened })
    }
}

pub(crate) type Socket = WebSocketStream<TlsStream<TcpStream>>;

pub(crate) async fn console(bench: &Bench, name: &str) -> Socket {
    let stream = bench.connect(Some(&bench.proxy())).await.unwrap();
    let mut request = format!("wss://{SERVICE}{VMIS}/{name}/console").into_client_request().unwrap();
    request.headers_mut().insert("x-remote-user", "admin".parse().unwrap());
    request.headers_mut().insert("x-remote-group", "system:masters".parse().unwrap());
    tokio_tungstenite::client_async(request, stream).await.unwrap().0
}

async fn echoes(socket: &mut Socket, text: &'static str) {
    socket.send(Message::Binary(Bytes::from_static(text.as_bytes()))).await.unwrap();
    hears(socket, text).await;
}

async fn hears(socket: &mut Socket, text: &str) {
    let mut heard = Vec::new();
    while heard.len() < text.len() {
        match socket.next().await.unwrap().unwrap() {
            Message::Binary(bytes) => heard.extend_from_slice(&bytes),
            Message::Ping(_) | Message::Pong(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(heard, text.as_bytes());
}

fn shown(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

/// How a stream was closed.
async fn closed(socket: &mut Socket) -> (u16, String) {
    loop {
        match socket.next().await.unwrap().unwrap() {
            Message::Close(Some(frame)) => return (frame.code.into(), frame.reason.to_string()),
            Message::Ping(_) | Message::Pong(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_guest_is_asked_on_its_node_and_its_console_goes_both_ways() {
    let bench = Bench::new().await;
    let guests = Arc::new(Echo::default());
    let _node = bench.node("red", "red", guests.clone()).await;
    bench.instance("i", "red").await;
    assert_eq!(bench.put("admin", &format!("{VMIS}/i/pause"), &json!({})).await.0, 200);
    assert_eq!(*guests.0.lock().unwrap(), [("i".to_owned(), Question::Pause)]);
    let mut socket = console(&bench, "i").await;
    echoes(&mut socket, "hello").await;
    socket.close(None).await.unwrap();
    while socket.next().await.is_some() {}
    bench.stop().await;
}

/// A hundred consoles at once, of guests on four nodes: each hears what was typed there, and nothing else.
#[tokio::test]
async fn a_hundred_guests_are_looked_at_at_once() {
    let bench = Bench::new().await;
    let nodes = ["red", "blue", "green", "black"];
    let mut stops = Vec::new();
    for node in nodes {
        stops.push(bench.node(node, node, Arc::new(Echo::default())).await);
    }
    let mut all = Vec::new();
    for (number, node) in (0..100).zip(nodes.into_iter().cycle()) {
        let name = format!("guest-{number}");
        bench.instance(&name, node).await;
        all.push((console(&bench, &name).await, name));
    }
    for (socket, name) in &mut all {
        socket.send(Message::Binary(Bytes::from(name.clone()))).await.unwrap();
    }
    for (socket, name) in all.iter_mut().rev() {
        hears(socket, name).await;
        echoes(socket, "more").await;
    }
    drop(all);
    bench.stop().await;
}

#[tokio::test]
async fn certificates_are_renewed_under_a_stream_and_it_stays() {
    let bench = Bench::new().await;
    let _node = bench.node("red", "red", Arc::new(Echo::default())).await;
    bench.instance("i", "red").await;
    let mut old = console(&bench, "i").await;
    echoes(&mut old, "before").await;
    let first = shown(old.get_ref());
    write(bench.folder.path(), "serving", &issue(&bench.serving, &Wanted::server("virt-api", &[SERVICE], &[])));
    write(bench.folder.path(), "red", &issue(&bench.inner, &Wanted::server("red", &["red"], &[])));
    // Files are looked at again when somebody connects a while later.
    while shown(&bench.connect(None).await.unwrap()) == first {
        tokio::task::yield_now().await;
    }
    echoes(&mut old, "after").await;
    let mut new = console(&bench, "i").await;
    echoes(&mut new, "new").await;
    echoes(&mut old, "still").await;
    bench.stop().await;
}

#[tokio::test]
async fn a_handler_of_another_node_is_not_believed() {
    let bench = Bench::new().await;
    let guests = Arc::new(Echo::default());
    let _node = bench.node("red", "blue", guests.clone()).await;
    bench.instance("i", "red").await;
    let (code, status) = bench.put("admin", &format!("{VMIS}/i/pause"), &json!({})).await;
    let message = status["message"].as_str().unwrap().to_owned();
    assert!(code == 500 && message.contains("cannot connect to virt-handler on node \"red\""), "{status}");
    assert!(guests.0.lock().unwrap().is_empty());
    bench.stop().await;
}

#[tokio::test]
async fn a_handler_lets_nobody_in_but_virt_api() {
    let bench = Bench::new().await;
    let guests = Arc::new(Echo::default());
    let _node = bench.node("red", "red", guests.clone()).await;
    let guest = || {
        let text = str::to_owned;
        GuestName { namespace: text("default"), name: text("i"), uid: text("1"), node: text("red") }
    };
    let client = kube::Client::new(bench.server.for_identity(Component::VirtApi.identity()), "default");
    let other = tempfile::tempdir().unwrap();
    let stranger = crate::bench::authority("stranger");
    for ways in [
        // A node's certificate is of the same authority.
        handlers(&client, other.path(), &bench.inner, "blue"),
        handlers(&client, other.path(), &stranger, VIRT_API),
    ] {
        assert!(ways.ask(guest(), Question::Pause).await.is_err());
        assert!(ways.open(guest(), Way::Console { replay: false }).await.is_err());
    }
    // Without any certificate there is not even a question.
    let address = kube::Api::<k8s_openapi::api::core::v1::Node>::all(bench.admin()).get("red").await.unwrap();
    let address = address.metadata.annotations.unwrap()["orlop.dev/virt-handler"].clone();
    let config = certificates::tls::client(certificates::tls::roots(bench.inner.certificate()).unwrap(), None).unwrap();
    let stream = TcpStream::connect(&address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let refused = async {
        let mut stream = connector.connect("red".try_into().unwrap(), stream).await?;
        stream.write_all(&[0; 64]).await?;
        stream.read_u8().await
    };
    assert!(refused.await.is_err());
    assert!(guests.0.lock().unwrap().is_empty());
    let right = handlers(&client, other.path(), &bench.inner, VIRT_API);
    assert_eq!(right.ask(guest(), Question::Pause).await, Ok(Reply::Done));
    bench.stop().await;
}

#[tokio::test]
async fn a_handler_that_ends_says_so_and_so_does_virt_api() {
    let bench = Bench::new().await;
    let node = bench.node("red", "red", Arc::new(Echo::default())).await;
    let _other = bench.node("blue", "blue", Arc::new(Echo::default())).await;
    bench.instance("i", "red").await;
    bench.instance("j", "blue").await;
    let (mut of_red, mut of_blue) = (console(&bench, "i").await, console(&bench, "j").await);
    echoes(&mut of_red, "hello").await;
    echoes(&mut of_blue, "hello").await;
    node.ask();
    assert_eq!(closed(&mut of_red).await, (1011, "virt-handler stops".to_owned()));
    let stopping = tokio::spawn(bench.stop());
    assert_eq!(closed(&mut of_blue).await, (1001, "the server stops".to_owned()));
    drop((of_red, of_blue));
    stopping.await.unwrap();
}
