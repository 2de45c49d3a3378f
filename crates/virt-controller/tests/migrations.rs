//! Migrations on the embedded server: the controllers are real, and the test plays scheduler, nodes and both handlers.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use api::migration::VirtualMachineInstanceMigration as Migration;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use testkit::world::until;
use tokio::time::sleep;

#[path = "migrations/evacuations.rs"]
mod evacuations;
#[expect(dead_code, reason = "each test uses a part of it")]
mod support;
#[path = "migrations/updates.rs"]
mod updates;

use support::World;

/// A world with instances that run on node `one`.
struct Moving(World);

impl Moving {
    async fn with(names: &[&str]) -> Self {
        let world = World::start().await;
        for name in names {
            world.create_vm(name, "Always").await;
            world.boot(name).await;
            world.word(name, "Running").await;
        }
        Self(world)
    }

    fn api(&self) -> Api<Migration> {
        Api::default_namespaced(self.0.client.clone())
    }

    async fn migrate(&self, name: &str, vmi: &str) {
        let migration = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
            "metadata": { "name": name, "finalizers": ["kubevirt.io/migrationJobFinalize"] }, "spec": { "vmiName": vmi },
        });
        self.api().create(&PostParams::default(), &serde_json::from_value(migration).unwrap()).await.unwrap();
    }

    async fn phase(&self, name: &str, phase: &str) -> Migration {
        until(&format!("migration {name} in {phase}"), async || {
            self.api().get_opt(name).await.unwrap().filter(|one| phase_of(one) == phase)
        })
        .await
    }

    /// The pod that a migration has made.
    async fn target(&self, name: &str) -> Pod {
        until(&format!("a target pod of {name}"), async || self.targets(name).await.into_iter().next()).await
    }

    async fn targets(&self, name: &str) -> Vec<Pod> {
        let pods = self.0.pods().list(&Default::default()).await.unwrap().items;
        let is_of = |pod: &Pod| pod.annotations().get("kubevirt.io/migrationJobName").is_some_and(|one| one == name);
        pods.into_iter().filter(is_of).collect()
    }

    /// Plays a handler.
    async fn say(&self, vmi: &str, state: &Value) {
        self.0.patch_vmi(vmi, &json!({ "status": { "migrationState": state } })).await;
    }

    /// Plays everybody until the guest has arrived on node `two`.
    async fn arrive(&self, vmi: &str) {
        self.say(vmi, &json!({ "targetNodeAddress": "10.0.0.2" })).await;
        self.say(vmi, &json!({ "startTimestamp": "1970-01-01T00:02:00Z" })).await;
        let moved = json!({
            "metadata": { "labels": { "kubevirt.io/nodeName": "two", "kubevirt.io/migrationTargetNodeName": null } },
            "status": { "nodeName": "two", "migrationState": { "completed": true, "endTimestamp": "1970-01-01T00:02:09Z" } },
        });
        self.0.patch_vmi(vmi, &moved).await;
    }
}

