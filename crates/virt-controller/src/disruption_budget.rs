//! Disruption budgets of instances: KubeVirt makes none any more, and this controller removes those of earlier releases.
//!
//! Watches: PodDisruptionBudget. Owns: those that an instance controls. Emits: their deletion. Absent on purpose: new budgets. A
//! budget of one launcher could only refuse every eviction, and a drain that waits for it never ended. Evictions of launchers are
//! for admission to answer: it refuses them and marks the instance, so that a migration moves it (`evictionStrategy`). An instance
//! whose strategy is `None` is not kept: an eviction ends its guest gracefully, as a deletion of its pod does.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{Api, Client};
use manager::cache::{Cache, Key};
use manager::claim::controller_of;
use manager::context::{Context, Started};
use manager::events::{Kind, Recorder};
use manager::kit::{Kit, Reconciler};
use manager::worker::Next;
use manager::writing::delete_as_seen;

/// As the flag `--controllers` knows it.
pub const NAME: &str = "disruptionbudget-controller";

/// The controller.
#[must_use]
pub fn start(context: &Context, workers: usize) -> Started {
    let budgets = context.caches.of(&[]);
    let recorder = context.recorder.of("disruptionbudget-controller");
    let controller = DisruptionBudgets { client: context.client.clone(), budgets: budgets.clone(), recorder };
    Kit::new(NAME, context).reconciles(&budgets).run(workers, controller)
}

struct DisruptionBudgets {
    client: Client,
    budgets: Cache<PodDisruptionBudget>,
    recorder: Recorder,
}

impl Reconciler for DisruptionBudgets {
    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let Some(budget) = self.budgets.get(key).filter(|budget| is_left_over(budget)) else { return Ok(Next::Wait) };
        let api: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), &key.namespace);
        let (uid, version) = (budget.metadata.uid.as_deref(), budget.metadata.resource_version.as_deref());
        delete_as_seen(&api, &key.name, uid.unwrap_or_default(), version.unwrap_or_default()).await?;
        let message = format!("Deleted PodDisruptionBudget {}", key.name);
        self.recorder.record(&*budget, Kind::Normal, "SuccessfulDelete", message);
        Ok(Next::Wait)
    }
}

/// # Guarantees
/// - Only budgets that an instance controls are left over: those of users, and of other kinds, stay.
/// - One that is on its way out is not deleted again.
fn is_left_over(budget: &PodDisruptionBudget) -> bool {
    let of_instance = controller_of(&budget.metadata)
        .is_some_and(|owner| owner.kind == "VirtualMachineInstance" && owner.api_version.starts_with("kubevirt.io/"));
    of_instance && budget.metadata.deletion_timestamp.is_none()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    proptest! {
        #[test]
        fn only_budgets_of_instances_are_left_over(
            kind in "VirtualMachineInstance|VirtualMachine|Deployment",
            version in r"kubevirt\.io/v1|kubevirt\.io/v1alpha3|apps/v1",
            controls: bool,
            owned: bool,
            deleted: bool,
        ) {
            let owner = json!({ "apiVersion": version, "kind": kind, "name": "v", "uid": "u", "controller": controls });
            let metadata = json!({
                "name": "b", "ownerReferences": if owned { json!([owner]) } else { json!([]) },
                "deletionTimestamp": deleted.then_some("2026-01-01T00:00:00Z"),
            });
            let budget: PodDisruptionBudget = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
            let expected = owned && controls && !deleted && kind == "VirtualMachineInstance" && version.starts_with("kubevirt");
            prop_assert_eq!(is_left_over(&budget), expected);
        }
    }
}
