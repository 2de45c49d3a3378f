//! Evacuations: what `kubectl drain` does to nodes that guests run on.

use std::time::Duration;

use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, EvictParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use testkit::world::until;
use tokio::time::sleep;

use crate::support::{World, phase, spec};
use crate::{Moving, phase_of};

impl Moving {
    /// Instances of this strategy that run on node `one` and can move, or cannot.
    pub(crate) async fn ready(names: &[&str], strategy: Option<&str>, can_move: bool) -> Self {
        let this = Self(World::start().await);
        this.nodes().await;
        for name in names {
            this.run(name, strategy, can_move).await;
        }
        this
    }

    pub(crate) async fn nodes(&self) {
        let nodes: Api<Node> = Api::all(self.0.client.clone());
        for name in ["one", "two"] {
            let node = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
            nodes.create(&PostParams::default(), &node).await.unwrap();
        }
    }

    pub(crate) async fn run(&self, name: &str, strategy: Option<&str>, can_move: bool) {
        let mut spec = spec();
        spec["evictionStrategy"] = json!(strategy);
        self.0.create_vm_with(name, &json!({ "runStrategy": "Always", "template": { "spec": spec } })).await;
        self.0.boot(name).await;
        self.can_move(name, can_move).await;
    }

    /// Plays the handler, which says whether the guest can move.
    async fn can_move(&self, name: &str, can_move: bool) {
        let vmi = self.0.vmis().get(name).await.unwrap();
        let mut conditions = json!(vmi.status.unwrap().conditions.unwrap_or_default());
        let says = json!({ "type": "LiveMigratable", "status": if can_move { "True" } else { "False" } });
        conditions.as_array_mut().unwrap().push(says);
        self.0.patch_vmi(name, &json!({ "status": { "conditions": conditions } })).await;
    }

    /// Evicts a pod; why not, if it stays.
    pub(crate) async fn evict(&self, pod: &str, dry_run: bool) -> Result<(), String> {
        let post_options = PostParams { dry_run, ..PostParams::default() };
        match self.0.pods().evict(pod, &EvictParams { post_options, ..EvictParams::default() }).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 429 => Err(status.message.clone()),
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) async fn on_node(&self, node: &str) -> Vec<Pod> {
        let pods = self.0.pods().list(&Default::default()).await.unwrap().items;
        pods.into_iter().filter(|pod| pod.spec.as_ref().unwrap().node_name.as_deref() == Some(node)).collect()
    }

    /// The names of migrations, and of their instances.
    pub(crate) async fn made(&self) -> Vec<(String, String)> {
        let all = self.api().list(&Default::default()).await.unwrap().items;
        let unfinished = all.into_iter().filter(|one| !matches!(phase_of(one).as_str(), "Succeeded" | "Failed"));
        unfinished.map(|one| (one.name_any(), one.spec.vmi_name.clone().unwrap())).collect()
    }

    /// Plays everybody until the guest is on node `two` and its first launcher has ended.
    pub(crate) async fn bring(&self, migration: &str, vmi: &str) {
        let source = self.source(vmi).await;
        let target = self.target(migration).await;
        self.0.run_pod_on(&target, "two").await;
        self.phase(migration, "PreparingTarget").await;
        self.arrive(vmi).await;
        self.phase(migration, "Succeeded").await;
        self.0.patch_pod(&source.name_any(), &json!({ "phase": "Succeeded" })).await;
    }

    async fn source(&self, vmi: &str) -> Pod {
        let pods = self.on_node("one").await;
        let is_of = |pod: &Pod| pod.annotations().get("kubevirt.io/domain").is_some_and(|one| one == vmi);
        pods.into_iter().find(is_of).unwrap()
    }
}

fn marked(vmi: &VirtualMachineInstance) -> Option<&str> {
    vmi.status.as_ref()?.evacuation_node_name.as_deref()
}

fn condition<'a>(vmi: &'a VirtualMachineInstance, kind: &str) -> Option<&'a str> {
    let all = vmi.status.as_ref().and_then(|status| status.conditions.as_deref());
    api::conditions::find(all, kind)?.reason.as_deref()
}

