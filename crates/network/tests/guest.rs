//! A guest asks for its network on a real bridge, with sockets that were handed over.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Read;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;

use dhcproto::v4::{self, DhcpOption, MessageType};
use dhcproto::{Decodable, Decoder, Encodable, Encoder, v6};
use network::guest::{Settings, serve};
use network::guest_network::{Attached, Interface, Owner, Plan, set_up};
use network::mac::Mac;
use network::{handover, resolv};
use socket2::{Domain, Protocol, Socket, Type};
use testkit::namespace::Namespace;
use testkit::waiting::until;
use testkit::{Harness, NEVER, Need, tests};

fn main() -> std::process::ExitCode {
    Harness::default().needing(&[Need::Root, Need::Program("nft")]).run(tests![
        async a_guest_gets_its_address_from_packets_that_any_client_accepts,
        async a_guest_finds_its_router_and_asks_it_for_an_address,
    ])
}

struct Guest {
    namespace: Namespace,
    pod: Namespace,
    _peer: Namespace,
    _folder: tempfile::TempDir,
    server: tokio::task::JoinHandle<()>,
}

impl Guest {
    /// Brings its card up, and waits until the bridge takes what it sends: before, that is lost.
    fn plug_in(&self) {
        self.namespace.ip("link set nic up");
        let is_open = || self.pod.ip("-details link show tap0").contains("state forwarding");
        until("the bridge's port is open", is_open);
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// A guest with a card in a bridge, and its servers running behind a handover.
async fn guest() -> Guest {
    let (pod, peer, namespace) = (Namespace::new(), Namespace::new(), Namespace::new());
    let folder = tempfile::tempdir().unwrap();
    pod.connect("eth0", &peer, "up0");
    pod.ip("addr add 172.30.0.2/24 dev eth0");
    pod.ip("addr add fd99::2/64 dev eth0 nodad");
    let interface = Interface {
        name: "default".to_owned(),
        pod_link: "eth0".to_owned(),
        mac: mac(),
        ports: Vec::new(),
        owner: Owner { uid: 0, gid: 0 },
        cidr4: None,
        cidr6: None,
        queues: 1,
    };
    let program = Path::new(env!("CARGO_BIN_EXE_network-setup-test"));
    let plan = Plan { interfaces: vec![interface] };
    let attached = set_up(program, pod.open().as_fd(), &folder.path().join("state"), &plan).await.unwrap();
    let path = folder.path().join("network-sock");
    let listener = handover::listen(&path).unwrap();
    let (received, sent) = tokio::join!(handover::receive(&listener), handover::send(&path, &attached));
    sent.unwrap();
    drop(attached);
    let Attached { interfaces, mut sockets } = received.unwrap();
    let dns = resolv::parse("search example\nnameserver 10.96.0.10\nnameserver fd00::10\n");
    let settings = Settings { hostname: "vm".to_owned(), search: dns.search, dns: dns.servers, ..Settings::default() };
    let server = tokio::spawn(async move {
        let _ = serve(&interfaces[0], sockets.remove(0), &settings).await;
    });
    // In the place of the tap, so that what guards that guards this.
    pod.ip("link del tap0");
    namespace.ip(&format!("link add nic address {} type veth peer name tap0 netns {}", mac(), pod.pid()));
    pod.ip("link set tap0 master k6t-eth0 up");
    Guest { namespace, pod, _peer: peer, _folder: folder, server }
}

fn mac() -> Mac {
    Mac::stable("uid", "default")
}

/// The next DHCP answer as it is on the wire: its UDP checksum, and the message.
fn next_answer(card: &mut Socket) -> (u16, v4::Message) {
    let mut frame = [0; 2048];
    loop {
        let length = card.read(&mut frame).unwrap();
        let frame = &frame[..length];
        let is_answer = length > 42 && frame[12..14] == [8, 0] && frame[23] == 17 && frame[36..38] == [0, 68];
        if is_answer {
            assert_eq!(frame[14], 0x45, "no options in the header");
            let checksum = u16::from_be_bytes([frame[40], frame[41]]);
            return (checksum, v4::Message::decode(&mut Decoder::new(&frame[42..])).unwrap());
        }
    }
}

async fn a_guest_gets_its_address_from_packets_that_any_client_accepts() {
    let guest = guest().await;
    guest.plug_in();
    // The default route of another way out of the guest's namespace does not exist: broadcasts need one.
    guest.namespace.ip("route add 255.255.255.255 dev nic");
    guest.namespace.inside(|| {
        let all = i32::from(0x0003_u16.to_be());
        let mut card = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(all))).unwrap();
        card.set_read_timeout(Some(NEVER)).unwrap();
        let socket = UdpSocket::bind("0.0.0.0:68").unwrap();
        socket.set_broadcast(true).unwrap();
        let none = Ipv4Addr::UNSPECIFIED;
        let mut message = v4::Message::new_with_id(7, none, none, none, none, &mac().octets());
        let mut ask = |kind, wanted: Option<Ipv4Addr>| {
            message.opts_mut().insert(DhcpOption::MessageType(kind));
            wanted.into_iter().for_each(|it| drop(message.opts_mut().insert(DhcpOption::RequestedIpAddress(it))));
            let mut bytes = Vec::new();
            message.encode(&mut Encoder::new(&mut bytes)).unwrap();
            socket.send_to(b"garbage", "255.255.255.255:67").unwrap();
            socket.send_to(&bytes, "255.255.255.255:67").unwrap();
            next_answer(&mut card)
        };
        let (checksum, offer) = ask(MessageType::Discover, None);
        assert_eq!(checksum, 0, "none is right, one that a device should fill in is not");
        assert_eq!((offer.opts().msg_type(), offer.yiaddr()), (Some(MessageType::Offer), Ipv4Addr::new(10, 0, 2, 2)));
        let (_, ack) = ask(MessageType::Request, Some(offer.yiaddr()));
        assert_eq!(ack.opts().msg_type(), Some(MessageType::Ack));
    });
}

