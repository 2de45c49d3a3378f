//! The masquerade binding in real namespaces: a client, the pod, and a guest.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/datagrams.rs"]
mod datagrams;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;

use datagrams::{heard, heard_with};
use network::guest_network::{
    Attached, FinalError, Interface, Owner, Plan, Port, Protocol, RetryableError, SetUpError, set_up,
};
use network::mac::Mac;
use testkit::namespace::Namespace;
use testkit::waiting::until;
use testkit::{Harness, NEVER, Need, tests};

fn main() -> std::process::ExitCode {
    Harness::default().needing(&[Need::Root, Need::Program("nft")]).run(tests![
        async a_pods_address_leads_to_its_guest_and_the_guest_out_in_the_pods_name,
        async only_listed_ports_lead_to_the_guest,
        async a_pod_without_ipv6_gives_its_guest_none,
        async whatever_step_it_was_cut_off_after_it_is_finished_by_the_next_call,
        async what_is_finished_is_answered_with_new_sockets_and_left_alone,
        async a_record_of_another_namespace_is_a_final_error,
        async a_plan_that_cannot_be_is_a_final_error_and_a_missing_link_is_not,
        async a_tap_with_several_queues_is_a_multi_queue_tap,
        async a_guest_sends_in_its_own_name_alone,
        async what_a_pod_keeps_to_itself_its_guest_does_not_reach,
    ])
}

/// The steps that the child makes for one interface with both families.
const STEPS: usize = 9;

/// A pod with a peer on its link.
struct Pod {
    namespace: Namespace,
    peer: Namespace,
    folder: tempfile::TempDir,
}

impl Pod {
    fn new() -> Self {
        let (namespace, peer) = (Namespace::new(), Namespace::new());
        namespace.connect("eth0", &peer, "up0");
        namespace.ip("addr add 172.30.0.2/24 dev eth0");
        namespace.ip("addr add fd99::2/64 dev eth0 nodad");
        namespace.ip("link set eth0 mtu 1440");
        namespace.ip("route add default via 172.30.0.1");
        namespace.ip("-6 route add default via fd99::1");
        peer.ip("addr add 172.30.0.1/24 dev up0");
        peer.ip("addr add fd99::1/64 dev up0 nodad");
        Self { namespace, peer, folder: tempfile::tempdir().unwrap() }
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("network.json")
    }

    async fn set_up(&self, plan: &Plan) -> Result<Attached, SetUpError> {
        set_up(program(), self.namespace.open().as_fd(), &self.state(), plan).await
    }

    /// A guest whose network card is one end of a veth; the other end is in the bridge, in the place of the tap.
    fn guest(&self) -> Namespace {
        let guest = Namespace::new();
        self.namespace.ip("link del tap0");
        let card = format!("peer name nic address {} netns {}", mac(), guest.pid());
        self.namespace.ip(&format!("link add tap0 type veth {card}"));
        self.namespace.ip("link set tap0 master k6t-eth0 up");
        guest.ip("link set nic up");
        // Before that, the bridge takes nothing from it.
        let is_open = || self.namespace.ip("-details link show tap0").contains("state forwarding");
        until("the bridge's port is open", is_open);
        guest.ip("addr add 10.0.2.2/24 dev nic");
        guest.ip("addr add fd10:0:2::2/120 dev nic nodad");
        guest.ip("route add default via 10.0.2.1");
        guest.ip("-6 route add default via fd10:0:2::1");
        guest
    }
}

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_network-setup-test"))
}

fn mac() -> Mac {
    Mac::stable("uid", "default")
}

fn plan(ports: Vec<Port>) -> Plan {
    let interface = Interface {
        name: "default".to_owned(),
        pod_link: "eth0".to_owned(),
        mac: mac(),
        ports,
        owner: Owner { uid: 107, gid: 108 },
        cidr4: None,
        cidr6: None,
        queues: 1,
    };
    Plan { interfaces: vec![interface] }
}

/// Answers every connection, and tells where it came from. It keeps its port: a program that is being started beside it
/// holds a copy of every socket for a moment, so that a port that was given back is not free yet.
struct Server(Receiver<IpAddr>);