fn phase_of(migration: &Migration) -> String {
    let phase = migration.status.as_ref().and_then(|status| status.phase.as_ref());
    phase.map(ToString::to_string).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_guest_moves_and_its_instance_goes_on() {
    let world = Moving::with(&["v"]).await;
    world.0.writes();
    world.migrate("m", "v").await;
    let target = world.target("m").await;
    world.phase("m", "Scheduling").await;
    world.0.run_pod_on(&target, "two").await;
    world.phase("m", "PreparingTarget").await;
    let vmi = world.0.vmi("v", |vmi| vmi.labels().contains_key("kubevirt.io/migrationTargetNodeName")).await;
    let state = vmi.status.unwrap().migration_state.unwrap();
    assert_eq!(state.target_pod, target.metadata.name);
    world.arrive("v").await;
    let done = world.phase("m", "Succeeded").await;
    let entered = done.status.unwrap().phase_transition_timestamps.unwrap();
    assert_eq!(entered.last().unwrap().phase.as_ref().unwrap().to_string(), "Succeeded");
    until("the finalizer goes", async || {
        Some(world.api().get("m").await.unwrap()).filter(|one| one.finalizers().is_empty())
    })
    .await;
    sleep(Duration::from_secs(60)).await;
    let vmi = world.0.vmis().get("v").await.unwrap();
    assert_eq!(support::phase(&vmi), "Running");
    let uid = target.metadata.uid.unwrap();
    assert_eq!(vmi.status.unwrap().active_pods.unwrap().into_iter().collect::<Vec<_>>(), [(uid, "two".to_owned())]);
    world.0.writes();
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.0.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_migration_leaves_nothing_behind() {
    let world = Moving::with(&["v"]).await;
    world.migrate("m", "v").await;
    let target = world.target("m").await;
    world.api().delete("m", &DeleteParams::default()).await.unwrap();
    world.0.end_pod(&target).await;
    until("the migration goes", async || world.api().get_opt("m").await.unwrap().is_none().then_some(())).await;
    let vmi = world.0.vmis().get("v").await.unwrap();
    assert_eq!(vmi.status.unwrap().migration_state, None, "the instance never heard of it");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_after_the_hand_over_is_the_handlers_to_decide() {
    let world = Moving::with(&["v"]).await;
    world.migrate("m", "v").await;
    let target = world.target("m").await;
    world.0.run_pod_on(&target, "two").await;
    world.phase("m", "PreparingTarget").await;
    world.say("v", &json!({ "targetNodeAddress": "10.0.0.2", "startTimestamp": "1970-01-01T00:02:00Z" })).await;
    world.phase("m", "Running").await;
    world.api().delete("m", &DeleteParams::default()).await.unwrap();
    world
        .0
        .vmi("v", |vmi| {
            let state = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref());
            state.is_some_and(|state| state.abort_requested == Some(true))
        })
        .await;
    assert_eq!(phase_of(&world.api().get("m").await.unwrap()), "Running");
    let end = json!({ "abortStatus": "Succeeded", "completed": true, "failed": true, "endTimestamp": "1970-01-01T00:02:09Z" });
    world.say("v", &end).await;
    world.0.end_pod(&target).await;
    until("the migration goes", async || world.api().get_opt("m").await.unwrap().is_none().then_some(())).await;
    let vmi = world.0.vmis().get("v").await.unwrap();
    assert_eq!(support::phase(&vmi), "Running");
}

#[tokio::test(start_paused = true)]
async fn no_more_move_at_once_than_the_limits_say_and_all_move_in_the_end() {
    let names = ["a", "b", "c", "d"];
    let world = Moving::with(&names).await;
    for name in names {
        world.migrate(&format!("m-{name}"), name).await;
    }
    let mut left = names.to_vec();
    while !left.is_empty() {
        sleep(Duration::from_secs(30)).await;
        let mut begun = Vec::new();
        for name in &left {
            if let Some(pod) = world.targets(&format!("m-{name}")).await.into_iter().next() {
                begun.push((*name, pod));
            }
        }
        assert!((1..=2).contains(&begun.len()), "two leave a node at once: {}", begun.len());
        let (name, pod) = begun.swap_remove(0);
        world.0.run_pod_on(&pod, "two").await;
        world.phase(&format!("m-{name}"), "PreparingTarget").await;
        world.arrive(name).await;
        world.phase(&format!("m-{name}"), "Succeeded").await;
        left.retain(|one| *one != name);
    }
}

#[tokio::test(start_paused = true)]
async fn a_target_that_dies_before_the_guest_comes_costs_nothing() {
    let world = Moving::with(&["v"]).await;
    world.migrate("m", "v").await;
    let target = world.target("m").await;
    world.0.run_pod_on(&target, "two").await;
    world.phase("m", "PreparingTarget").await;
    world.0.patch_pod(&target.name_any(), &json!({ "phase": "Failed" })).await;
    let failed = world.phase("m", "Failed").await;
    let state = failed.status.unwrap().migration_state.unwrap();
    assert_eq!(state.failure_reason.as_deref(), Some("the target pod ended before the guest came"));
    sleep(Duration::from_secs(60)).await;
    let vmi = world.0.vmis().get("v").await.unwrap();
    let node = vmi.status.as_ref().and_then(|status| status.node_name.as_deref());
    assert_eq!((support::phase(&vmi), node), ("Running", Some("one")));
}
