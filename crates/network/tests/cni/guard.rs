//! What pods send: frames in their own name, whatever a container makes.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

use network::cni::Cni;
use socket2::{Domain, Protocol, Socket, Type};
use testkit::namespace::Namespace;
use testkit::waiting::until;

use super::datagrams::{heard, heard_with, send};
use super::{BRIDGE, TestHost, pod, reaches};

/// A machine with a pod that is up to no good, one that it is after, and one in whose name it would like to be.
struct Scene {
    machine: TestHost,
    cni: Cni,
    hostile: Namespace,
    victim: Namespace,
    other: Namespace,
    /// IPv4 and IPv6 each.
    of_hostile: Vec<IpAddr>,
    of_victim: Vec<IpAddr>,
    of_other: Vec<IpAddr>,
}

impl Scene {
    fn new() -> Self {
        let machine = TestHost::new();
        let [hostile, victim, other] = [(); 3].map(|()| Namespace::new());
        let cni = machine.cni();
        let add = async |id: &str, namespace: &Namespace| cni.add(&pod(id, namespace)).await.unwrap();
        let (of_hostile, of_victim, of_other) = machine
            .on(async || (add("hostile", &hostile).await, add("victim", &victim).await, add("other", &other).await));
        let scene = Self { machine, cni, hostile, victim, other, of_hostile, of_victim, of_other };
        scene.all_reached();
        scene
    }

    /// Everyone knows everyone; and what was sent before has been received or lost.
    fn all_reached(&self) {
        for family in 0..2 {
            assert!(reaches(&self.hostile, &self.victim, self.of_victim[family]));
            assert!(reaches(&self.victim, &self.other, self.of_other[family]));
        }
    }

    /// Sends from an address that the hostile pod was not given.
    fn forge(&self, address: &str) {
        let is_six = address.contains(':');
        self.hostile.ip(&format!("addr add {address} dev eth0 {}", if is_six { "nodad" } else { "" }));
        self.say(address, self.of_victim[usize::from(is_six)], address);
        self.hostile.ip(&format!("addr del {address} dev eth0"));
    }

    fn say(&self, from: &str, to: IpAddr, text: &str) {
        send(&self.hostile, "eth0", from, &SocketAddr::new(to, 9).to_string(), text);
    }

    /// Of all that comes to the victim, what the hostile pod says in its own name is everything.
    fn is_heard_in_its_own_name_alone(&self, listener: &UdpSocket) {
        self.all_reached();
        let own: Vec<String> = self.of_hostile.iter().map(ToString::to_string).collect();
        let all = heard_with(listener, [&own[0], &own[1]], || {
            for (from, to) in self.of_hostile.iter().zip(&self.of_victim) {
                self.say(&from.to_string(), *to, &from.to_string());
            }
        });
        assert_eq!(all, own.into_iter().collect());
    }

    /// What the victim takes for the other pod's Ethernet address.
    fn believed(&self, family: usize) -> String {
        let line = self.victim.ip(&format!("neigh show {} dev eth0", self.of_other[family]));
        line.split_whitespace().skip_while(|word| *word != "lladdr").nth(1).unwrap_or_default().to_owned()
    }
}

fn mac(namespace: &Namespace) -> String {
    let line = namespace.ip("-brief link show eth0");
    line.split_whitespace().nth(2).unwrap().to_owned()
}

fn local(namespace: &Namespace) -> Ipv6Addr {
    let lines = namespace.ip("-6 addr show dev eth0 scope link");
    let address = lines.split_whitespace().find(|word| word.starts_with("fe80")).unwrap();
    address.split('/').next().unwrap().parse().unwrap()
}

/// Sends a message of the protocol by which neighbours and routers are found.
fn discover(namespace: &Namespace, from: Ipv6Addr, to: Ipv6Addr, message: &[u8]) {
    let index = namespace.ip("link show eth0").split(':').next().unwrap().trim().parse().unwrap();
    namespace.inside(|| {
        let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)).unwrap();
        socket.set_unicast_hops_v6(255).unwrap();
        socket.bind(&SocketAddrV6::new(from, 0, 0, index).into()).unwrap();
        socket.send_to(message, &SocketAddrV6::new(to, 0, 0, index).into()).unwrap();
    });
}