/// As `kubectl drain` does: evicts all pods of the node again and again, until none is left.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_drained_is_empty_in_the_end_and_no_guest_was_shut_down() {
    let names = ["a", "b", "c", "d", "e"];
    let world = Moving::ready(&names, Some("LiveMigrate"), true).await;
    let mut moved = 0;
    loop {
        let pods = world.on_node("one").await;
        if pods.is_empty() {
            break;
        }
        for pod in pods {
            let name = pod.name_any();
            let vmi = &pod.annotations()["kubevirt.io/domain"];
            match world.evict(&name, false).await {
                Ok(()) => {
                    assert_eq!(pod.status.as_ref().unwrap().phase.as_deref(), Some("Succeeded"), "{name} held a guest");
                    world.0.end_pod(&pod).await;
                }
                Err(why) => {
                    let triggered = format!("Eviction triggered evacuation of VMI \"default/{vmi}\"");
                    assert!(why == triggered || why == format!("Evacuation in progress: {triggered}"), "{why}");
                }
            }
        }
        sleep(Duration::from_secs(5)).await;
        let under_way = world.made().await;
        assert!(under_way.len() <= 2, "two leave a node at once: {under_way:?}");
        if let Some((migration, vmi)) = under_way.first() {
            let made = world.api().get(migration).await.unwrap();
            assert!(migration.starts_with("kubevirt-evacuation-"), "{migration}");
            assert_eq!(made.annotations()["kubevirt.io/evacuationMigration"], "one");
            assert_eq!(json!(made.spec.priority), json!("system-critical"));
            assert_eq!(
                condition(&world.0.vmis().get(vmi).await.unwrap(), "EvictionRequested"),
                Some("EvictionRequested")
            );
            world.bring(migration, vmi).await;
            moved += 1;
        }
    }
    assert_eq!(moved, names.len());
    for name in names {
        let vmi = world.0.vmi(name, |vmi| marked(vmi).is_none()).await;
        assert_eq!((phase(&vmi), condition(&vmi, "EvictionRequested")), ("Running", None));
        assert_eq!(vmi.status.unwrap().node_name.as_deref(), Some("two"));
    }
    world.0.writes();
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.0.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_eviction_is_told_to_the_descheduler_and_a_cancel_takes_it_back() {
    let world = Moving::ready(&["v"], Some("External"), true).await;
    let pod = world.source("v").await.name_any();
    let in_progress = async || {
        let pod = world.0.pods().get(&pod).await.unwrap();
        pod.annotations().contains_key("descheduler.alpha.kubernetes.io/eviction-in-progress")
    };
    world.evict(&pod, true).await.unwrap_err();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(marked(&world.0.vmis().get("v").await.unwrap()), None, "a dry run leaves no mark");
    world.evict(&pod, false).await.unwrap_err();
    until("the descheduler knows", async || in_progress().await.then_some(())).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.made().await, [], "somebody else takes it away");
    // As virtctl evacuate-cancel does.
    world.0.patch_vmi("v", &json!({ "status": { "evacuationNodeName": null } })).await;
    until("the descheduler knows", async || (!in_progress().await).then_some(())).await;
    let vmi = world.0.vmis().get("v").await.unwrap();
    assert_eq!((phase(&vmi), condition(&vmi, "EvictionRequested")), ("Running", None));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_evacuation_makes_no_second_migration() {
    let world = Moving::ready(&["v"], Some("LiveMigrate"), true).await;
    world.evict(&world.source("v").await.name_any(), false).await.unwrap_err();
    let migration = until("a migration", async || world.made().await.pop()).await.0;
    let target = world.target(&migration).await;
    world.0.patch_vmi("v", &json!({ "status": { "evacuationNodeName": null } })).await;
    world.api().delete(&migration, &DeleteParams::default()).await.unwrap();
    world.0.end_pod(&target).await;
    until("the migration goes", async || world.api().get_opt(&migration).await.unwrap().is_none().then_some(())).await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(world.made().await, []);
    assert_eq!(phase(&world.0.vmis().get("v").await.unwrap()), "Running");
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_cannot_move_stays_or_ends_as_its_strategy_says() {
    let world = Moving::ready(&["stays"], Some("LiveMigrate"), false).await;
    world.run("ends", Some("LiveMigrateIfPossible"), false).await;
    let [stays, ends] = [world.source("stays").await, world.source("ends").await];
    let why = "VMI stays is configured with an eviction strategy but is not live-migratable";
    assert_eq!(world.evict(&stays.name_any(), false).await, Err(why.to_owned()));
    assert_eq!(world.evict(&ends.name_any(), false).await, Ok(()));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.made().await, []);
    assert_eq!(marked(&world.0.vmis().get("stays").await.unwrap()), None);
    assert!(world.0.pods().get(&ends.name_any()).await.unwrap().metadata.deletion_timestamp.is_some());
}

/// Makes or changes the KubeVirt object.
pub(crate) async fn configure(world: &World, spec: &Value) {
    let api: Api<api::kubevirt::KubeVirt> = Api::default_namespaced(world.client.clone());
    let object =
        json!({ "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": { "name": "kubevirt" }, "spec": spec });
    match api.get_opt("kubevirt").await.unwrap() {
        Some(_) => _ = api.patch("kubevirt", &PatchParams::default(), &Patch::Merge(&object)).await.unwrap(),
        None => _ = api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap(),
    }
}

#[tokio::test(start_paused = true)]
async fn the_cluster_says_what_instances_do_not_and_a_taint_empties_a_node() {
    let world = Moving::ready(&[], None, true).await;
    let migrations = json!({ "nodeDrainTaintKey": "mine", "parallelOutboundMigrationsPerNode": 1 });
    configure(&world.0, &json!({ "configuration": { "evictionStrategy": "LiveMigrate", "migrations": migrations } }))
        .await;
    sleep(Duration::from_secs(5)).await;
    for name in ["a", "b"] {
        world.run(name, None, true).await;
    }
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.made().await, []);
    let nodes: Api<Node> = Api::all(world.0.client.clone());
    let taint = json!({ "spec": { "taints": [{ "key": "mine", "effect": "NoSchedule" }] } });
    nodes.patch("one", &PatchParams::default(), &Patch::Merge(&taint)).await.unwrap();
    for _ in ["a", "b"] {
        let (migration, vmi) = until("a migration", async || world.made().await.pop()).await;
        sleep(Duration::from_secs(60)).await;
        assert_eq!(world.made().await, [(migration.clone(), vmi.clone())], "one at a time");
        world.bring(&migration, &vmi).await;
    }
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.made().await, []);
}
