use std::net::Ipv4Addr;
use std::sync::Mutex;

use certificates::tls::{self, Clients};
use certificates::{Authority, Request, Use};
use jiff::{SignedDuration, Timestamp};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::host::Doing;

/// A node with a certificate in its own name, or in another's.
struct Node {
    authority: Arc<Authority>,
    name: String,
}

impl Node {
    fn new(authority: &Arc<Authority>, name: &str) -> Arc<Self> {
        Arc::new(Self { authority: authority.clone(), name: name.to_owned() })
    }

    fn leaf(&self) -> Result<certificates::Leaf, CertificateError> {
        let request = Request { used: Use::Peer, ..Request::server(&self.name, &[&self.name], &[]) };
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

fn authority() -> Arc<Authority> {
    Arc::new(Authority::make("of a test", now(), SignedDuration::from_hours(24)).unwrap())
}

/// Awaits one guest from the node `red`, and keeps the far ends of its channels.
#[derive(Default)]
struct Awaits {
    channels: Mutex<Vec<(Frame, UnixStream)>>,
}

impl Door for Awaits {
    fn admit<'a>(&'a self, node: &'a str, frame: &'a Frame) -> Doing<'a, Result<Admitted, NotAdmitted>> {
        Box::pin(async move {
            if node != "red" || frame.migration != "m" {
                return Err(NotAdmitted::Node(node.to_owned()));
            }
            if frame.channel == Channel::Words {
                return Ok(Admitted::Words);
            }
            let (near, far) = UnixStream::pair().map_err(NotAdmitted::Closed)?;
            self.channels.lock().unwrap().push((frame.clone(), far));
            Ok(Admitted::Stream(near))
        })
    }

    fn is_under_way(&self, frame: &Frame) -> bool {
        frame.migration == "m"
    }

    fn reply<'a>(&'a self, _: &'a Frame, question: Question) -> Doing<'a, Reply> {
        Box::pin(async move {
            match question {
                Question::Settle => Reply::Loaded,
                Question::Disks => Reply::Disks(Vec::new()),
                Question::Take { .. } => Reply::Refused { why: "not yet".to_owned() },
            }
        })
    }
}

struct Bench {
    authority: Arc<Authority>,
    door: Arc<Awaits>,
    target: Target,
}

impl Bench {
    async fn new() -> Self {
        let (authority, door) = (authority(), Arc::new(Awaits::default()));
        let credentials = Node::new(&authority, "blue");
        let relay = Relay { address: Ipv4Addr::LOCALHOST.into(), port: 0, credentials: credentials.clone() };
        let listener = relay.listen().unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, credentials, door.clone()));
        let text = |text: &str| text.to_owned();
        let target = Target { address, node: text("blue"), migration: text("m"), pod: text("p"), digest: text("d") };
        Self { authority, door, target }
    }

    fn relay_of(&self, node: &str) -> Relay {
        relay_with(Node::new(&self.authority, node))
    }
}

fn relay_with(credentials: Arc<Node>) -> Relay {
    Relay { address: Ipv4Addr::LOCALHOST.into(), port: 0, credentials }
}

#[tokio::test]
async fn bytes_of_a_channel_go_both_ways_and_its_end_arrives_after_them() {
    let bench = Bench::new().await;
    let (mut launcher, near) = UnixStream::pair().unwrap();
    bench.relay_of("red").carry(&bench.target, Channel::Memory, near).await.unwrap();
    let (frame, mut qemu) = bench.door.channels.lock().unwrap().pop().unwrap();
    assert_eq!((frame.pod.as_str(), frame.digest.as_str(), frame.channel), ("p", "d", Channel::Memory));
    let sent = vec![7; 1 << 20];
    let sending = async {
        launcher.write_all(&sent).await.unwrap();
        let mut word = [0; 5];
        launcher.read_exact(&mut word).await.unwrap();
        assert_eq!(&word, b"reply");
        launcher.shutdown().await.unwrap();
    };
    let receiving = async {
        let mut first = vec![0; sent.len()];
        qemu.read_exact(&mut first).await.unwrap();
        assert!(first == sent);
        qemu.write_all(b"reply").await.unwrap();
        assert_eq!(qemu.read(&mut [0]).await.unwrap(), 0);
    };
    tokio::join!(sending, receiving);
}

