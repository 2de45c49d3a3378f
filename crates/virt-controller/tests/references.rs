//! What VMs refer to, on the embedded server: data volumes, instancetypes, the cluster's configuration.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use manager::rate::Limit;
use serde_json::json;
use testkit::world::until;

#[expect(dead_code, reason = "each test uses a part of it")]
mod support;

use support::{World, spec};

#[tokio::test(start_paused = true)]
async fn data_volumes_are_made_and_awaited_once_the_cluster_has_them() {
    let mut guest = spec();
    guest["volumes"] = json!([{ "name": "data", "dataVolume": { "name": "data" } }]);
    let templates = json!([{ "metadata": { "name": "data" }, "spec": { "source": { "blank": {} }, "storage": {} } }]);
    let vm = json!({ "runStrategy": "Always", "dataVolumeTemplates": templates, "template": { "spec": guest } });
    let world = World::start_after(async |world| {
        world.define_data_volumes().await;
        world.create_vm_with("one", &vm).await;
        world.forget_data_volumes().await;
    })
    .await;
    let failed = |vm: &api::vm::VirtualMachine| {
        let conditions = vm.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        conditions.iter().any(|one| one.type_ == "Failure")
    };
    world.vm("one", failed).await;
    world.define_data_volumes().await;
    let volumes: kube::Api<api::data_volume::DataVolume> = kube::Api::default_namespaced(world.client.clone());
    let made = until("the data volume", async || volumes.get_opt("data").await.ok().flatten()).await;
    let vm = world.word("one", "Provisioning").await;
    assert!(api::owner::is_controlled_by(&made.metadata, vm.metadata.uid.as_deref().unwrap()));
    assert!(!failed(&vm));
    assert_eq!(world.vmis().get_opt("one").await.unwrap(), None);
    let claims: kube::Api<k8s_openapi::api::core::v1::PersistentVolumeClaim> =
        kube::Api::default_namespaced(world.client.clone());
    let claim = json!({ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": "1Gi" } } } });
    claims.create(&Default::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    // The importer waits for a pod to know where the claim is to be: one that only shows that.
    let waits = json!({ "status": { "phase": "WaitForFirstConsumer" } });
    volumes.patch("data", &Default::default(), &kube::api::Patch::Merge(&waits)).await.unwrap();
    let pod = world.pod("one").await;
    assert!(pod.metadata.annotations.unwrap().contains_key("kubevirt.io/ephemeral-provisioning"));
    let bound = json!({ "status": { "phase": "Bound" } });
    claims.patch_status("data", &Default::default(), &kube::api::Patch::Merge(&bound)).await.unwrap();
    let done = json!({ "status": { "phase": "Succeeded" } });
    volumes.patch("data", &Default::default(), &kube::api::Patch::Merge(&done)).await.unwrap();
    let launcher = until("the launcher alone", async || {
        let pods = world.pods().list(&Default::default()).await.unwrap().items;
        (pods.len() == 1 && pods[0].metadata.name != pod.metadata.name).then(|| pods[0].clone())
    })
    .await;
    assert!(!launcher.metadata.annotations.unwrap().contains_key("kubevirt.io/ephemeral-provisioning"));
    world.boot("one").await;
    world.word("one", "Running").await;
}

#[tokio::test(start_paused = true)]
async fn an_instancetype_is_kept_as_it_was_and_spelled_out_where_the_cluster_wants_that() {
    let small: api::instancetype::VirtualMachineInstancetype = serde_json::from_value(json!({ "apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachineInstancetype", "metadata": { "name": "small" }, "spec": { "cpu": { "guest": 2 }, "memory": { "guest": "64Mi" } } }))
    .unwrap();
    let mut guest = spec();
    guest["domain"]["memory"] = json!(null);
    let vm = json!({ "runStrategy": "Always", "template": { "spec": guest },
        "instancetype": { "name": "small", "kind": "VirtualMachineInstancetype" } });
    let world = World::start_after(async |world| {
        let types = kube::Api::default_namespaced(world.client.clone());
        types.create(&Default::default(), &small).await.unwrap();
        world.create_vm_with("one", &vm).await;
        types.delete("small", &Default::default()).await.unwrap();
    })
    .await;
    let types = kube::Api::default_namespaced(world.client.clone());
    let conditions = |vm: &api::vm::VirtualMachine| json!(vm.status).to_string();
    world.vm("one", |vm| conditions(vm).contains("VirtualMachineInstancetype small does not exist")).await;
    types.create(&Default::default(), &small).await.unwrap();
    let vmi = world.boot("one").await;
    assert_eq!(vmi.spec.domain.cpu.unwrap().sockets, Some(2));
    let running = world.word("one", "Running").await;
    let kept = running.status.unwrap().instancetype_ref.as_ref().unwrap().controller_revision_ref.clone().unwrap();
    let revisions: kube::Api<k8s_openapi::api::apps::v1::ControllerRevision> =
        kube::Api::default_namespaced(world.client.clone());
    revisions.get(&kept.name.unwrap()).await.unwrap();

    let kubevirts: kube::Api<api::kubevirt::KubeVirt> = kube::Api::default_namespaced(world.client.clone());
    let config = json!({ "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": { "name": "kubevirt" },
        "spec": { "configuration": { "instancetype": { "referencePolicy": "expand" } } } });
    kubevirts.create(&Default::default(), &serde_json::from_value(config).unwrap()).await.unwrap();
    world.create_vm_with("two", &vm).await;
    let expanded = world.vm("two", |vm| vm.spec.instancetype.is_none()).await;
    let spec = expanded.spec.template.spec.unwrap();
    assert_eq!(spec.domain.cpu.unwrap().sockets, Some(2));
    let vmi = world.boot("two").await;
    assert_eq!(vmi.spec.domain.memory.unwrap().guest.unwrap().to_string(), "64Mi");
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_requests_follows_the_kubevirt_object() {
    let world = World::start().await;
    let becomes = async |qps: f64, burst: u32| {
        let wanted = Limit { qps, burst };
        until("the limit", async || (world.limiter.limit() == wanted).then_some(())).await;
    };
    let usual = world.limiter.limit();
    let bucket = json!({ "tokenBucketRateLimiter": { "qps": 5, "burst": 7 } });
    let rate = json!({ "restClient": { "rateLimiter": bucket } });
    let object = json!({ "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": { "name": "kubevirt" },
        "spec": { "configuration": { "controllerConfiguration": rate } } });
    let kubevirts: kube::Api<api::kubevirt::KubeVirt> = kube::Api::default_namespaced(world.client.clone());
    kubevirts.create(&Default::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    becomes(5.0, 7).await;
    kubevirts.delete("kubevirt", &Default::default()).await.unwrap();
    becomes(usual.qps, usual.burst).await;
}
