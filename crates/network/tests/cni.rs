//! Pods' networks with the real plugins, on a machine that is a namespace of its own.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "cni/claims.rs"]
mod claims;
#[path = "support/datagrams.rs"]
mod datagrams;
#[path = "cni/guard.rs"]
mod guard;
#[path = "cni/reach.rs"]
mod reach;
#[path = "cni/sharing.rs"]
mod sharing;

use std::collections::BTreeSet;
use std::net::{IpAddr, TcpListener};
use std::path::PathBuf;

use network::cni::{Attachment, Cni, CniError, HostPort, Network, Settings};
use testkit::namespace::Namespace;
use testkit::{Harness, Need, tests};

fn main() -> std::process::ExitCode {
    Harness::default()
        .needing(&[Need::Root, Need::Program("nft"), Need::Program("iptables"), Need::Program("/usr/lib/cni/bridge")])
        .run(tests![
            pods_reach_each_other_and_leave_nothing_behind,
            reach::what_leaves_the_machine_does_so_in_its_name,
            an_identity_keeps_its_address_and_others_get_another,
            a_network_goes_as_it_was_made_and_identities_come_back_to_their_addresses,
            another_network_takes_the_place_of_one_that_has_no_pods,
            pods_are_added_at_the_same_time_and_nobody_removes_what_is_being_added,
            addresses_of_another_link_are_not_given_to_pods,
            a_pod_whose_namespace_is_gone_is_removed,
            a_link_that_is_gone_is_made_again,
            an_addition_that_was_cut_off_is_cleaned_up_or_done_again,
            a_port_of_the_machine_leads_to_a_pod_and_is_gone_with_it,
            of_an_addition_that_failed_nothing_is_left,
            what_cannot_work_is_refused_by_name,
            reach::pods_reach_of_the_machine_what_is_allowed,
            reach::a_name_server_that_pods_are_told_of_later_is_open_to_them,
            reach::the_machine_reaches_its_pods_and_hears_their_answers,
            reach::the_metadata_of_a_cloud_is_not_for_pods,
            reach::a_machine_without_ipv6_for_pods_has_no_way_around,
            guard::a_pod_sends_in_its_own_name_alone,
            guard::a_pod_does_not_tell_others_where_addresses_are_that_it_was_not_given,
            claims::addresses_follow_their_identity_from_pod_to_pod_and_back,
            claims::a_claim_that_was_cut_off_is_finished_by_the_next,
            claims::nobody_claims_what_belongs_to_another,
            sharing::agents_share_a_network_and_leave_each_other_alone,
        ])
}

const BRIDGE: &str = "pods0";

/// A machine: a namespace, and a directory for the records.
struct TestHost {
    namespace: Namespace,
    folder: tempfile::TempDir,
}

impl TestHost {
    fn new() -> Self {
        Self { namespace: Namespace::new(), folder: tempfile::tempdir().unwrap() }
    }

    fn settings(&self) -> Settings {
        Settings {
            network: Network {
                bridge: BRIDGE.to_owned(),
                subnet4: ([10, 77, 0, 0].into(), 24),
                subnet6: Some(("fd77::".parse().unwrap(), 64)),
                mtu: Some(1430),
            },
            plugins: vec!["/opt/cni/bin".into(), "/usr/lib/cni".into()],
            state: self.folder.path().join("cni"),
            node: None,
        }
    }

    fn cni(&self) -> Cni {
        Cni::new(self.settings()).unwrap()
    }

    /// Runs on the machine: everything that is started there is in its namespace.
    fn on<T: Send>(&self, work: impl AsyncFnOnce() -> T + Send) -> T {
        self.namespace.inside(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(work())
        })
    }

    /// Links, rules and settings, and the files below the directory.
    fn look(&self) -> (String, Vec<PathBuf>) {
        let script = "ip -brief link | cut -d' ' -f1; nft list ruleset 2>/dev/null; \
                      cat /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/*/accept_ra \
                          /proc/sys/net/ipv6/conf/all/forwarding";
        let files = std::fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().path());
        (self.namespace.run("sh", &["-c", script]), files.collect())
    }
}

fn pod(id: &str, namespace: &Namespace) -> Attachment {
    Attachment {
        id: id.to_owned(),
        netns: namespace.path(),
        namespace: "default".to_owned(),
        name: id.to_owned(),
        identity: None,
        host_ports: Vec::new(),
    }
}

/// Whether a connection comes about with whoever listens at a port that was never used: one that was given back may not be
/// free yet, as every program that is being started holds a copy of all sockets for a moment.
fn reaches(from: &Namespace, to: &Namespace, at: IpAddr) -> bool {
    let listener = to.inside(|| TcpListener::bind(("::", 0)).unwrap());
    from.dial((at, listener.local_addr().unwrap().port()).into()).is_some()
}