#[tokio::test]
async fn only_the_node_that_is_awaited_gets_in_and_each_channel_once() {
    let bench = Bench::new().await;
    let carry = async |relay: &Relay, channel: Channel| {
        let (_, near) = UnixStream::pair().unwrap();
        relay.carry(&bench.target, channel, near).await
    };
    let refused = carry(&bench.relay_of("green"), Channel::Memory).await;
    assert!(
        matches!(&refused, Err(RelayError::Refused(why)) if why.starts_with("node green has nothing")),
        "{refused:?}"
    );
    let red = bench.relay_of("red");
    carry(&red, Channel::Memory).await.unwrap();
    carry(&red, Channel::Disk("vd0".to_owned())).await.unwrap();
    let again = carry(&red, Channel::Memory).await;
    assert!(matches!(&again, Err(RelayError::Refused(why)) if why.contains("already")), "{again:?}");
}

#[tokio::test]
async fn strangers_and_those_who_pretend_to_be_another_node_are_not_spoken_to() {
    let bench = Bench::new().await;
    let stranger = relay_with(Node::new(&authority(), "red"));
    let refused = stranger.ask(&bench.target, &Question::Settle).await;
    assert!(matches!(refused, Err(RelayError::Unreachable(_))), "another authority: {refused:?}");
    let elsewhere = Target { node: "green".to_owned(), ..bench.target.clone() };
    let refused = bench.relay_of("red").ask(&elsewhere, &Question::Settle).await;
    assert!(matches!(refused, Err(RelayError::Unreachable(_))), "the certificate is another node's: {refused:?}");
}

#[tokio::test]
async fn questions_are_replied_to_and_refusals_have_their_reason() {
    let bench = Bench::new().await;
    let red = bench.relay_of("red");
    assert_eq!(red.ask(&bench.target, &Question::Settle).await.unwrap(), Reply::Loaded);
    let question = Question::Take { paused: wire::Paused::Not };
    let refused = red.ask(&bench.target, &question).await;
    assert!(matches!(&refused, Err(RelayError::Refused(why)) if why == "not yet"), "{refused:?}");
}

#[tokio::test]
async fn no_number_of_other_channels_makes_one_be_carried_twice() {
    let (door, carried) = (Awaits::default(), Mutex::default());
    let frame = |migration: &str, channel: Channel| Frame {
        migration: migration.to_owned(),
        pod: "p".to_owned(),
        digest: "d".to_owned(),
        channel,
    };
    let admit = async |frame: &Frame| serving::admit(&door, "red", frame, &carried).await;
    admit(&frame("m", Channel::Memory)).await.unwrap();
    // Those of many migrations that are over.
    carried.lock().unwrap().extend((0..5000).map(|number| frame(&format!("over {number}"), Channel::Memory)));
    let again = admit(&frame("m", Channel::Memory)).await;
    assert!(matches!(again, Err(NotAdmitted::Carried)));
    assert_eq!(carried.lock().unwrap().len(), 1, "what is over is forgotten");
    // Whoever sends one guest cannot use up the room of others.
    let mut refused = None;
    for number in 0..1000 {
        let admitted = admit(&frame("m", Channel::Disk(number.to_string()))).await;
        door.channels.lock().unwrap().clear();
        if admitted.is_err() {
            refused = admitted.err();
            break;
        }
    }
    assert!(matches!(refused, Some(NotAdmitted::TooMany)), "{refused:?}");
}

#[tokio::test]
async fn who_says_nothing_keeps_nobody_out() {
    let bench = Bench::new().await;
    let mut silent = Vec::new();
    for _ in 0..300 {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::new(127, 0, 0, 9), 0).into()).unwrap();
        silent.push(socket.connect(bench.target.address).await.unwrap());
    }
    let asked = bench.relay_of("red").ask(&bench.target, &Question::Settle).await;
    assert_eq!(asked.unwrap(), Reply::Loaded);
}
