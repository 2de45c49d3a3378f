//! Pools of VMs on the embedded server: the controllers are real, and the test plays scheduler, nodes and handlers.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::pool::{VirtualMachinePool, VirtualMachinePoolStatus};
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use testkit::world::until;
use tokio::time::sleep;

#[expect(dead_code, reason = "each test uses a part of it")]
mod support;

#[path = "pools/hollow.rs"]
mod hollow;

#[path = "pools/disks.rs"]
mod disks;

use support::{World, spec};

fn pools(world: &World) -> Api<VirtualMachinePool> {
    Api::default_namespaced(world.client.clone())
}

async fn create(world: &World, replicas: usize, settings: &Value) {
    let template = json!({
        "metadata": { "labels": { "app": "farm" } },
        "spec": {
            "runStrategy": "Always",
            "template": { "metadata": { "labels": { "app": "farm" } }, "spec": spec() },
        },
    });
    let mut spec = json!({ "replicas": replicas, "selector": { "matchLabels": { "app": "farm" } }, "virtualMachineTemplate": template });
    for (field, value) in settings.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let pool = json!({
        "apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "metadata": { "name": "farm" }, "spec": spec,
    });
    pools(world).create(&PostParams::default(), &serde_json::from_value(pool).unwrap()).await.unwrap();
}