fn pods_reach_each_other_and_leave_nothing_behind() {
    let machine = TestHost::new();
    let (one, other) = (Namespace::new(), Namespace::new());
    let before = machine.look();
    let (cni, gateways) = machine.on(async || {
        let cni = machine.cni();
        cni.prepare().await.unwrap();
        (machine.cni(), cni.gateways())
    });
    assert_eq!(gateways, ["10.77.0.1".parse::<IpAddr>().unwrap(), "fd77::1".parse().unwrap()]);
    let link = machine.namespace.ip(&format!("addr show {BRIDGE}"));
    assert!(link.contains("10.77.0.1/24") && link.contains("fd77::1/64") && link.contains("mtu 1430"), "{link}");

    let (first, second) = machine.on(async || {
        let first = cni.add(&pod("one", &one)).await.unwrap();
        assert_eq!(cni.add(&pod("one", &one)).await.unwrap(), first, "asked again");
        (first, cni.add(&pod("other", &other)).await.unwrap())
    });
    assert_eq!(first, ["10.77.0.2".parse::<IpAddr>().unwrap(), "fd77::2".parse().unwrap()]);
    assert!(one.ip("addr show eth0").contains("mtu 1430"));
    for family in 0..2 {
        assert!(reaches(&one, &other, second[family]));
        assert!(reaches(&other, &one, first[family]));
        assert!(!reaches(&one, &machine.namespace, gateways[family]));
        assert!(reaches(&machine.namespace, &one, first[family]));
    }
    machine.on(async || {
        cni.retain(&BTreeSet::from(["other".to_owned()])).await.unwrap();
        cni.retain(&BTreeSet::from(["other".to_owned()])).await.unwrap();
    });
    assert!(!one.ip("link").contains("eth0"));
    assert!(reaches(&machine.namespace, &other, second[0]));
    machine.on(async || {
        cni.remove_all().await.unwrap();
        cni.remove_all().await.unwrap();
    });
    assert_eq!(machine.look(), before);
}

fn an_identity_keeps_its_address_and_others_get_another() {
    let machine = TestHost::new();
    let (one, other, third) = (Namespace::new(), Namespace::new(), Namespace::new());
    let vm = |id: &str, namespace: &Namespace| Attachment { identity: Some("vm".to_owned()), ..pod(id, namespace) };
    machine.on(async || {
        let first = machine.cni().add(&vm("first", &one)).await.unwrap();
        machine.cni().remove("first").await.unwrap();
        // Each time as a new process would: from the records alone.
        let between = machine.cni().add(&pod("between", &other)).await.unwrap();
        assert_ne!(between, first);
        assert_eq!(machine.cni().add(&vm("second", &one)).await.unwrap(), first);
        let meanwhile = machine.cni().add(&vm("third", &third)).await.unwrap();
        assert!(!first.contains(&meanwhile[0]) && !between.contains(&meanwhile[0]), "it is in use still");
    });
}

fn a_network_goes_as_it_was_made_and_identities_come_back_to_their_addresses() {
    let machine = TestHost::new();
    let (one, other) = (Namespace::new(), Namespace::new());
    let vm = |id: &str, namespace: &Namespace| Attachment { identity: Some("vm".to_owned()), ..pod(id, namespace) };
    let on_record = || Cni::on_record(machine.settings().state, machine.settings().plugins).unwrap();
    let before = machine.look().0;
    assert!(on_record().is_none());
    machine.on(async || {
        machine.cni().add(&pod("before", &other)).await.unwrap();
        let first = machine.cni().add(&vm("first", &one)).await.unwrap();
        on_record().unwrap().remove_all().await.unwrap();
        assert!(on_record().is_none());
        assert_eq!(machine.cni().add(&vm("again", &one)).await.unwrap(), first);
        on_record().unwrap().remove_all().await.unwrap();
    });
    assert_eq!(machine.look().0, before);
}

fn another_network_takes_the_place_of_one_that_has_no_pods() {
    let machine = TestHost::new();
    let one = Namespace::new();
    let mut other = machine.settings();
    other.network =
        Network { bridge: "pods1".to_owned(), subnet4: ([10, 78, 0, 0].into(), 24), ..machine.settings().network };
    let before = machine.look().0;
    machine.on(async || machine.cni().add(&pod("one", &one)).await.unwrap());
    let error = machine.on(async || Cni::new(other.clone()).unwrap().prepare().await).unwrap_err();
    assert_eq!(error.to_string(), "the network of pods0 still has running pods (1); stop them before you replace it");
    drop(one);
    machine.on(async || Cni::new(other.clone()).unwrap().prepare().await.unwrap());
    let links = machine.namespace.ip("-brief link");
    assert!(links.contains("pods1") && !links.contains("pods0"), "{links}");
    machine.on(async || Cni::new(other).unwrap().remove_all().await.unwrap());
    assert_eq!(machine.look().0, before);
}

