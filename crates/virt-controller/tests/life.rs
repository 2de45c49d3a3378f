//! The life of VMs and their instances on the embedded server: the controllers are real, and the test plays scheduler, node
//! and handler.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::Client;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use testkit::world::until;
use tokio::time::sleep;

#[expect(dead_code, reason = "each test uses a part of it")]
mod support;

use support::{World, condition, phase, printable, spec};

#[tokio::test(start_paused = true)]
async fn a_vm_runs_with_few_writes_and_none_at_rest() {
    let world = World::start().await;
    world.create_vm("one", "Always").await;
    world.word("one", "Starting").await;
    let vmi = world.boot("one").await;
    let vm = world.word("one", "Running").await;
    let status = vm.status.unwrap();
    assert_eq!((status.created, status.ready), (Some(true), Some(true)));
    assert_eq!(vmi.metadata.labels.unwrap()["kubevirt.io/nodeName"], "one");
    let status = vmi.status.unwrap();
    assert_eq!(status.node_name.as_deref(), Some("one"));
    assert_eq!(status.qos_class.as_deref(), Some("Burstable"));
    let pod = world.pod("one").await;
    assert_eq!(status.active_pods.unwrap()[&pod.metadata.uid.clone().unwrap()], "one");
    sleep(Duration::from_secs(10)).await;
    let pod = world.pod("one").await;
    assert_eq!(condition(&pod, "kubevirt.io/virtual-machine-unpaused").unwrap().status, "True");
    let writes = world.writes();
    // Without admission the finalizer is one more, and the readiness gate comes after the guest runs.
    assert!(writes.len() <= 9, "{writes:#?}");
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.writes(), Vec::<String>::new());
}

