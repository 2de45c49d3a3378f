//! One network for the agents of several nodes, each a process of its own.

use std::collections::BTreeSet;
use std::net::IpAddr;

use futures_util::future::join_all;
use network::cni::{Cni, Service, Settings};
use network::guest_network::Protocol;
use testkit::namespace::Namespace;

use super::{TestHost, pod, reaches};

/// As the agent of a node has it; without a name, as whoever has no pods.
fn of_node(machine: &TestHost, node: &str) -> Cni {
    Cni::new(Settings { node: Some(node.to_owned()), ..machine.settings() }).unwrap()
}

/// Each has read the records before the others changed them, as processes have that were started at the same time.
pub(super) fn agents_share_a_network_and_leave_each_other_alone() {
    let machine = TestHost::new();
    let before = machine.look().0;
    let pods: Vec<Namespace> = (0..6).map(|_| Namespace::new()).collect();
    let (control, one, other) = machine.on(async || {
        let control = of_node(&machine, "");
        control.prepare().await.unwrap();
        (control, of_node(&machine, "one"), of_node(&machine, "other"))
    });
    let addresses: Vec<Vec<IpAddr>> = machine.on(async || {
        let added = pods.iter().enumerate().map(|(number, namespace)| {
            let cni = if number % 2 == 0 { &one } else { &other };
            let pod = pod(&format!("pod{number}"), namespace);
            async move { cni.add(&pod).await.unwrap() }
        });
        join_all(added).await
    });
    let all: BTreeSet<&IpAddr> = addresses.iter().flatten().collect();
    assert_eq!(all.len(), addresses.iter().flatten().count(), "an address was given twice: {addresses:?}");

    // A node that has lost all its pods, and one whose pod goes: those of the other node stay.
    machine.on(async || {
        one.retain(&BTreeSet::new()).await.unwrap();
        other.remove("pod5").await.unwrap();
    });
    for (number, namespace) in pods.iter().enumerate() {
        let is_attached = namespace.ip("link").contains("eth0");
        assert_eq!(is_attached, [1, 3].contains(&number), "pod{number}");
    }
    assert!(reaches(&pods[1], &pods[3], addresses[3][0]));

    // What one process was asked to open stays open, whichever of them makes the rules next.
    let gateway = control.gateways()[0];
    let listener = machine.namespace.inside(|| std::net::TcpListener::bind(("::", 0)).unwrap());
    let port = listener.local_addr().unwrap().port();
    let dials = || pods[1].dial((gateway, port).into()).is_some();
    assert!(!dials());
    machine.on(async || {
        let service = Service { address: Some(gateway), protocol: Protocol::Tcp, port };
        control.let_reach(vec![service]).await.unwrap();
        of_node(&machine, "one").prepare().await.unwrap();
        one.let_ask(&["10.9.9.9".parse().unwrap()]).await.unwrap();
    });
    assert!(dials());

    machine.on(async || {
        let Settings { state, plugins, .. } = machine.settings();
        Cni::on_record(state, plugins).unwrap().unwrap().remove_all().await.unwrap();
    });
    assert_eq!(machine.look().0, before);
}
