//! Workload updates: guests leave launchers that are outdated.

use std::time::Duration;

use api::kubevirt::KubeVirt;
use kube::{Api, ResourceExt as _};
use serde_json::json;
use testkit::world::until;
use tokio::time::sleep;

use crate::evacuations::configure;
use crate::{Moving, support};

impl Moving {
    /// How many instances the KubeVirt object says are outdated.
    async fn outdated(&self, count: u32) {
        let api: Api<KubeVirt> = Api::default_namespaced(self.0.client.clone());
        until(&format!("{count} are outdated"), async || {
            let status = api.get("kubevirt").await.unwrap().status.unwrap_or_default();
            (status.outdated_virtual_machine_instance_workloads == Some(count)).then_some(())
        })
        .await;
    }

    /// Instances whose pods were told to end.
    async fn ending(&self) -> usize {
        let pods = self.0.pods().list(&Default::default()).await.unwrap().items;
        pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()).count()
    }
}

#[tokio::test(start_paused = true)]
async fn outdated_guests_move_to_new_launchers_and_are_not_outdated_any_more() {
    let world = Moving::ready(&["a", "b"], None, true).await;
    configure(&world.0, &json!({ "workloadUpdateStrategy": { "workloadUpdateMethods": ["LiveMigrate"] } })).await;
    world.outdated(0).await;
    world.0.run_launchers_as("launcher:v2");
    let label = "kubevirt.io/outdatedLauncherImage";
    for name in ["a", "b"] {
        world.0.vmi(name, |vmi| vmi.labels().contains_key(label)).await;
    }
    world.outdated(2).await;
    for _ in ["a", "b"] {
        let (migration, vmi) = until("a migration", async || world.made().await.pop()).await;
        assert!(migration.starts_with("kubevirt-workload-update-"), "{migration}");
        let made = world.api().get(&migration).await.unwrap();
        assert_eq!(made.annotations()["kubevirt.io/workloadUpdateMigration"], "");
        world.bring(&migration, &vmi).await;
        let moved = world.0.vmi(&vmi, |vmi| !vmi.labels().contains_key(label)).await;
        let status = moved.status.unwrap();
        assert_eq!(status.launcher_container_image_version.as_deref(), Some("launcher:v2"));
    }
    world.outdated(0).await;
    world.0.writes();
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.0.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn guests_that_cannot_move_are_evicted_in_batches() {
    let names = ["a", "b", "c"];
    let world = Moving::ready(&names, None, false).await;
    let strategy = json!({
        "workloadUpdateMethods": ["LiveMigrate", "Evict"], "batchEvictionSize": 2, "batchEvictionInterval": "10m",
    });
    configure(&world.0, &json!({ "workloadUpdateStrategy": strategy })).await;
    world.outdated(0).await;
    world.0.run_launchers_as("launcher:v2");
    until("the first batch", async || (world.ending().await == 2).then_some(())).await;
    sleep(Duration::from_secs(300)).await;
    assert_eq!((world.ending().await, world.made().await), (2, Vec::new()), "the next batch is not due");
    sleep(Duration::from_secs(300)).await;
    until("the second batch", async || (world.ending().await == 3).then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_that_was_called_off_cancels_its_migration() {
    let world = Moving::ready(&["v"], None, true).await;
    configure(&world.0, &json!({ "workloadUpdateStrategy": { "workloadUpdateMethods": ["LiveMigrate"] } })).await;
    let vmi = world.0.vmis().get("v").await.unwrap();
    let before = json!(vmi.status.unwrap().conditions);
    let mut changing = before.clone();
    changing.as_array_mut().unwrap().push(json!({ "type": "HotMemoryChange", "status": "True" }));
    world.0.patch_vmi("v", &json!({ "status": { "conditions": changing } })).await;
    let (migration, _) = until("a migration", async || world.made().await.pop()).await;
    assert_eq!(json!(world.api().get(&migration).await.unwrap().spec.priority), json!("user-triggered"));
    let target = world.target(&migration).await;
    world.0.patch_vmi("v", &json!({ "status": { "conditions": before } })).await;
    world.0.end_pod(&target).await;
    until("the migration goes", async || world.api().get_opt(&migration).await.unwrap().is_none().then_some(())).await;
    assert_eq!(support::phase(&world.0.vmis().get("v").await.unwrap()), "Running");
}