/// As `kubectl scale` does.
async fn scale(world: &World, replicas: usize) {
    let patch = json!({ "spec": { "replicas": replicas } });
    pools(world).patch_scale("farm", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

async fn change(world: &World, patch: &Value) {
    pools(world).patch("farm", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Removes what has lost its owners. Whoever is deleted together with its children is there until it has.
const GARBAGE_COLLECTOR: &str = "garbage-collector-controller";

/// One of the controllers that a cluster has.
fn run_controller(world: &World, name: &str) {
    let descriptor = kube_controllers::table::DESCRIPTORS.iter().find(|one| one.name == name).unwrap();
    let context = world.server.kubernetes(descriptor.account);
    tokio::spawn((descriptor.start)(&context, &kube_controllers::table::Settings::default()).unwrap().run);
    testkit::world::watch(&context);
}

fn another_template(hostname: &str) -> Value {
    json!({ "spec": { "virtualMachineTemplate": { "spec": { "template": { "spec": { "hostname": hostname } } } } } })
}

/// Waits until there are so many VMs that stay, and returns their names.
async fn names(world: &World, count: usize) -> BTreeSet<String> {
    until(&format!("{count} VMs"), async || {
        let all = world.vms().list(&ListParams::default()).await.unwrap().items;
        let stay: BTreeSet<String> =
            all.iter().filter(|vm| vm.metadata.deletion_timestamp.is_none()).map(ResourceExt::name_any).collect();
        (stay.len() == count).then_some(stay)
    })
    .await
}

/// Waits until there are so many VMs, and returns them by name.
async fn vms(world: &World, count: usize) -> BTreeMap<String, VirtualMachine> {
    names(world, count).await;
    let all = world.vms().list(&ListParams::default()).await.unwrap().items;
    all.into_iter().map(|vm| (vm.name_any(), vm)).collect()
}

async fn status(world: &World, wanted: impl Fn(&VirtualMachinePoolStatus) -> bool) -> VirtualMachinePoolStatus {
    until("the wanted status", async || pools(world).get("farm").await.unwrap().status.filter(|status| wanted(status)))
        .await
}

async fn instances(world: &World) -> Vec<VirtualMachineInstance> {
    world.vmis().list(&ListParams::default()).await.unwrap().items
}

fn is_ready(instance: &VirtualMachineInstance) -> bool {
    let all = instance.status.as_ref().and_then(|status| status.conditions.as_deref());
    !instance.is_marked_for_deletion() && api::conditions::has(all, "Ready", &api::conditions::ConditionStatus::True)
}

/// What a node makes of an instance.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Runs,
    /// Its launcher starts, and ends before the guest runs.
    CannotStart,
    /// The image of its disk is not there.
    NoImage,
}

/// Plays all nodes for a moment: pods that wait run, instances that were handed over boot, and pods that were deleted end.
async fn play(world: &World) {
    play_fates(world, |_| Fate::Runs).await;
}

async fn play_fates(world: &World, fate: impl Fn(&str) -> Fate) {
    let instances = instances(world).await;
    let fate_of = |pod: &Pod| {
        let of = instances
            .iter()
            .find(|one| pod.owner_references().iter().any(|owner| Some(&owner.uid) == one.uid().as_ref()));
        of.map_or(Fate::Runs, |one| fate(&one.name_any()))
    };
    for pod in world.pods().list(&ListParams::default()).await.unwrap() {
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        if pod.metadata.deletion_timestamp.is_some() {
            let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
            world.pods().delete(&pod.name_any(), &now).await.unwrap();
        } else if phase == "Pending" && fate_of(&pod) == Fate::NoImage {
            let waits = json!({ "waiting": { "reason": "ErrImagePull", "message": "not found" } });
            let names = pod.spec.iter().flat_map(|spec| &spec.containers).map(|one| &one.name);
            let all: Vec<Value> = names
                .map(|name| json!({ "name": name, "ready": false, "image": "", "imageID": "", "restartCount": 0, "state": waits }))
                .collect();
            world.patch_pod(&pod.name_any(), &json!({ "phase": "Pending", "containerStatuses": all })).await;
        } else if phase == "Pending" {
            world.run_pod(&pod).await;
        }
    }
    // Those whose pods have gone since may have gone, too.
    for instance in self::instances(world).await {
        let (name, phase) = (instance.name_any(), instance.phase().to_string());
        if instance.is_marked_for_deletion() && matches!(phase.as_str(), "Scheduled" | "Running") {
            world.phase(&name, "Succeeded").await;
        } else if phase == "Scheduled" {
            world.phase(&name, if fate(&name) == Fate::CannotStart { "Failed" } else { "Running" }).await;
        }
    }
    sleep(Duration::from_secs(1)).await;
}

/// Plays until all VMs are ready, and says how many were unavailable at a time at most, from when all were there.
async fn play_until_ready(world: &World, count: usize, done: impl AsyncFn(&World) -> bool) -> usize {
    let mut most = 0;
    for _ in 0..600 {
        let ready = instances(world).await.iter().filter(|one| is_ready(one)).count();
        if ready == count && done(world).await {
            return most;
        }
        most = most.max(count.saturating_sub(ready));
        play(world).await;
    }
    let pool = pools(world).get("farm").await.unwrap();
    assert_eq!(json!(pool.status), json!(null), "never ready");
    most
}

/// One that fails at each start is given up after as many as the pool says, and one that waits for an image after as long; each is
/// made again under its number. All others are left alone, and there are never more than asked for.
#[tokio::test(start_paused = true)]
async fn vms_that_cannot_start_are_replaced_and_no_others() {
    const COUNT: usize = 4;
    let world = World::start().await;
    run_controller(&world, GARBAGE_COLLECTOR);
    let healing = json!({ "startUpFailureThreshold": 3, "minFailingToStartDuration": "10m" });
    create(&world, COUNT, &json!({ "autohealing": healing })).await;
    let first: BTreeMap<String, VirtualMachine> = vms(&world, COUNT).await;
    let is_new = |vm: &VirtualMachine| first.get(&vm.name_any()).is_some_and(|old| old.uid() != vm.uid());
    let mut starts: BTreeSet<String> = BTreeSet::new();
    let mut most_failures = 0;
    let replaced = until("the replacement of both", async || {
        play_fates(&world, |name| match name {
            "farm-1" => Fate::CannotStart,
            "farm-2" => Fate::NoImage,
            _ => Fate::Runs,
        })
        .await;
        let all = world.vms().list(&ListParams::default()).await.unwrap().items;
        assert!(all.len() <= COUNT, "{} VMs", all.len());
        for instance in instances(&world).await {
            let owner = instance.owner_references().first().map(|owner| owner.uid.clone());
            if owner == first["farm-1"].uid() {
                starts.extend(instance.uid());
            }
        }
        let failures =
            all.iter().filter_map(|vm| vm.status.as_ref()?.start_failure.as_ref()?.consecutive_fail_count).max();
        most_failures = most_failures.max(failures.unwrap_or(0));
        let replaced: Vec<VirtualMachine> = all.into_iter().filter(is_new).collect();
        (replaced.len() == 2).then_some(replaced)
    })
    .await;
    assert_eq!((starts.len(), most_failures), (3, 3), "it has had as many starts as the pool says, and no more");
    let names: Vec<String> = replaced.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["farm-1", "farm-2"]);
    let waited = created(&replaced[1]).duration_since(created(&first["farm-2"]));
    assert!(waited >= SignedDuration::from_mins(10), "given up after {waited}");
    // What stood in the way is gone: they run, and nobody is replaced any more.
    play_until_ready(&world, COUNT, async |_| true).await;
    status(&world, |status| status.ready_replicas == Some(4) && status.conditions.is_none()).await;
    let last = vms(&world, COUNT).await;
    for (name, given_up) in [("farm-0", false), ("farm-1", true), ("farm-2", true), ("farm-3", false)] {
        assert_eq!(is_new(&last[name]), given_up, "{name}");
    }
    world.writes();
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.writes(), Vec::<String>::new(), "at rest nobody writes");
}

fn created(vm: &VirtualMachine) -> Timestamp {
    vm.metadata.creation_timestamp.as_ref().unwrap().0
}

#[tokio::test(start_paused = true)]
async fn the_strategy_says_whom_a_new_template_reaches() {
    let world = World::start().await;
    create(&world, 2, &json!({ "updateStrategy": { "opportunistic": {} } })).await;
    play_until_ready(&world, 2, async |_| true).await;
    change(&world, &another_template("later")).await;
    world.vm("farm-1", |vm| hostname(vm) == Some("later")).await;
    let uids = instances(&world).await.iter().map(ResourceExt::uid).collect::<Vec<_>>();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(instances(&world).await.iter().map(ResourceExt::uid).collect::<Vec<_>>(), uids, "nobody is restarted");
    // Whoever restarts has it.
    world.vmis().delete("farm-0", &DeleteParams::default()).await.unwrap();
    until("a restart", async || {
        play(&world).await;
        let found = world.vmis().get_opt("farm-0").await.unwrap();
        found.filter(|one| one.spec.hostname.as_deref() == Some("later") && is_ready(one))
    })
    .await;
    // Unmanaged VMs are left alone, and new ones have the new template.
    change(&world, &json!({ "spec": { "updateStrategy": { "opportunistic": null, "unmanaged": {} } } })).await;
    change(&world, &another_template("latest")).await;
    scale(&world, 3).await;
    world.vm("farm-2", |vm| hostname(vm) == Some("latest")).await;
    assert_eq!(hostname(&world.vms().get("farm-1").await.unwrap()), Some("later"));
    // The revisions that are in use are kept, and no other.
    let all = Api::<ControllerRevision>::default_namespaced(world.client.clone());
    let of_pool = all.list(&ListParams::default()).await.unwrap();
    let of_pool = of_pool.iter().filter(|one| one.owner_references().iter().any(|owner| owner.name == "farm"));
    assert_eq!(of_pool.map(ResourceExt::name_any).collect::<Vec<_>>(), ["farm-1", "farm-2", "farm-4"]);
}

fn hostname(vm: &VirtualMachine) -> Option<&str> {
    vm.spec.template.spec.as_ref()?.hostname.as_deref()
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_paused_waits_and_one_that_is_detached_from_stays() {
    let world = World::start().await;
    create(&world, 2, &json!({})).await;
    play_until_ready(&world, 2, async |_| true).await;
    change(&world, &json!({ "spec": { "paused": true } })).await;
    let shown = status(&world, |status| status.conditions.is_some()).await;
    assert_eq!(shown.conditions.unwrap()[0].type_, "ReplicaPaused");
    scale(&world, 4).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(names(&world, 2).await.len(), 2);
    change(&world, &json!({ "spec": { "paused": false } })).await;
    names(&world, 4).await;
    status(&world, |status| status.conditions.is_none() && status.replicas == Some(4)).await;
    // One whose labels are others is its user's from now on, and another is made.
    world.patch_vm("farm-1", &json!({ "metadata": { "labels": { "app": "own" } } })).await;
    world.vm("farm-1", |vm| vm.owner_references().is_empty()).await;
    assert!(names(&world, 5).await.contains("farm-4"));
}

/// A quota, or admission, that refuses a VM is asked for one at a time, more and more seldom.
#[tokio::test(start_paused = true)]
async fn a_refused_template_is_shown_and_not_asked_for_again_and_again() {
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = asked.clone();
    let world = World::start_with(|client| {
        let refusing = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let refused = request.method() == http::Method::POST && request.uri().path().ends_with("/virtualmachines");
            let (client, counted) = (client.clone(), counted.clone());
            async move {
                if !refused {
                    return client.send(request).await;
                }
                counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let status = json!({ "code": 403, "reason": "Forbidden", "message": "no room for more" });
                let body = kube::client::Body::from(status.to_string().into_bytes());
                Ok(http::Response::builder().status(403).body(body).unwrap())
            }
        });
        kube::Client::new(refusing, "default")
    })
    .await;
    create(&world, 100, &json!({})).await;
    let shown = status(&world, |status| status.conditions.is_some()).await;
    let condition = &shown.conditions.unwrap()[0];
    assert_eq!((condition.type_.as_str(), condition.reason.as_deref()), ("ReplicaFailure", Some("FailedScaleOut")));
    assert_eq!(condition.message.as_deref(), Some("no room for more"));
    let since = condition.last_transition_time.clone();
    sleep(Duration::from_secs(300)).await;
    let shown = status(&world, |_| true).await;
    assert_eq!(shown.conditions.unwrap()[0].last_transition_time, since);
    let times = asked.load(std::sync::atomic::Ordering::Relaxed);
    assert!((2..40).contains(&times), "asked {times} times");
    // Nobody waits for what was never wanted.
    scale(&world, 0).await;
    status(&world, |status| status.conditions.is_none() && status.replicas == Some(0)).await;
}

/// The answer to a creation is lost: the VM is there, and no second one is made for it.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_makes_no_second_vm() {
    let lost = std::sync::atomic::AtomicUsize::new(0);
    let world = World::start_with(|client| {
        let lost = std::sync::Arc::new(lost);
        let lossy = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let is_creation =
                request.method() == http::Method::POST && request.uri().path().ends_with("/virtualmachines");
            let loses = is_creation && lost.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 2;
            let client = client.clone();
            async move {
                let answer = client.send(request).await.map_err(std::io::Error::other);
                if loses { Err(std::io::Error::other("lost")) } else { answer }
            }
        });
        kube::Client::new(lossy, "default")
    })
    .await;
    create(&world, 3, &json!({})).await;
    let mut most = 0;
    for _ in 0..600 {
        sleep(Duration::from_secs(1)).await;
        most = most.max(world.vms().list(&ListParams::default()).await.unwrap().items.len());
    }
    assert_eq!((names(&world, 3).await.len(), most), (3, 3));
}
