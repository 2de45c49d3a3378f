//! virt-handler on the embedded API server, with launchers that have no guest.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "handler/bench.rs"]
mod bench;
#[path = "handler/door.rs"]
mod door;
#[path = "handler/launcher.rs"]
mod launcher;
#[path = "handler/roles.rs"]
mod roles;
#[path = "handler/sync.rs"]
mod sync;
#[path = "handler/trouble.rs"]
mod trouble;

use api::conditions::{ConditionStatus, find};
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::core::v1::Node;
use kube::api::DeleteParams;
use launcher_api::rpc::{End, GuestInfo, Interface, OperatingSystem, State};
use serde_json::json;
use virt_handler::Settings;

use bench::{Bench, NODE, seconds};

fn patch(name: &str) -> String {
    format!("PATCH /apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/{name}")
}

/// A condition as status and reason.
fn condition(vmi: &VirtualMachineInstance, kind: &str) -> Option<(bool, String)> {
    let listed = vmi.status.as_ref()?.conditions.as_deref();
    let one = find(listed, kind)?;
    Some((one.status == ConditionStatus::True, one.reason.clone().unwrap_or_default()))
}

#[tokio::test(start_paused = true)]
async fn an_instance_runs_by_one_write() {
    let bench = Bench::new().await;
    let _handler = bench.handler().await;
    let launcher = bench.launcher("pod-a");
    bench.instance("a", NODE, &json!({})).await;
    bench.instance("elsewhere", "other", &json!({})).await;
    seconds(2).await;
    assert_eq!(launcher.calls(), ["sync a"]);
    let vmi = bench.vmi("a").await;
    assert_eq!(vmi.phase().to_string(), "Running");
    assert_eq!(condition(&vmi, "Ready"), Some((true, String::new())));
    assert_eq!(condition(&vmi, "LiveMigratable"), Some((false, "MigrationNotSupported".into())));
    let status = vmi.status.unwrap();
    let interface = &status.interfaces.unwrap()[0];
    assert_eq!(interface.mac.as_deref(), Some("02:00:00:00:00:05"));
    assert_eq!(interface.ip_address.as_deref(), Some("10.88.0.5"));
    assert_eq!(interface.info_source.as_deref(), Some("domain"));
    assert_eq!(status.volume_status.unwrap()[0].target, "vda");
    assert_eq!(status.phase_transition_timestamps.unwrap().len(), 1);
    assert_eq!(bench.events("a").await, ["Created", "Started"]);
    seconds(300).await;
    assert_eq!(bench.writes(), [patch("a")], "nothing is written at rest");
    assert_eq!(launcher.calls(), [""; 0]);
    assert_eq!(bench.phase("elsewhere").await, "Scheduled");
}