impl Server {
    fn start(namespace: &Namespace, port: u16) -> Self {
        let listener = namespace.inside(|| TcpListener::bind(("::", port)).unwrap());
        let (seen, from) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            while let Ok((mut stream, from)) = listener.accept() {
                stream.write_all(b"hello").unwrap();
                if seen.send(from.ip().to_canonical()).is_err() {
                    return;
                }
            }
        });
        Self(from)
    }

    /// Who was answered last.
    fn answered(&self) -> IpAddr {
        self.0.recv_timeout(NEVER).unwrap()
    }
}

fn reaches(namespace: &Namespace, to: &str) -> bool {
    let Some(mut stream) = namespace.dial(to.parse().unwrap()) else { return false };
    stream.set_read_timeout(Some(NEVER)).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text == "hello"
}

async fn a_pods_address_leads_to_its_guest_and_the_guest_out_in_the_pods_name() {
    let pod = Pod::new();
    let attached = pod.set_up(&plan(Vec::new())).await.unwrap();
    let interface = &attached.interfaces[0];
    assert_eq!((interface.bridge.as_str(), interface.tap.as_str(), interface.mtu), ("k6t-eth0", "tap0", 1440));
    assert_eq!(interface.guest6, Some("fd10:0:2::2".parse().unwrap()));
    let expected: Vec<IpAddr> = vec!["172.30.0.2".parse().unwrap(), "fd99::2".parse().unwrap()];
    assert_eq!(interface.pod_addresses, expected);
    let tap = pod.namespace.ip("-details link show tap0");
    for expected in ["mtu 1440", "master k6t-eth0", "vnet_hdr on", "persist on", "user 107", "group 108"] {
        assert!(tap.contains(expected), "{expected}: {tap}");
    }

    let guest = pod.guest();
    let (inner, outer) = (Server::start(&guest, 80), Server::start(&pod.peer, 80));
    for (to, from) in [("172.30.0.2:80", "172.30.0.1"), ("[fd99::2]:80", "fd99::1")] {
        assert!(reaches(&pod.peer, to), "{to}");
        assert_eq!(inner.answered(), from.parse::<IpAddr>().unwrap(), "the guest sees who asks");
    }
    for (to, from) in [("172.30.0.1:80", "172.30.0.2"), ("[fd99::1]:80", "fd99::2")] {
        assert!(reaches(&guest, to), "{to}");
        assert_eq!(outer.answered(), from.parse::<IpAddr>().unwrap(), "others see the pod");
    }
    assert!(reaches(&pod.namespace, "127.0.0.1:80"));
    assert_eq!(inner.answered(), "10.0.2.1".parse::<IpAddr>().unwrap());
    assert!(!reaches(&pod.namespace, "[::1]:80"), "refused, not lost");
}

async fn only_listed_ports_lead_to_the_guest() {
    let pod = Pod::new();
    let ports = vec![Port { protocol: Protocol::Tcp, port: 80 }, Port { protocol: Protocol::Udp, port: 53 }];
    pod.set_up(&plan(ports)).await.unwrap();
    let guest = pod.guest();
    let _servers = (Server::start(&guest, 80), Server::start(&guest, 81));
    for (open, closed) in [("172.30.0.2:80", "172.30.0.2:81"), ("[fd99::2]:80", "[fd99::2]:81")] {
        assert!(reaches(&pod.peer, open));
        assert!(!reaches(&pod.peer, closed));
    }
}

async fn a_pod_without_ipv6_gives_its_guest_none() {
    let pod = Pod::new();
    pod.namespace.ip("addr del fd99::2/64 dev eth0");
    let attached = pod.set_up(&plan(Vec::new())).await.unwrap();
    assert_eq!(attached.interfaces[0].guest6, None);
    assert!(attached.sockets[0].dhcp6.is_none() && attached.sockets[0].ra.is_none());
    assert!(!pod.namespace.ip("-6 addr show k6t-eth0").contains("fd10"));
    assert!(!pod.namespace.run("nft", &["list", "ruleset"]).contains("ip6"));
}