/// A pod that is made and gone before anybody saw it is no news: after a while the instance asks for itself.
#[tokio::test(start_paused = true)]
async fn a_pod_that_nobody_ever_saw_is_made_again_soon() {
    let first = Arc::new(AtomicBool::new(true));
    let world = World::start_with(|client| {
        let forgetful = tower::service_fn(move |mut request: http::Request<kube::client::Body>| {
            let is_creation = request.method() == http::Method::POST && request.uri().path().ends_with("/pods");
            if is_creation && first.swap(false, Ordering::Relaxed) {
                *request.uri_mut() = format!("{}?dryRun=All", request.uri().path()).parse().unwrap();
            }
            let client = client.clone();
            async move { client.send(request).await }
        });
        Client::new(forgetful, "default")
    })
    .await;
    world.create_vm("one", "Always").await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(world.pods().list(&ListParams::default()).await.unwrap().items, []);
    sleep(Duration::from_secs(50)).await;
    assert_eq!(world.pods().list(&ListParams::default()).await.unwrap().items.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_is_halted_ends_in_order() {
    let world = World::start().await;
    world.create_vm("one", "Always").await;
    world.boot("one").await;
    world.word("one", "Running").await;
    let pod = world.pod("one").await;
    world.patch_vm("one", &json!({ "spec": { "runStrategy": "Halted" } })).await;
    world.word("one", "Stopping").await;
    world.phase("one", "Succeeded").await;
    world.end_pod(&pod).await;
    let vm = world.word("one", "Stopped").await;
    assert_eq!(vm.status.unwrap().created, None);
    assert_eq!(world.vmis().get_opt("one").await.unwrap(), None);
    // Started again, it is another instance with another pod.
    world.patch_vm("one", &json!({ "spec": { "runStrategy": "Always" } })).await;
    let next = world.pod("one").await;
    assert_ne!(next.metadata.name, pod.metadata.name);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_ends_is_started_again_if_its_strategy_says_so() {
    let world = World::start().await;
    for (name, strategy) in [("always", "Always"), ("rerun", "RerunOnFailure"), ("once", "Once"), ("manual", "Manual")]
    {
        world.create_vm(name, strategy).await;
    }
    world.word("manual", "Stopped").await;
    let request = json!({ "status": { "stateChangeRequests": [{ "action": "Start" }] } });
    let patch = kube::api::Patch::Merge(&request);
    world.vms().patch_status("manual", &Default::default(), &patch).await.unwrap();
    for name in ["always", "rerun", "once", "manual"] {
        let vmi = world.boot(name).await;
        let pod = world.pod(name).await;
        world.word(name, "Running").await;
        world.phase(name, "Failed").await;
        if matches!(name, "always" | "rerun") {
            world.end_pod(&pod).await;
            let next = world.vmi(name, |next| next.metadata.uid != vmi.metadata.uid).await;
            assert!(!next.is_final());
        } else {
            world.word(name, "Stopped").await;
            sleep(Duration::from_secs(600)).await;
            assert_eq!(world.vmis().get(name).await.unwrap().metadata.uid, vmi.metadata.uid, "{name} stays as it is");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_never_starts_waits_longer_each_time() {
    let world = World::start().await;
    world.create_vm("one", "Always").await;
    let mut waits = Vec::new();
    for _ in 0..3 {
        let pod = world.pod("one").await;
        let vmi = world.vmi("one", |vmi| phase(vmi) == "Scheduling").await;
        world.patch_pod(&pod.metadata.name.clone().unwrap(), &json!({ "phase": "Failed" })).await;
        world.end_pod(&pod).await;
        world.word("one", "CrashLoopBackOff").await;
        let before = tokio::time::Instant::now();
        world.vmi("one", |next| next.metadata.uid != vmi.metadata.uid).await;
        waits.push(before.elapsed().as_secs());
    }
    assert!(waits[0] >= 8 && waits[0] < 20 && waits[1] > 35 && waits[2] > 85, "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_vm_takes_its_instance_along_and_an_orphaned_one_does_not() {
    let world = World::start().await;
    for name in ["gone", "kept"] {
        world.create_vm(name, "Always").await;
        world.boot(name).await;
        world.word(name, "Running").await;
    }
    let pod = world.pod("gone").await;
    world.vms().delete("gone", &DeleteParams::default()).await.unwrap();
    world.word("gone", "Terminating").await;
    world.phase("gone", "Succeeded").await;
    world.end_pod(&pod).await;
    until("the end of the VM", async || world.vms().get_opt("gone").await.unwrap().is_none().then_some(())).await;
    assert_eq!(world.vmis().get_opt("gone").await.unwrap(), None);
    world.vms().delete("kept", &DeleteParams::orphan()).await.unwrap();
    // The garbage collector is not here; only it removes the last finalizer.
    let kept = world
        .vmi("kept", |vmi| {
            !vmi.metadata.finalizers.iter().flatten().any(|one| one.contains("virtualMachineController"))
        })
        .await;
    assert!(!kept.is_marked_for_deletion());
    let vm = world.vms().get("kept").await.unwrap();
    assert_eq!(vm.metadata.finalizers.unwrap(), ["orphan"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_vanishes_fails_its_instance() {
    let world = World::start().await;
    world.create_vm("one", "Manual").await;
    let start = json!({ "status": { "stateChangeRequests": [{ "action": "Start" }] } });
    world.vms().patch_status("one", &Default::default(), &kube::api::Patch::Merge(&start)).await.unwrap();
    world.boot("one").await;
    let pod = world.pod("one").await;
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    world.pods().delete(&pod.metadata.name.unwrap(), &now).await.unwrap();
    let vmi = world.vmi("one", |vmi| phase(vmi) == "Failed").await;
    assert!(vmi.status.unwrap().conditions.unwrap().iter().any(|one| one.reason.as_deref() == Some("PodNotExists")));
}

#[tokio::test(start_paused = true)]
async fn a_changed_template_asks_for_a_restart_until_it_is_changed_back() {
    let world = World::start().await;
    world.create_vm("one", "Always").await;
    world.boot("one").await;
    world.word("one", "Running").await;
    let required = |vm: &api::vm::VirtualMachine| {
        let conditions = vm.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        conditions.iter().any(|one| one.type_ == "RestartRequired")
    };
    let memory =
        |size: &str| json!({ "spec": { "template": { "spec": { "domain": { "memory": { "guest": size } } } } } });
    world.patch_vm("one", &memory("128Mi")).await;
    world.vm("one", required).await;
    world.patch_vm("one", &memory("64Mi")).await;
    let vm = world.vm("one", |vm| !required(vm) && vm.metadata.generation == Some(3)).await;
    world.vm("one", |vm| vm.status.as_ref().unwrap().observed_generation == vm.metadata.generation).await;
    assert_eq!(printable(&vm), "Running");
}

#[tokio::test(start_paused = true)]
async fn an_instance_waits_for_its_claim_and_says_so() {
    let world = World::start().await;
    let mut guest = spec();
    guest["volumes"] = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }]);
    world.create_vm_with("one", &json!({ "running": true, "template": { "spec": guest } })).await;
    world.word("one", "ErrorPvcNotFound").await;
    let claims: kube::Api<k8s_openapi::api::core::v1::PersistentVolumeClaim> =
        kube::Api::default_namespaced(world.client.clone());
    let claim = json!({ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": "1Gi" } }, "volumeMode": "Block" } });
    claims.create(&Default::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    world.word("one", "Provisioning").await;
    let bound = json!({ "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } } });
    claims.patch_status("data", &Default::default(), &kube::api::Patch::Merge(&bound)).await.unwrap();
    world.boot("one").await;
    let vmi = world.vmis().get("one").await.unwrap();
    let volume = &vmi.status.unwrap().volume_status.unwrap()[0];
    assert_eq!(volume.persistent_volume_claim_info.as_ref().unwrap().claim_name.as_deref(), Some("data"));
}

#[tokio::test(start_paused = true)]
async fn a_vm_with_data_volumes_hears_when_their_kind_comes() {
    let mut guest = spec();
    guest["volumes"] = json!([{ "name": "disk", "dataVolume": { "name": "disk" } }]);
    let templates = json!([{ "metadata": { "name": "disk" }, "spec": { "source": { "blank": {} }, "storage": {} } }]);
    let spec = json!({ "runStrategy": "Always", "dataVolumeTemplates": templates, "template": { "spec": guest } });
    let world = World::start_after(async |world| {
        world.define_data_volumes().await;
        world.create_vm_with("one", &spec).await;
        world.forget_data_volumes().await;
    })
    .await;
    world.word("one", "Stopped").await;
    world.define_data_volumes().await;
    world.word("one", "Provisioning").await;
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_somebody_deletes_has_not_failed_to_start() {
    let world = World::start().await;
    for (name, fails_first) in [("once", false), ("twice", true)] {
        world.create_vm(name, "RerunOnFailure").await;
        if fails_first {
            let pod = world.pod(name).await;
            world.patch_pod(&pod.metadata.name.clone().unwrap(), &json!({ "phase": "Failed" })).await;
            world.end_pod(&pod).await;
            world.word(name, "CrashLoopBackOff").await;
        }
        let pod = world.pod(name).await;
        sleep(Duration::from_secs(5)).await;
        world.vmis().delete(name, &DeleteParams::default()).await.unwrap();
        world.end_pod(&pod).await;
        world.word(name, "Stopped").await;
        sleep(Duration::from_secs(60)).await;
        let vm = world.word(name, "Stopped").await;
        assert_eq!(vm.status.unwrap().start_failure.as_ref(), None, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_becomes_rerun_on_failure_starts_when_it_can() {
    let world = World::start().await;
    world.create_vm("one", "Always").await;
    let pod = world.pod("one").await;
    let vmi = world.vmi("one", |vmi| phase(vmi) == "Scheduling").await;
    world.patch_pod(&pod.metadata.name.clone().unwrap(), &json!({ "phase": "Failed" })).await;
    world.end_pod(&pod).await;
    world.word("one", "CrashLoopBackOff").await;
    world.vm("one", |vm| vm.status.as_ref().is_some_and(|status| status.created.is_none())).await;
    world.patch_vm("one", &json!({ "spec": { "runStrategy": "RerunOnFailure" } })).await;
    world.vmi("one", |next| next.metadata.uid != vmi.metadata.uid).await;
    let told = |vm: &api::vm::VirtualMachine| vm.status.as_ref().and_then(|status| status.run_strategy.clone());
    world.vm("one", |vm| told(vm) == Some(api::vm::VirtualMachineRunStrategy::RerunOnFailure)).await;
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_becomes_once_forgets_what_was_asked_of_it() {
    let world = World::start().await;
    world.create_vm("one", "Once").await;
    let vmi = world.boot("one").await;
    world.word("one", "Running").await;
    let requests = json!({ "status": { "stateChangeRequests": [{ "action": "Stop", "uid": vmi.metadata.uid }] } });
    world.vms().patch_status("one", &Default::default(), &kube::api::Patch::Merge(&requests)).await.unwrap();
    sleep(Duration::from_secs(10)).await;
    let vm = world.word("one", "Running").await;
    assert_eq!(vm.status.unwrap().state_change_requests, None);
}