fn pods_are_added_at_the_same_time_and_nobody_removes_what_is_being_added() {
    use std::os::unix::fs::PermissionsExt as _;
    let machine = TestHost::new();
    let folder = machine.folder.path().join("plugins");
    std::fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink("/usr/lib/cni/host-local", folder.join("host-local")).unwrap();
    // The real one, when a second pod is being added, too; if none is within a minute, none ever will be.
    let begun = machine.folder.path().join("begun");
    std::fs::create_dir(&begun).unwrap();
    let script = format!(
        "#!/bin/sh\nif [ $CNI_COMMAND = ADD ]; then touch {0}/$CNI_CONTAINERID; looks=0; \
         until [ $(ls {0} | wc -l) -ge 2 ]; do looks=$((looks + 1)); [ $looks -le 3000 ] || exit 1; sleep 0.02; done; fi\nexec /usr/lib/cni/bridge\n",
        begun.display()
    );
    std::fs::write(folder.join("bridge"), script).unwrap();
    std::fs::set_permissions(folder.join("bridge"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let namespaces: Vec<Namespace> = (0..6).map(|_| Namespace::new()).collect();
    let vm = |number: usize| Attachment {
        identity: Some(format!("vm{number}")),
        ..pod(&format!("pod{number}"), &namespaces[number])
    };
    let addresses = machine.on(async || {
        let cni = Cni::new(Settings { plugins: vec![folder], ..machine.settings() }).unwrap();
        let added = futures_util::future::join_all((0..6).map(|number| {
            let (cni, vm) = (&cni, vm(number));
            async move {
                let addresses = cni.add(&vm).await.unwrap();
                // Whoever goes takes nothing of those that come.
                if number % 3 == 0 {
                    cni.remove(&vm.id).await.unwrap();
                }
                addresses
            }
        }));
        added.await
    });
    let all: BTreeSet<IpAddr> = addresses.iter().flatten().copied().collect();
    assert_eq!(all.len(), 12, "{addresses:?}");
    for (number, own) in addresses.iter().enumerate() {
        let shown = namespaces[number].ip("addr");
        assert_eq!(number % 3 != 0, shown.contains(&format!("{}/", own[0])), "{shown}");
        assert_eq!(number % 3 != 0, reaches(&machine.namespace, &namespaces[number], own[0]));
    }
    machine.on(async || machine.cni().remove_all().await.unwrap());
}

fn addresses_of_another_link_are_not_given_to_pods() {
    let machine = TestHost::new();
    let prepare = || machine.on(async || machine.cni().prepare().await);
    machine.namespace.ip("link add other0 type bridge");
    // A part of a larger network may be the pods'.
    machine.namespace.ip("addr add 10.1.2.3/8 dev other0");
    prepare().unwrap();
    machine.on(async || machine.cni().remove_all().await.unwrap());
    for address in ["10.77.0.9/24", "10.77.0.130/32", "fd77::9/64"] {
        machine.namespace.ip(&format!("addr add {address} dev other0"));
        let before = machine.look().0;
        let error = prepare().unwrap_err().to_string();
        assert!(error.ends_with(&format!("is in use: other0 has {address}; choose another network")), "{error}");
        machine.on(async || machine.cni().remove_all().await.unwrap());
        assert_eq!(machine.look().0, before);
        machine.namespace.ip(&format!("addr del {address} dev other0"));
    }
}

fn a_pod_whose_namespace_is_gone_is_removed() {
    let machine = TestHost::new();
    machine.on(async || machine.cni().prepare().await.unwrap());
    let before = machine.look();
    let one = Namespace::new();
    machine.on(async || machine.cni().add(&pod("one", &one)).await.unwrap());
    drop(one);
    machine.on(async || {
        let cni = machine.cni();
        cni.remove("one").await.unwrap();
        cni.remove("one").await.unwrap();
        let never = pod("two", &Namespace::new());
        assert!(matches!(cni.add(&never).await, Err(CniError::Namespace { .. })));
    });
    assert_eq!(machine.look().0, before.0);
    let left = machine.settings().state.join("ipam").join(format!("orlop-{BRIDGE}"));
    let addresses = std::fs::read_dir(left)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().parse::<IpAddr>().is_ok());
    assert_eq!(addresses.count(), 0);
}

fn a_link_that_is_gone_is_made_again() {
    let machine = TestHost::new();
    let one = Namespace::new();
    machine.on(async || {
        machine.cni().add(&pod("one", &one)).await.unwrap();
        one.ip("link del eth0");
        let addresses = machine.cni().add(&pod("one", &one)).await.unwrap();
        assert!(one.ip("addr show eth0").contains(&addresses[0].to_string()));
    });
}

fn an_addition_that_was_cut_off_is_cleaned_up_or_done_again() {
    let machine = TestHost::new();
    let (one, other) = (Namespace::new(), Namespace::new());
    machine.on(async || machine.cni().prepare().await.unwrap());
    let before = machine.look().0;
    let record = machine.settings().state.join("pods/one.json");
    let cut_off = |machine: &TestHost| {
        machine.on(async || machine.cni().add(&pod("one", &one)).await.unwrap());
        // As if the process had ended before it heard from the plugin.
        let text = std::fs::read_to_string(&record).unwrap();
        let mut known: serde_json::Value = serde_json::from_str(&text).unwrap();
        known["progress"] = "Adding".into();
        std::fs::write(&record, known.to_string()).unwrap();
    };
    cut_off(&machine);
    machine.on(async || {
        let cni = machine.cni();
        cni.add(&pod("other", &other)).await.unwrap();
        let addresses = cni.add(&pod("one", &one)).await.unwrap();
        assert!(one.ip("addr show eth0").contains(&addresses[0].to_string()));
        cni.remove("one").await.unwrap();
    });
    cut_off(&machine);
    machine.on(async || {
        let cni = machine.cni();
        cni.remove("one").await.unwrap();
        cni.remove("other").await.unwrap();
    });
    assert_eq!(machine.look().0, before);
    assert!(!record.exists());
}

fn a_port_of_the_machine_leads_to_a_pod_and_is_gone_with_it() {
    let machine = TestHost::new();
    let (world, one) = (Namespace::new(), Namespace::new());
    machine.namespace.connect("uplink", &world, "nic");
    machine.namespace.ip("addr add 198.51.100.1/24 dev uplink");
    world.ip("addr add 198.51.100.2/24 dev nic");
    machine.on(async || machine.cni().prepare().await.unwrap());
    let before = machine.look().0;
    let host_ports = vec![HostPort { host_ip: None, host_port: 8080, container_port: 80, protocol: "TCP".to_owned() }];
    let attachment = Attachment { host_ports, ..pod("one", &one) };
    machine.on(async || machine.cni().add(&attachment).await.unwrap());
    let _listener = one.inside(|| TcpListener::bind(("::", 80)).unwrap());
    assert!(world.dial("198.51.100.1:8080".parse().unwrap()).is_some());
    machine.on(async || machine.cni().remove("one").await.unwrap());
    assert_eq!(machine.look().0, before);
}

fn of_an_addition_that_failed_nothing_is_left() {
    let machine = TestHost::new();
    let one = Namespace::new();
    machine.on(async || machine.cni().prepare().await.unwrap());
    let before = machine.look().0;
    one.ip("link add eth0 type veth peer name other");
    machine.on(async || {
        let cni = machine.cni();
        assert!(matches!(cni.add(&pod("one", &one)).await, Err(CniError::Plugin(_))));
        // A plugin that only some pods need is noticed when the first one comes.
        let folder = machine.folder.path().join("plugins");
        std::fs::create_dir(&folder).unwrap();
        for name in ["bridge", "host-local"] {
            std::os::unix::fs::symlink(format!("/usr/lib/cni/{name}"), folder.join(name)).unwrap();
        }
        let few = Cni::new(Settings { plugins: vec![folder], ..machine.settings() }).unwrap();
        let port = HostPort { host_ip: None, host_port: 1, container_port: 1, protocol: "UDP".to_owned() };
        let two = Namespace::new();
        let error = few.add(&Attachment { host_ports: vec![port], ..pod("two", &two) }).await.unwrap_err();
        assert!(error.to_string().starts_with("CNI plugin portmap was not found"), "{error}");
    });
    assert_eq!(machine.look().0, before);
    let records = std::fs::read_dir(machine.settings().state.join("pods")).unwrap();
    assert_eq!(records.count(), 0);
}

fn what_cannot_work_is_refused_by_name() {
    let machine = TestHost::new();
    let error = |settings| Cni::new(settings).unwrap_err().to_string();
    let missing = Settings { plugins: vec![machine.folder.path().to_owned()], ..machine.settings() };
    assert!(error(missing).starts_with("CNI plugin bridge was not found in "));
    let other = |change: fn(&mut Network)| {
        let mut settings = machine.settings();
        change(&mut settings.network);
        settings
    };
    let narrow = other(|network| network.subnet4 = ([10, 0, 0, 0].into(), 31));
    assert_eq!(error(narrow), "10.0.0.0/31 is not a valid network, or is too small for pods");
    assert!(error(other(|network| network.bridge = "much-too-long-a-name".to_owned())).contains("bridge"));
    let wrong = Attachment { id: "../one".to_owned(), ..pod("one", &machine.namespace) };
    assert!(matches!(machine.on(async || machine.cni().add(&wrong).await), Err(CniError::Id(_))));
}