async fn whatever_step_it_was_cut_off_after_it_is_finished_by_the_next_call() {
    let expected = {
        let pod = Pod::new();
        pod.set_up(&plan(Vec::new())).await.unwrap().interfaces
    };
    for last in 1..=STEPS {
        let pod = Pod::new();
        let cut = cut_off(&pod, last).await.unwrap_err();
        assert!(matches!(cut, SetUpError::Retryable(RetryableError::NoAnswer(_))), "after step {last}: {cut:?}");
        let attached = pod.set_up(&plan(Vec::new())).await.unwrap();
        assert_eq!(attached.interfaces, expected, "after step {last}");
        let guest = pod.guest();
        let _server = Server::start(&guest, 80);
        assert!(reaches(&pod.peer, "[fd99::2]:80"), "after step {last}");
    }
    let pod = Pod::new();
    assert!(cut_off(&pod, STEPS + 1).await.is_ok(), "there are no more steps");
}

fn is_final(error: &SetUpError) -> bool {
    matches!(error, SetUpError::Final(_))
}

/// Has the child killed after a step.
async fn cut_off(pod: &Pod, last: usize) -> Result<Attached, SetUpError> {
    let script = pod.folder.path().join("cut-off");
    let text = format!("#!/bin/sh\nNETWORK_TEST_LAST_STEP={last} exec {} \"$@\"\n", program().display());
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    set_up(&script, pod.namespace.open().as_fd(), &pod.state(), &plan(Vec::new())).await
}

async fn what_is_finished_is_answered_with_new_sockets_and_left_alone() {
    let pod = Pod::new();
    let first = pod.set_up(&plan(Vec::new())).await.unwrap();
    pod.namespace.run("nft", &["flush", "ruleset"]);
    let again = pod.set_up(&plan(vec![Port { protocol: Protocol::Tcp, port: 1 }])).await.unwrap();
    assert_eq!(again.interfaces, first.interfaces);
    assert_eq!(again.sockets.len(), 1);
    assert_eq!(pod.namespace.run("nft", &["list", "ruleset"]), "", "nothing was made again");
    pod.namespace.ip("link del k6t-eth0");
    let gone = pod.set_up(&plan(Vec::new())).await.unwrap_err();
    assert!(is_final(&gone), "{gone}");
}

async fn a_record_of_another_namespace_is_a_final_error() {
    let pod = Pod::new();
    pod.set_up(&plan(Vec::new())).await.unwrap();
    let other = Namespace::new();
    let error = set_up(program(), other.open().as_fd(), &pod.state(), &plan(Vec::new())).await.unwrap_err();
    assert!(matches!(error, SetUpError::Final(FinalError::OtherNamespace(_))), "{error}");
    assert!(!other.ip("link").contains("k6t"));
    for text in ["", "{", "[]"] {
        std::fs::write(pod.state(), text).unwrap();
        assert!(is_final(&pod.set_up(&plan(Vec::new())).await.unwrap_err()), "no record: {text:?}");
    }
}

async fn a_plan_that_cannot_be_is_a_final_error_and_a_missing_link_is_not() {
    let pod = Pod::new();
    let mut wrong = plan(Vec::new());
    wrong.interfaces[0].queues = 0;
    assert!(is_final(&pod.set_up(&wrong).await.unwrap_err()));
    let mut missing = plan(Vec::new());
    missing.interfaces[0].pod_link = "eth1".to_owned();
    let error = pod.set_up(&missing).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot set up the network: the pod has no link eth1");
    assert!(!is_final(&error));
    pod.namespace.ip("link add k6t-eth0 type veth peer name other");
    assert!(is_final(&pod.set_up(&plan(Vec::new())).await.unwrap_err()));
}

async fn a_tap_with_several_queues_is_a_multi_queue_tap() {
    let pod = Pod::new();
    let mut several = plan(Vec::new());
    several.interfaces[0].queues = 4;
    pod.set_up(&several).await.unwrap();
    assert!(pod.namespace.ip("-details link show tap0").contains("multi_queue"));
}

/// Lets a guest with this address on the wire know its router's, so that it need not ask before it sends.
fn with_card(guest: &Namespace, mac: &str) {
    guest.ip(&format!("link set nic address {mac}"));
    for router in ["10.0.2.1", "fd10:0:2::1"] {
        guest.ip(&format!("neigh replace {router} lladdr 02:00:00:00:00:00 dev nic"));
    }
}

fn send(namespace: &Namespace, from: &str, to: &str, text: &str) {
    datagrams::send(namespace, "nic", from, to, text);
}