fn six(address: IpAddr) -> Ipv6Addr {
    let IpAddr::V6(address) = address else { panic!("{address} is of the other family") };
    address
}

pub(crate) fn a_pod_sends_in_its_own_name_alone() {
    let scene = Scene::new();
    let listener = scene.victim.inside(|| UdpSocket::bind("[::]:9").unwrap());
    let forge_all = || {
        for address in ["10.77.0.1", "10.77.0.99", "192.0.2.1", "fd77::1", "fd77::99"] {
            scene.forge(address);
        }
        scene.of_other.iter().for_each(|address| scene.forge(&address.to_string()));
    };
    forge_all();
    scene.forge("fe80::99");
    scene.is_heard_in_its_own_name_alone(&listener);

    let (own, of_victim) = (mac(&scene.hostile), mac(&scene.victim));
    for (card, text) in [(mac(&scene.other).as_str(), "the other's card"), ("02:00:00:00:00:99", "nobody's card")] {
        scene.hostile.ip(&format!("link set eth0 address {card}"));
        for (from, to) in scene.of_hostile.iter().zip(&scene.of_victim) {
            scene.hostile.ip(&format!("neigh replace {to} lladdr {of_victim} dev eth0"));
            scene.say(&from.to_string(), *to, text);
        }
    }
    scene.hostile.ip(&format!("link set eth0 address {own}"));
    scene.is_heard_in_its_own_name_alone(&listener);

    // The same of the next process, which knows pods from their records; also from those of an earlier version.
    for forget in [false, true] {
        if forget {
            let path = scene.machine.settings().state.join("pods/hostile.json");
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.contains(&own));
            std::fs::write(&path, text.replace(&format!("\"{own}\""), "null")).unwrap();
        }
        scene.machine.on(async || scene.machine.cni().prepare().await.unwrap());
        forge_all();
        scene.is_heard_in_its_own_name_alone(&listener);
    }
    assert_eq!(scene.cni.forgeable(), None);
    let rules = || scene.machine.namespace.run("nft", &["list", "table", "bridge", &format!("orlop-{BRIDGE}")]);
    let before = rules().matches("jump from-").count();
    scene.machine.on(async || scene.cni.remove("hostile").await.unwrap());
    assert_eq!((before, rules().matches("jump from-").count()), (3, 2));
    assert_eq!(rules().matches("chain from-").count(), 2);
    assert_eq!(heard(&listener), Default::default());
}

pub(crate) fn a_pod_does_not_tell_others_where_addresses_are_that_it_was_not_given() {
    let scene = Scene::new();
    let (of_hostile, of_other) = (mac(&scene.hostile), mac(&scene.other));
    assert_eq!([scene.believed(0), scene.believed(1)], [of_other.clone(), of_other.clone()]);
    // It asks in the other's name, which those who are asked take note of.
    scene.hostile.ip("neigh flush dev eth0");
    scene.of_other.iter().for_each(|address| scene.forge(&address.to_string()));
    // It answers in its own name what nobody has asked.
    let mut answer = vec![136, 0, 0, 0, 0x60, 0, 0, 0];
    answer.extend(six(scene.of_other[1]).octets());
    answer.extend([2, 1]);
    answer.extend(of_hostile.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()));
    discover(&scene.hostile, six(scene.of_hostile[1]), six(scene.of_victim[1]), &answer);
    // It calls itself a router.
    let router = [134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    discover(&scene.hostile, local(&scene.hostile), "ff02::1".parse().unwrap(), &router);
    // Nobody answers what it asks in the other's name: it finds the victim only when it asks anew.
    for to in &scene.of_victim {
        until("its own name finds the victim", || reaches(&scene.hostile, &scene.victim, *to));
    }
    assert_eq!([scene.believed(0), scene.believed(1)], [of_other.clone(), of_other]);
    let ways = scene.victim.ip("-6 route show default");
    assert!(!ways.contains("proto ra"), "{ways}");
}
