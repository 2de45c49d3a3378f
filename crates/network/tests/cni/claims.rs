//! Addresses that go along with their identity from one pod to another.

use std::net::{IpAddr, TcpListener, TcpStream};

use network::cni::{Attachment, Cni, CniError, Settings};
use testkit::namespace::Namespace;

use super::{TestHost, pod, reaches};

fn of_vm(id: &str, namespace: &Namespace) -> Attachment {
    Attachment { identity: Some("vm".to_owned()), ..pod(id, namespace) }
}

/// As the agents of two nodes have it.
fn of_node(machine: &TestHost, node: &str) -> Cni {
    Cni::new(Settings { node: Some(node.to_owned()), ..machine.settings() }).unwrap()
}

/// A listener in a pod, on every address that it may have.
fn listen(pod: &Namespace) -> TcpListener {
    pod.inside(|| TcpListener::bind(("::", 0)).unwrap())
}

/// Who takes a connection to an address: each listens at a port of the same number.
fn answers(from: &Namespace, at: IpAddr, (one, other): (&Namespace, &Namespace)) -> Option<&'static str> {
    let listener = listen(one);
    let port = listener.local_addr().unwrap().port();
    let second = other.inside(|| TcpListener::bind(("::", port)).unwrap());
    let _stream: TcpStream = from.dial((at, port).into())?;
    listener.set_nonblocking(true).unwrap();
    second.set_nonblocking(true).unwrap();
    match (listener.accept().is_ok(), second.accept().is_ok()) {
        (true, false) => Some("one"),
        (false, true) => Some("other"),
        both => panic!("{both:?}"),
    }
}

fn ethernet(pod: &Namespace) -> String {
    pod.run("cat", &["/sys/class/net/eth0/address"])
}

pub(super) fn addresses_follow_their_identity_from_pod_to_pod_and_back() {
    let machine = TestHost::new();
    let (one, other, neighbour) = (Namespace::new(), Namespace::new(), Namespace::new());
    let (left, right, addresses, meanwhile) = machine.on(async || {
        let (left, right) = (of_node(&machine, "left"), of_node(&machine, "right"));
        left.prepare().await.unwrap();
        let addresses = left.add(&of_vm("one", &one)).await.unwrap();
        let meanwhile = right.add(&of_vm("other", &other)).await.unwrap();
        left.add(&pod("neighbour", &neighbour)).await.unwrap();
        (left, right, addresses, meanwhile)
    });
    assert!(meanwhile.iter().all(|address| !addresses.contains(address)), "{meanwhile:?}");
    let mac = ethernet(&one);
    let asked = [&neighbour, &machine.namespace];
    let both = (&one, &other);
    for from in asked {
        addresses.iter().for_each(|at| assert_eq!(answers(from, *at, both), Some("one"), "{at}"));
        meanwhile.iter().for_each(|at| assert_eq!(answers(from, *at, both), Some("other"), "{at}"));
    }

    // The neighbour knows by now at which Ethernet address each of them is.
    let claimed = machine.on(async || right.claim("other").await.unwrap());
    assert_eq!(claimed, addresses);
    assert_eq!(right.claimed().borrow().get("other"), Some(&addresses));
    assert_eq!(ethernet(&other), mac, "the Ethernet address comes along");
    for from in asked {
        addresses.iter().for_each(|at| assert_eq!(answers(from, *at, both), Some("other"), "{at}"));
    }
    assert!(!one.ip("addr show eth0").contains("inet "), "the first has lost them");
    for gateway in left.gateways() {
        let way = other.run("ip", &["route", "get", &gateway.to_string()]);
        assert!(way.contains("dev eth0"), "{way}");
    }
    let ways = other.ip("route") + &other.ip("-6 route");
    assert_eq!(ways.matches("default via").count(), 2, "{ways}");
    machine.on(async || assert_eq!(right.claim("other").await.unwrap(), addresses, "asked again"));

    // And back.
    machine.on(async || assert_eq!(left.claim("one").await.unwrap(), addresses));
    for from in asked {
        addresses.iter().for_each(|at| assert_eq!(answers(from, *at, both), Some("one"), "{at}"));
    }

    // The one that lost them goes, and takes nothing along.
    machine.on(async || right.remove("other").await.unwrap());
    assert!(addresses.iter().all(|at| reaches(&neighbour, &one, *at)));
    let third = Namespace::new();
    let given = machine.on(async || right.add(&of_vm("third", &third)).await.unwrap());
    assert!(given.iter().all(|address| !addresses.contains(address)), "the address is in use: {given:?}");
}

pub(super) fn a_claim_that_was_cut_off_is_finished_by_the_next() {
    let machine = TestHost::new();
    let (one, other, neighbour) = (Namespace::new(), Namespace::new(), Namespace::new());
    let addresses = machine.on(async || {
        let cni = machine.cni();
        let addresses = cni.add(&of_vm("one", &one)).await.unwrap();
        cni.add(&of_vm("other", &other)).await.unwrap();
        cni.add(&pod("neighbour", &neighbour)).await.unwrap();
        addresses
    });
    let mac = ethernet(&one);
    // As it is after the first of both records was written, and nothing else.
    let record = machine.settings().state.join("pods/one.json");
    let text = std::fs::read_to_string(&record).unwrap();
    let mut written: serde_json::Value = serde_json::from_str(&text).unwrap();
    written["addresses"] = serde_json::json!([]);
    std::fs::write(&record, written.to_string()).unwrap();

    let cni = machine.cni();
    machine.on(async || assert_eq!(cni.claim("other").await.unwrap(), addresses));
    assert_eq!(ethernet(&other), mac);
    addresses.iter().for_each(|at| assert_eq!(answers(&neighbour, *at, (&one, &other)), Some("other"), "{at}"));

    // The one that had them goes before the other asks.
    machine.on(async || {
        cni.claim("one").await.unwrap();
        cni.remove("one").await.unwrap();
        assert_eq!(cni.claim("other").await.unwrap(), addresses);
    });
    assert!(addresses.iter().all(|at| reaches(&neighbour, &other, *at)));
}

pub(super) fn nobody_claims_what_belongs_to_another() {
    let machine = TestHost::new();
    let (one, other) = (Namespace::new(), Namespace::new());
    machine.on(async || {
        let cni = machine.cni();
        let own = cni.add(&pod("one", &one)).await.unwrap();
        assert_eq!(cni.claim("one").await.unwrap(), own, "without an identity there is nothing to claim");
        cni.add(&of_vm("other", &other)).await.unwrap();
        let unknown = cni.claim("unknown").await;
        assert!(matches!(unknown, Err(CniError::NotConnected(_))), "{unknown:?}");
    });
}
