//! What pods reach of their machine, and through it.

use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};

use network::cni::{Cni, Service};
use network::guest_network::Protocol;
use testkit::NEVER;
use testkit::namespace::Namespace;

use super::{BRIDGE, TestHost, pod};

fn at(address: Option<&str>, protocol: Protocol, port: u16) -> Service {
    Service { address: address.map(|address| address.parse().unwrap()), protocol, port }
}

/// A machine with a pod, and with services of its own at every address.
struct Host {
    machine: TestHost,
    cni: Cni,
    pod: Namespace,
    addresses: Vec<IpAddr>,
    _listeners: Vec<TcpListener>,
}

impl Host {
    fn new(machine: TestHost) -> Self {
        let pod = Namespace::new();
        let cni = machine.cni();
        let addresses = machine.on(async || cni.add(&super::pod("one", &pod)).await.unwrap());
        let listen = |port| machine.namespace.inside(|| TcpListener::bind(("::", port)).unwrap());
        let listeners = [22, 6443, 9000].map(listen).into();
        Self { machine, cni, pod, addresses, _listeners: listeners }
    }

    fn let_reach(&self, services: &[Service]) {
        self.machine.on(async || self.cni.let_reach(services.to_vec()).await.unwrap());
    }

    fn reached(&self, to: &str) -> bool {
        self.pod.dial(to.parse().unwrap()).is_some()
    }
}

