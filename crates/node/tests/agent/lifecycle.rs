//! From binding to the end.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use tokio::time::sleep;

use crate::bench::{Bench, NODE, condition, is_ready, phase, simple, status, waiting};

#[tokio::test(start_paused = true)]
async fn a_pod_may_ask_the_name_servers_that_it_is_told_of() {
    let bench = Bench::new().await;
    for (name, server) in [("a", "192.0.2.53"), ("b", "2001:db8::53")] {
        std::fs::write(bench.root().join("resolv.conf"), format!("nameserver {server}\nnameserver 127.0.0.53\n"))
            .unwrap();
        bench.create(name, simple()).await;
        bench.until(name, is_ready).await;
        let made = bench.machine.started("c");
        let told = made.mounts.iter().find(|mount| mount.target == "/etc/resolv.conf").unwrap();
        assert!(std::fs::read_to_string(&told.source).unwrap().contains(&format!("nameserver {server}\n")));
    }
    let expected: Vec<std::net::IpAddr> = ["192.0.2.53", "2001:db8::53"].map(|one| one.parse().unwrap()).into();
    assert_eq!(*bench.machine.0.name_servers.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_starts_quickly_is_told_of_once() {
    let bench = Bench::new().await;
    let made = bench.create("a", simple()).await;
    let running = bench.until("a", is_ready).await;
    assert_eq!(phase(&running), "Running");
    let told = running.status.clone().unwrap();
    assert_eq!((told.pod_ip.as_deref(), told.host_ip.as_deref()), (Some("10.0.0.9"), Some("192.0.2.1")));
    let container = status(&running, "c").unwrap();
    assert_eq!(container.image_id, "docker.io/library/image@sha256:m");
    assert!(container.container_id.as_ref().unwrap().starts_with("fake://"));
    for kind in ["PodReadyToStartContainers", "Initialized", "ContainersReady", "PodScheduled"] {
        assert_eq!(condition(&running, kind), "True", "{kind}");
    }
    let version = |pod: &k8s_openapi::api::core::v1::Pod| -> u64 {
        pod.metadata.resource_version.as_ref().unwrap().parse().unwrap()
    };
    assert!(version(&running) > version(&made));
    sleep(Duration::from_secs(120)).await;
    assert_eq!(version(&bench.get("a").await), version(&running), "nothing is written at rest");
    assert_eq!(running.metadata.managed_fields, bench.get("a").await.metadata.managed_fields);
    let events = bench.events().await;
    for reason in ["Pulled", "Created", "Started"] {
        assert!(events.iter().any(|one| one == reason), "{reason} of {events:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_is_let_go_after_its_end() {
    let bench = Bench::new().await;
    bench.machine.0.stubborn.lock().unwrap().insert("c".to_owned());
    let mut spec = simple();
    spec["terminationGracePeriodSeconds"] = json!(20);
    let pod = bench.create("a", spec).await;
    bench.until("a", is_ready).await;
    bench.pods().delete("a", &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(18)).await;
    assert!(bench.get("a").await.metadata.deletion_timestamp.is_some(), "it has its time");
    bench.gone("a").await;
    let log = bench.machine.log();
    let expected = ["sandbox a", "connect a", "start c 0", "signal c 15", "signal c 9", "end", "disconnect"];
    assert_eq!(log, expected);
    sleep(Duration::from_secs(1)).await;
    assert!(!bench.root().join("pods").join(pod.metadata.uid.unwrap()).exists());
}

#[tokio::test(start_paused = true)]
async fn what_ends_by_itself_stays_ended_and_its_sandbox_goes() {
    let bench = Bench::new().await;
    let mut spec = simple();
    spec["restartPolicy"] = json!("Never");
    bench.create("a", spec).await;
    bench.until("a", is_ready).await;
    bench.machine.exit("c", 3);
    let failed = bench.until("a", |pod| phase(pod) == "Failed").await;
    let ended = status(&failed, "c").unwrap().state.clone().unwrap().terminated.unwrap();
    assert_eq!((ended.exit_code, ended.reason.as_deref()), (3, Some("Error")));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.machine.log().last().unwrap(), "disconnect");
    assert_eq!(bench.get("a").await, failed);
    bench.pods().delete("a", &DeleteParams::default()).await.unwrap();
    bench.gone("a").await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(std::fs::read_dir(bench.root().join("pods")).unwrap().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn restarts_wait_longer_each_time() {
    let bench = Bench::new().await;
    bench.create("a", simple()).await;
    bench.until("a", is_ready).await;
    bench.machine.exit("c", 1);
    let again = bench.until("a", |pod| status(pod, "c").is_some_and(|one| one.restart_count == 1 && one.ready)).await;
    assert_eq!(status(&again, "c").unwrap().last_state.clone().unwrap().terminated.unwrap().exit_code, 1);
    bench.machine.exit("c", 2);
    let waits = bench.until("a", |pod| waiting(pod, "c") == "CrashLoopBackOff").await;
    assert_eq!((phase(&waits), is_ready(&waits)), ("Running", false));
    sleep(Duration::from_secs(9)).await;
    assert_eq!(status(&bench.get("a").await, "c").unwrap().restart_count, 1);
    bench.until("a", |pod| status(pod, "c").is_some_and(|one| one.restart_count == 2 && one.ready)).await;
}

#[tokio::test(start_paused = true)]
async fn init_containers_go_first_and_sidecars_last() {
    let bench = Bench::new().await;
    let spec = json!({
        "restartPolicy": "Never",
        "initContainers": [
            { "name": "first", "image": "image:1" },
            { "name": "side", "image": "image:1", "restartPolicy": "Always" },
        ],
        "containers": [{ "name": "c", "image": "image:1" }],
    });
    bench.create("a", spec).await;
    let waits = bench.until("a", |pod| waiting(pod, "c") == "PodInitializing").await;
    assert_eq!((phase(&waits), condition(&waits, "Initialized").as_str()), ("Pending", "False"));
    bench.machine.exit("first", 0);
    bench.until("a", is_ready).await;
    bench.machine.exit("c", 0);
    let done = bench.until("a", |pod| phase(pod) == "Succeeded").await;
    assert!(status(&done, "side").unwrap().state.clone().unwrap().terminated.is_some());
    let log = bench.machine.log();
    assert_eq!(log[2..6], ["start first 0", "start side 0", "start c 0", "signal side 15"]);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_stands_for_anothers_output_needs_neither_image_nor_process() {
    let bench = Bench::new().await;
    let spec = json!({
        "restartPolicy": "Never",
        "initContainers": [{ "name": "log", "image": "orlop.dev/output-of/c", "restartPolicy": "Always" }],
        "containers": [{ "name": "c", "image": "image:1" }],
    });
    bench.create("a", spec).await;
    let running = bench.until("a", is_ready).await;
    let log = status(&running, "log").unwrap();
    assert!(log.ready && log.started == Some(true) && log.state.clone().unwrap().running.is_some(), "{log:?}");
    assert_eq!((log.container_id.as_deref(), log.restart_count), (None, 0));
    bench.machine.exit("c", 3);
    let done = bench.until("a", |pod| phase(pod) == "Failed").await;
    let end = status(&done, "log").unwrap().state.clone().unwrap().terminated.unwrap();
    assert_eq!((end.exit_code, end.reason.as_deref()), (0, Some("Completed")), "it did not fail itself");
    let started: Vec<String> = bench.machine.log().into_iter().filter(|line| line.starts_with("start ")).collect();
    assert_eq!(started, ["start c 0"]);
}

#[tokio::test(start_paused = true)]
async fn images_that_cannot_be_had_are_tried_again() {
    let bench = Bench::new().await;
    bench.machine.0.absent.lock().unwrap().insert("library/image".to_owned());
    *bench.machine.0.pull.lock().unwrap() = Duration::from_secs(2);
    bench.create("a", simple()).await;
    let waits = bench.until("a", |pod| waiting(pod, "c") == "ContainerCreating").await;
    assert_eq!(phase(&waits), "Pending");
    bench.until("a", |pod| waiting(pod, "c") == "ErrImagePull").await;
    bench.until("a", |pod| waiting(pod, "c") == "ImagePullBackOff").await;
    bench.machine.0.absent.lock().unwrap().clear();
    sleep(Duration::from_secs(30)).await;
    bench.until("a", is_ready).await;
    let invalid = json!({ "containers": [{ "name": "c", "image": "Not An Image" }] });
    bench.create("b", invalid).await;
    bench.until("b", |pod| waiting(pod, "c") == "InvalidImageName").await;
}

#[tokio::test(start_paused = true)]
async fn an_image_that_is_here_waits_for_no_registry() {
    let bench = Bench::new().await;
    let spec = json!({ "containers": [{ "name": "c", "image": "image:1" }] });
    *bench.machine.0.pull.lock().unwrap() = Duration::from_secs(36_000);
    for name in ["a", "b", "c"] {
        bench.create(name, spec.clone()).await;
        bench.until(name, |pod| waiting(pod, "c") == "ContainerCreating").await;
    }
    sleep(Duration::from_secs(60)).await;
    // From here on images are here already.
    *bench.machine.0.pull.lock().unwrap() = Duration::ZERO;
    bench.create("d", spec).await;
    bench.until("d", is_ready).await;
    for name in ["a", "b", "c"] {
        bench.until(name, |pod| waiting(pod, "c") == "ContainerCreating").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_waits_for_the_image_of_its_volume() {
    let bench = Bench::new().await;
    bench.machine.0.absent.lock().unwrap().insert("library/disk".to_owned());
    let spec = json!({
        "containers": [
            { "name": "c", "image": "image:1", "volumeMounts": [{ "name": "disk", "mountPath": "/disk" }] },
            { "name": "other", "image": "image:1" },
        ],
        "volumes": [{ "name": "disk", "image": { "reference": "disk:1", "pullPolicy": "IfNotPresent" } }],
    });
    bench.create("a", spec).await;
    let waits = bench.until("a", |pod| waiting(pod, "c") == "ErrImagePull").await;
    assert_eq!(waiting(&waits, "other"), "ContainerCreating");
    bench.until("a", |pod| waiting(pod, "c") == "ImagePullBackOff").await;
    bench.machine.0.absent.lock().unwrap().clear();
    sleep(Duration::from_secs(30)).await;
    bench.until("a", is_ready).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_another_of_its_name() {
    let bench = Bench::new().await;
    bench.machine.0.stubborn.lock().unwrap().insert("c".to_owned());
    bench.create("a", simple()).await;
    bench.until("a", is_ready).await;
    // Gone from the API at once, but not from the machine.
    bench.pods().delete("a", &DeleteParams::default().grace_period(0)).await.unwrap();
    bench.create("a", simple()).await;
    bench.until("a", is_ready).await;
    let log = bench.machine.log();
    let end = log.iter().position(|one| one == "end").unwrap();
    let second = log.iter().rposition(|one| one == "sandbox a").unwrap();
    assert!(end < second, "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_pod() {
    let bench = Bench::new().await;
    let mut spec = simple();
    spec["activeDeadlineSeconds"] = json!(10);
    bench.create("a", spec).await;
    bench.until("a", is_ready).await;
    let failed = bench.until("a", |pod| phase(pod) == "Failed").await;
    assert_eq!(failed.status.unwrap().reason.as_deref(), Some("DeadlineExceeded"));
}

/// Nothing else would ever make it another pod: whoever owns it makes one that asks for what there is.
#[tokio::test(start_paused = true)]
async fn a_pod_whose_devices_are_gone_fails() {
    let bench = Bench::new().await;
    let mut spec = simple();
    spec["containers"][0]["resources"] = json!({ "limits": { "example.com/device": "1" } });
    bench.create("a", spec).await;
    // A plugin that is only being replaced gets a moment.
    let waits = |pod: &k8s_openapi::api::core::v1::Pod| waiting(pod, "c") == "UnexpectedAdmissionError";
    assert_eq!(phase(&bench.until("a", waits).await), "Pending");
    let failed = bench.until("a", |pod| phase(pod) == "Failed").await;
    let told = failed.status.unwrap();
    assert_eq!(told.reason.as_deref(), Some("UnexpectedAdmissionError"));
    let message = "Pod was rejected: no device plugin for example.com/device is registered";
    assert_eq!(told.message.as_deref(), Some(message));
}

#[tokio::test(start_paused = true)]
async fn readiness_gates_of_others_are_heeded_and_kept() {
    let bench = Bench::new().await;
    let mut spec = simple();
    spec["readinessGates"] = json!([{ "conditionType": "g" }]);
    bench.create("a", spec).await;
    let running = bench.until("a", |pod| phase(pod) == "Running").await;
    assert_eq!((condition(&running, "ContainersReady").as_str(), is_ready(&running)), ("True", false));
    let open = json!({ "status": { "conditions": [{ "type": "g", "status": "True" }] } });
    bench.pods().patch_status("a", &PatchParams::default(), &Patch::Strategic(&open)).await.unwrap();
    let ready = bench.until("a", is_ready).await;
    assert_eq!(condition(&ready, "g"), "True");
}

#[tokio::test(start_paused = true)]
async fn the_node_is_registered_and_comes_back() {
    let bench = Bench::new().await;
    sleep(Duration::from_secs(15)).await;
    let nodes: Api<Node> = Api::all(bench.client.clone());
    let node = nodes.get(NODE).await.unwrap();
    assert_eq!(node.metadata.labels.unwrap()["orlop.dev/test"], "true");
    let told = node.status.unwrap();
    assert_eq!(told.allocatable.unwrap()["pods"].0, "500");
    assert!(told.node_info.unwrap().kubelet_version.starts_with("v1.36."));
    let lost = json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } });
    nodes.patch_status(NODE, &PatchParams::default(), &Patch::Strategic(&lost)).await.unwrap();
    sleep(Duration::from_secs(2)).await;
    let ready = |node: &Node| {
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True")
    };
    let back = nodes.get(NODE).await.unwrap();
    assert!(ready(&back));
    let addresses = back.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let addresses: Vec<&str> = addresses.map(|one| one.address.as_str()).collect();
    assert_eq!(addresses, ["192.0.2.1", "2001:db8::1", NODE]);
    sleep(Duration::from_secs(100)).await;
    let later = nodes.get(NODE).await.unwrap();
    assert_eq!(later.metadata.resource_version, back.metadata.resource_version, "nothing is written at rest");
    let leases: Api<Lease> = Api::namespaced(bench.client.clone(), "kube-node-lease");
    let renewed = leases.get(NODE).await.unwrap().spec.unwrap().renew_time.unwrap().0;
    assert!((bench.now)().duration_since(renewed).as_secs() <= 11);
}