#[tokio::test(start_paused = true)]
async fn an_instance_is_known_to_its_network_by_its_vm_and_not_by_what_it_says() {
    let bench = Bench::new().await;
    let _handler = bench.handler().await;
    let (own, other) = (bench.vm("own").await, bench.vm("other").await);
    let owner = |name: &str, uid: &str| {
        let vm = json!({ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": name, "uid": uid, "controller": true });
        json!({ "metadata": { "ownerReferences": [vm] } })
    };
    let cases = [
        ("own", owner("own", &own), Some(&own)),
        // Another's UID, another's name and UID, one that nobody has.
        ("a", owner("a", &other), None),
        ("b", owner("other", &other), None),
        ("other", owner("other", "0"), None),
        ("alone", json!({}), None),
    ];
    for (name, change, vm) in cases {
        let _launcher = bench.launcher(&format!("pod-{name}"));
        bench.instance(name, NODE, &change).await;
        seconds(2).await;
        let itself = bench.vmi(name).await.metadata.uid.unwrap();
        assert_eq!(bench.network.made.lock().unwrap().get(name), Some(vm.unwrap_or(&itself)), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_says_each_minute_that_it_is_there() {
    let bench = Bench::new().await;
    let handler = bench.handler_with(Settings { withdraw: true, ..bench.settings() }).await;
    let heard = |node: &Node| node.metadata.annotations.as_ref().unwrap()["kubevirt.io/heartbeat"].clone();
    let schedulable = |node: &Node| node.metadata.labels.as_ref().unwrap()["kubevirt.io/schedulable"].clone();
    let first = bench.node().await;
    assert_eq!(schedulable(&first), "true");
    seconds(75).await;
    let second = bench.node().await;
    assert_ne!(heard(&first), heard(&second));
    handler.stop().await;
    assert_eq!(schedulable(&bench.node().await), "false", "it was told to withdraw at the end");
}

#[tokio::test]
#[ignore = "needs QEMU: make test"]
async fn a_node_is_labelled_with_what_its_qemu_offers() {
    let bench = Bench::new().await;
    let handler = bench.handler_with(Settings { labels: true, ..bench.settings() }).await;
    bench.node_has("machine-type.node.kubevirt.io/q35").await;
    let labels = bench.node().await.metadata.labels.unwrap();
    assert_eq!(labels["kubevirt.io/schedulable"], "true");
    assert!(labels.keys().any(|name| name.starts_with("cpu-model.node.kubevirt.io/")));
    handler.stop().await;
    assert_eq!(bench.node().await.metadata.labels.unwrap()["kubevirt.io/schedulable"], "true", "a restart is not seen");
}

#[tokio::test(start_paused = true)]
async fn a_launcher_that_comes_late_is_awaited() {
    let bench = Bench::new().await;
    let _handler = bench.handler().await;
    bench.instance("a", NODE, &json!({})).await;
    seconds(100).await;
    assert_eq!(bench.phase("a").await, "Scheduled");
    let _launcher = bench.launcher("pod-a");
    seconds(1).await;
    assert_eq!(bench.phase("a").await, "Running");
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_powers_off_succeeds_and_its_launcher_is_let_go() {
    let bench = Bench::new().await;
    let _handler = bench.handler().await;
    let launcher = bench.launcher("pod-a");
    bench.instance("a", NODE, &json!({})).await;
    seconds(2).await;
    assert_eq!(bench.records(), 1);
    launcher.tell(State::Ended, End::PoweredOff);
    seconds(2).await;
    assert_eq!(bench.phase("a").await, "Succeeded");
    assert_eq!(launcher.calls(), ["sync a", "delete"]);
    assert_eq!(bench.records(), 0);
    assert_eq!(bench.writes(), [patch("a"), patch("a")]);
    assert_eq!(bench.events("a").await, ["Created", "Started", "Stopped"]);
    seconds(60).await;
    assert_eq!((bench.writes().len(), launcher.calls().len()), (0, 0), "and that is all");
}

#[tokio::test(start_paused = true)]
async fn guests_end_as_their_domains_say() {
    let bench = Bench::new().await;
    let _handler = bench.handler().await;
    for (name, end, phase) in [
        ("crashed", End::Crashed, "Failed"),
        ("panicked", End::Panicked, "Failed"),
        ("memory", End::OutOfMemory, "Failed"),
        ("rebooted", End::Rebooted, "Succeeded"),
        ("unstarted", End::FailedToStart, "Failed"),
    ] {
        let launcher = bench.launcher(&format!("pod-{name}"));
        bench.instance(name, NODE, &json!({})).await;
        seconds(2).await;
        launcher.tell(State::Ended, end);
        seconds(2).await;
        assert_eq!(bench.phase(name).await, phase, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_instance_is_shut_down_within_its_grace_period() {
    let bench = Bench::new().await;
    let _handler = bench.handler().await;
    let launcher = bench.launcher("pod-a");
    bench.instance("a", NODE, &json!({ "spec": { "terminationGracePeriodSeconds": 40 } })).await;
    seconds(2).await;
    launcher.calls();
    bench.vmis().delete("a", &DeleteParams::default()).await.unwrap();
    seconds(2).await;
    assert_eq!(launcher.calls(), ["shutdown 40", "delete"]);
    let vmi = bench.vmi("a").await;
    assert_eq!(vmi.phase().to_string(), "Succeeded");
    assert_eq!(vmi.metadata.finalizers.unwrap(), ["kubevirt.io/foregroundDeleteVirtualMachine"]);
    assert_eq!(bench.events("a").await, ["Created", "Started", "ShuttingDown", "Stopped"]);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_does_not_react_is_killed_when_its_time_is_over() {
    let bench = Bench::new().await;
    let _handler = bench.handler().await;
    let launcher = bench.launcher("pod-a");
    launcher.disobey();
    bench.instance("a", NODE, &json!({ "spec": { "terminationGracePeriodSeconds": 12 } })).await;
    seconds(2).await;
    launcher.calls();
    bench.vmis().delete("a", &DeleteParams::default()).await.unwrap();
    seconds(11).await;
    assert_eq!(launcher.calls(), ["shutdown 12", "shutdown 7", "shutdown 2"]);
    assert_eq!(bench.phase("a").await, "Running");
    seconds(3).await;
    assert_eq!(launcher.calls(), ["kill", "delete"]);
    assert_eq!(bench.phase("a").await, "Failed");
}

#[tokio::test(start_paused = true)]
async fn without_a_grace_period_a_guest_is_killed_at_once_and_that_is_well() {
    let bench = Bench::new().await;
    let _handler = bench.handler().await;
    let launcher = bench.launcher("pod-a");
    bench.instance("a", NODE, &json!({ "spec": { "terminationGracePeriodSeconds": 0 } })).await;
    seconds(2).await;
    bench.vmis().delete("a", &DeleteParams::default()).await.unwrap();
    seconds(2).await;
    assert_eq!(launcher.calls(), ["sync a", "kill", "delete"]);
    assert_eq!(bench.phase("a").await, "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_guests_are_adopted_and_nothing_is_written() {
    let bench = Bench::new().await;
    let handler = bench.handler().await;
    let launcher = bench.launcher("pod-a");
    bench.instance("a", NODE, &json!({})).await;
    seconds(2).await;
    drop(handler);
    seconds(30).await;
    bench.writes();
    launcher.calls();
    let _handler = bench.handler().await;
    seconds(30).await;
    assert_eq!((launcher.calls().len(), bench.writes().len()), (0, 0));
    launcher.tell(State::PausedByUser, End::Unspecified);
    seconds(2).await;
    assert_eq!(condition(&bench.vmi("a").await, "Paused"), Some((true, "PausedByUser".into())));
    assert_eq!(bench.writes(), [patch("a")]);
    launcher.tell(State::Ended, End::PoweredOff);
    seconds(2).await;
    assert_eq!(bench.phase("a").await, "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn a_crash_between_the_start_and_its_write_loses_nothing() {
    let bench = Bench::new().await;
    let launcher = bench.launcher("pod-a");
    // Another handler has started it.
    launcher.tell(State::Running, End::Unspecified);
    bench.instance("a", NODE, &json!({})).await;
    let _handler = bench.handler().await;
    seconds(2).await;
    // Nobody has told what it was started from: it is told again, and stays what it is.
    assert_eq!(launcher.calls(), ["sync a"]);
    let vmi = bench.vmi("a").await;
    assert_eq!(vmi.phase().to_string(), "Running");
    assert!(vmi.metadata.annotations.unwrap().contains_key("orlop.dev/guest"));
    assert_eq!(vmi.status.unwrap().interfaces.unwrap()[0].ip_address.as_deref(), Some("10.88.0.5"));
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_vanished_meanwhile_is_cleaned_up() {
    let bench = Bench::new().await;
    let handler = bench.handler().await;
    let launcher = bench.launcher("pod-a");
    bench.instance("a", NODE, &json!({})).await;
    seconds(2).await;
    drop(handler);
    bench.vmis().delete("a", &DeleteParams::default()).await.unwrap();
    bench.release("a").await;
    // Another of the same name is not mistaken for it.
    let other = bench.launcher("pod-b");
    bench.instance("a", NODE, &json!({ "spec": { "hostname": "b" } })).await;
    let pods = json!({ "status": { "activePods": { "pod-a": null, "pod-b": NODE } } });
    bench.vmis().patch("a", &Default::default(), &kube::api::Patch::Merge(&pods)).await.unwrap();
    launcher.calls();
    bench.writes();
    let _handler = bench.handler().await;
    seconds(3).await;
    assert_eq!(launcher.calls(), ["shutdown 30", "delete"]);
    assert_eq!(launcher.state(), State::Ended);
    assert_eq!(other.calls(), ["sync a"]);
    assert_eq!(bench.phase("a").await, "Running");
    assert_eq!(bench.records(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_left_the_node_by_its_label_alone_is_not_touched() {
    let bench = Bench::new().await;
    let _handler = bench.handler().await;
    let launcher = bench.launcher("pod-a");
    bench.instance("a", NODE, &json!({})).await;
    seconds(2).await;
    launcher.calls();
    let label = json!({ "metadata": { "labels": { "kubevirt.io/nodeName": "other" } } });
    bench.vmis().patch("a", &Default::default(), &kube::api::Patch::Merge(&label)).await.unwrap();
    seconds(60).await;
    assert_eq!(launcher.calls(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_the_guests_agent_tells_is_in_the_status() {
    let bench = Bench::new().await;
    let _handler = bench.handler().await;
    let launcher = bench.launcher("pod-a");
    bench.instance("a", NODE, &json!({})).await;
    seconds(2).await;
    bench.writes();
    let interface = |name: &str, mac: &str, address: &str| Interface {
        name: name.into(),
        mac: mac.into(),
        addresses: vec![address.into()],
    };
    launcher.agent(GuestInfo {
        os: Some(OperatingSystem { id: "fedora".into(), ..OperatingSystem::default() }),
        interfaces: vec![
            interface("lo", "00:00:00:00:00:00", "127.0.0.1"),
            interface("enp1s0", "02:00:00:00:00:05", "10.0.2.2/24"),
            interface("docker0", "02:42:00:00:00:01", "172.17.0.1"),
        ],
        ..GuestInfo::default()
    });
    seconds(5).await;
    let vmi = bench.vmi("a").await;
    assert_eq!(condition(&vmi, "AgentConnected"), Some((true, String::new())));
    let status = vmi.status.unwrap();
    assert_eq!(status.guest_os_info.unwrap().id.as_deref(), Some("fedora"));
    let seen: Vec<_> = status
        .interfaces
        .unwrap()
        .into_iter()
        .map(|one| (one.name, one.interface_name.unwrap(), one.ip_address.unwrap(), one.info_source.unwrap()))
        .collect();
    let wanted = [
        (Some("default".to_owned()), "enp1s0", "10.88.0.5", "domain, guest-agent"),
        (None, "docker0", "172.17.0.1", "guest-agent"),
    ];
    let wanted = wanted.map(|(name, inner, address, source)| (name, inner.into(), address.into(), source.into()));
    assert_eq!(seen, wanted);
    assert!(bench.writes().len() <= 2);
    seconds(600).await;
    assert_eq!(bench.writes().len(), 0);
}