async fn a_guest_finds_its_router_and_asks_it_for_an_address() {
    let guest = guest().await;
    guest.namespace.run("sh", &["-c", "echo 1 > /proc/sys/net/ipv6/conf/nic/accept_ra"]);
    guest.plug_in();
    until("a router is found", || guest.namespace.ip("-6 route show default").contains("proto ra"));
    let routes = guest.namespace.ip("-6 route show");
    assert!(routes.contains("fd10:0:2::/120"), "{routes}");
    assert!(!guest.namespace.ip("-6 addr show nic").contains("fd10"), "the address is not made up");
    let index = guest.namespace.ip("link show nic").split(':').next().unwrap().trim().parse().unwrap();
    let reply = guest.namespace.inside(|| {
        let socket = UdpSocket::bind("[::]:546").unwrap();
        socket.set_read_timeout(Some(NEVER)).unwrap();
        let mut message = v6::Message::new_with_id(v6::MessageType::Solicit, [1, 2, 3]);
        message.opts_mut().insert(v6::DhcpOption::ClientId(vec![0, 3, 0, 1, 2, 3]));
        let association = v6::IANA { id: 1, t1: 0, t2: 0, opts: v6::DhcpOptions::new() };
        message.opts_mut().insert(v6::DhcpOption::IANA(association));
        let mut bytes = Vec::new();
        message.encode(&mut Encoder::new(&mut bytes)).unwrap();
        let servers = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
        socket.send_to(&bytes, SocketAddrV6::new(servers, 547, 0, index)).unwrap();
        let mut buffer = [0; 2048];
        let length = socket.recv(&mut buffer).unwrap();
        v6::Message::decode(&mut Decoder::new(&buffer[..length])).unwrap()
    });
    assert_eq!(reply.msg_type(), v6::MessageType::Advertise);
    assert!(format!("{reply:?}").contains("fd10:0:2::2"), "{reply:?}");
}