/// Whether a packet comes, and an answer goes back.
fn is_answered(from: &Namespace, server: &UdpSocket, to: &str) -> bool {
    let to: SocketAddr = to.parse().unwrap();
    let client = from.inside(|| UdpSocket::bind((if to.is_ipv4() { "0.0.0.0" } else { "::" }, 0)).unwrap());
    client.set_read_timeout(Some(NEVER)).unwrap();
    client.connect(to).unwrap();
    client.send(b"question").unwrap();
    let mut buffer = [0; 16];
    server.set_nonblocking(true).unwrap();
    match server.recv_from(&mut buffer) {
        Ok((_, asker)) => {
            server.send_to(b"answer", asker).unwrap();
            client.recv(&mut buffer).is_ok()
        }
        // It was refused, which the one who asked is told.
        Err(_) => {
            assert_eq!(client.recv(&mut buffer).unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
            false
        }
    }
}

pub(crate) fn pods_reach_of_the_machine_what_is_allowed() {
    let machine = TestHost::new();
    machine.namespace.ip("link add uplink type bridge");
    machine.namespace.ip("link set uplink up");
    machine.namespace.ip("addr add 198.51.100.1/24 dev uplink");
    let host = Host::new(machine);
    let gateways = ["10.77.0.1", "fd77::1"];
    for to in ["10.77.0.1:6443", "[fd77::1]:6443", "198.51.100.1:6443", "10.77.0.1:22", "[fd77::1]:22"] {
        assert!(!host.reached(to), "{to} before anything is allowed");
    }
    let local = host.machine.namespace.ip(&format!("-6 addr show dev {BRIDGE} scope link"));
    let local = local.split_whitespace().find(|word| word.starts_with("fe80")).unwrap().split('/').next().unwrap();
    let index = host.pod.ip("link show eth0").split(':').next().unwrap().trim().to_owned();
    assert!(!host.reached(&format!("[{local}%{index}]:22")), "by an address of the link");

    let of_api = gateways.map(|gateway| at(Some(gateway), Protocol::Tcp, 6443));
    let more = [at(None, Protocol::Tcp, 9000), at(None, Protocol::Udp, 53)];
    host.let_reach(&[of_api, more].concat());
    for to in ["10.77.0.1:6443", "[fd77::1]:6443", "10.77.0.1:9000", "[fd77::1]:9000", "198.51.100.1:9000"] {
        assert!(host.reached(to), "{to} is allowed");
    }
    for to in ["198.51.100.1:6443", "10.77.0.1:22", "198.51.100.1:22", "[fd77::1]:22"] {
        assert!(!host.reached(to), "{to} is not allowed");
    }
    for (port, expected) in [(53, true), (123, false)] {
        let server = host.machine.namespace.inside(|| UdpSocket::bind(("::", port)).unwrap());
        for gateway in ["10.77.0.1", "[fd77::1]"] {
            assert_eq!(is_answered(&host.pod, &server, &format!("{gateway}:{port}")), expected, "{gateway}:{port}");
        }
    }
    host.let_reach(&[]);
    assert!(!host.reached("10.77.0.1:9000"), "what was allowed before is not any more");
    assert_eq!(host.cni.unguarded(), None);
}

pub(crate) fn a_name_server_that_pods_are_told_of_later_is_open_to_them() {
    let machine = TestHost::new();
    machine.namespace.ip("link add uplink type bridge");
    machine.namespace.ip("link set uplink up");
    machine.namespace.ip("addr add 198.51.100.1/24 dev uplink");
    machine.namespace.ip("addr add 198.51.100.2/24 dev uplink");
    let host = Host::new(machine);
    let _listener = host.machine.namespace.inside(|| TcpListener::bind(("::", 53)).unwrap());
    host.let_reach(&[at(Some("198.51.100.1"), Protocol::Tcp, 6443)]);
    let ask = |server: &str| host.machine.on(async || host.cni.let_ask(&[server.parse().unwrap()]).await.unwrap());
    let open = || ["198.51.100.1:53", "198.51.100.2:53"].map(|to| host.reached(to));
    assert_eq!(open(), [false, false]);
    ask("198.51.100.1");
    assert_eq!(open(), [true, false]);
    ask("198.51.100.2");
    assert_eq!(open(), [true, true], "whoever was told of the first one asks it still");
    assert!(host.reached("198.51.100.1:6443") && !host.reached("198.51.100.2:6443"), "and nothing else has changed");
}

pub(crate) fn the_machine_reaches_its_pods_and_hears_their_answers() {
    let host = Host::new(TestHost::new());
    let _listener = host.pod.inside(|| TcpListener::bind(("::", 80)).unwrap());
    for address in &host.addresses {
        assert!(host.machine.namespace.dial((*address, 80).into()).is_some(), "{address}");
    }
    let server = host.pod.inside(|| UdpSocket::bind("[::]:53").unwrap());
    assert!(is_answered(&host.machine.namespace, &server, &format!("{}:53", host.addresses[0])));
    // Nobody listens there, which the pod's kernel tells by ICMP.
    assert!(host.machine.namespace.dial((host.addresses[0], 81).into()).is_none());
}

pub(crate) fn the_metadata_of_a_cloud_is_not_for_pods() {
    let machine = TestHost::new();
    let cloud = Namespace::new();
    machine.namespace.connect("uplink", &cloud, "nic");
    let metadata = ["169.254.169.254", "169.254.170.2", "168.63.129.16", "fd00:ec2::254"];
    for (namespace, link, host) in [(&machine.namespace, "uplink", 1), (&cloud, "nic", 2)] {
        namespace.ip(&format!("addr add 198.51.100.{host}/24 dev {link}"));
        namespace.ip(&format!("addr add fd55::{host}/64 dev {link} nodad"));
    }
    for address in metadata {
        cloud.ip(&format!("addr add {address} dev nic {}", if address.contains(':') { "nodad" } else { "" }));
        let way = if address.contains(':') { "fd55::2" } else { "198.51.100.2" };
        machine.namespace.ip(&format!("route add {address} via {way}"));
    }
    let _listeners = [53, 80].map(|port| cloud.inside(|| TcpListener::bind(("::", port)).unwrap()));
    let host = Host::new(machine);
    let open = |address: &str, port: u16| host.reached(&SocketAddr::new(address.parse().unwrap(), port).to_string());
    for address in metadata {
        let to = SocketAddr::new(address.parse().unwrap(), 80);
        assert!(host.machine.namespace.dial(to).is_some(), "{address} is the machine's");
        assert!(!open(address, 80) && !open(address, 53), "{address}");
    }
    assert!(open("198.51.100.2", 80) && open("fd55::2", 80), "the rest of the world");
    // Of some clouds the name server is there, too.
    host.let_reach(&[at(Some("169.254.169.254"), Protocol::Tcp, 53), at(None, Protocol::Tcp, 80)]);
    assert!(open("169.254.169.254", 53) && !open("169.254.169.254", 80));
}

pub(crate) fn a_machine_without_ipv6_for_pods_has_no_way_around() {
    let machine = TestHost::new();
    let one = Namespace::new();
    let mut settings = machine.settings();
    settings.network.subnet6 = None;
    let before = machine.look().0;
    machine.on(async || Cni::new(settings.clone()).unwrap().add(&pod("one", &one)).await.unwrap());
    let local = machine.namespace.ip(&format!("-6 addr show dev {BRIDGE}"));
    assert_eq!(local, "", "the machine has no address of this family on the pods' link");
    machine.on(async || Cni::new(settings).unwrap().remove_all().await.unwrap());
    assert_eq!(machine.look().0, before);
}

pub(crate) fn what_leaves_the_machine_does_so_in_its_name() {
    let machine = TestHost::new();
    let (world, one) = (Namespace::new(), Namespace::new());
    machine.namespace.connect("uplink", &world, "nic");
    for (namespace, link, host) in [(&machine.namespace, "uplink", 1), (&world, "nic", 2)] {
        namespace.ip(&format!("addr add 198.51.100.{host}/24 dev {link}"));
        namespace.ip(&format!("addr add fd55::{host}/64 dev {link} nodad"));
    }
    machine.on(async || machine.cni().add(&pod("one", &one)).await.unwrap());
    let listener = world.inside(|| TcpListener::bind(("::", 80)).unwrap());
    for (to, from) in [("198.51.100.2:80", "198.51.100.1"), ("[fd55::2]:80", "fd55::1")] {
        let _stream = one.dial(to.parse().unwrap()).unwrap();
        assert_eq!(listener.accept().unwrap().1.ip().to_canonical(), from.parse::<IpAddr>().unwrap());
    }
    let heeds = machine.namespace.run("cat", &["/proc/sys/net/ipv6/conf/uplink/accept_ra"]);
    assert_eq!(heeds.trim(), "2", "the machine's own way is not lost");
}