async fn a_guest_sends_in_its_own_name_alone() {
    let pod = Pod::new();
    pod.set_up(&plan(Vec::new())).await.unwrap();
    // Whatever comes is not lost for want of a way back.
    pod.peer.ip("route add 10.0.2.0/24 via 172.30.0.2");
    let guest = pod.guest();
    with_card(&guest, &mac().to_string());
    let to_all = Server::start(&pod.peer, 80);
    let listener = pod.peer.inside(|| UdpSocket::bind("[::]:9").unwrap());
    let of_pod = pod.namespace.inside(|| UdpSocket::bind("[::]:9").unwrap());
    // Every link is up, and everyone knows everyone, before anything is sent that nobody sends again.
    let all_reached = || {
        for to in ["172.30.0.1:80", "[fd99::1]:80"] {
            assert!(reaches(&guest, to), "{to}");
            to_all.answered();
        }
    };
    all_reached();
    // A neighbour's, the pod's own, its router's, and nobody's.
    let forged4 = ["10.0.2.77", "172.30.0.9", "172.30.0.2", "10.0.2.1"];
    let forged6 = ["fd10:0:2::77", "fd99::9", "fd99::2", "fd10:0:2::1"];
    for (forged, to) in forged4.map(|it| (it, "172.30.0.1:9")).into_iter().chain(forged6.map(|it| (it, "[fd99::1]:9")))
    {
        guest.ip(&format!("addr add {forged} dev nic {}", if forged.contains(':') { "nodad" } else { "" }));
        send(&guest, forged, to, forged);
        guest.ip(&format!("addr del {forged} dev nic"));
    }
    guest.ip("addr add fe80::ff:fe00:0/64 dev nic nodad");
    send(&guest, "fe80::ff:fe00:0", "[fd10:0:2::1]:9", "the router's own");
    guest.ip("addr del fe80::ff:fe00:0/64 dev nic");
    with_card(&guest, "02:00:00:00:00:99");
    for (own, to) in [("10.0.2.2", "172.30.0.1:9"), ("fd10:0:2::2", "[fd99::1]:9")] {
        send(&guest, own, to, "another card");
    }
    with_card(&guest, &mac().to_string());
    // What was sent before this has been received or lost when it is answered.
    all_reached();
    let own = ["10.0.2.2", "fd10:0:2::2"];
    let all = heard_with(&listener, own, || {
        send(&guest, own[0], "172.30.0.1:9", own[0]);
        send(&guest, own[1], "[fd99::1]:9", own[1]);
    });
    assert_eq!(all, own.map(str::to_owned).into());
    assert_eq!(heard(&of_pod), BTreeSet::new());

    // Nor does it tell others where an address is that it was not given.
    guest.ip("neigh del 10.0.2.1 dev nic");
    guest.ip("addr add 10.0.2.77/24 dev nic");
    send(&guest, "10.0.2.77", "10.0.2.1:9", "who is my router");
    // Nobody answers that; a guest that is slow finds its router only when it asks anew.
    until("its own name finds the router", || reaches(&guest, "172.30.0.1:80"));
    let neighbours = pod.namespace.ip("neigh show dev k6t-eth0");
    assert!(neighbours.contains("10.0.2.2 ") && !neighbours.contains("10.0.2.77"), "{neighbours}");
}

async fn what_a_pod_keeps_to_itself_its_guest_does_not_reach() {
    let pod = Pod::new();
    // All other ports of the pod are its own.
    pod.set_up(&plan(vec![Port { protocol: Protocol::Tcp, port: 80 }])).await.unwrap();
    let guest = pod.guest();
    with_card(&guest, &mac().to_string());
    let outer = Server::start(&pod.peer, 80);
    let own = pod.namespace.inside(|| UdpSocket::bind("127.0.0.1:9").unwrap());
    guest.ip("addr del 127.0.0.1/8 dev lo");
    guest.ip("route add 127.0.0.0/8 via 10.0.2.1");
    send(&guest, "10.0.2.2", "127.0.0.1:9", "from the guest");
    assert!(reaches(&guest, "172.30.0.1:80"));
    outer.answered();
    let all = heard_with(&own, ["from the pod"], || send(&pod.namespace, "127.0.0.1", "127.0.0.1:9", "from the pod"));
    assert_eq!(all, ["from the pod".to_owned()].into());
}
