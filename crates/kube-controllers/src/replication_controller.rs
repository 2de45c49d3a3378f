//! Replication controllers: what replica sets are, from before there were any.
//!
//! What is decided and done about one is decided and done by the controller of replica sets, about the replica set that it
//! stands for. Here is how one is read as a replica set, and how its status is written back.

use std::borrow::Cow;

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{
    ReplicationController, ReplicationControllerCondition, ReplicationControllerSpec, ReplicationControllerStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use manager::context::{Context, Started};
use manager::kit::Kit;

use crate::replicaset::controller::start_for;
use crate::replicaset::kind::Replicated;

/// As the flag `--controllers` knows it.
pub const NAME: &str = "replicationcontroller-controller";

/// The controller.
#[must_use]
pub fn start(context: &Context, workers: usize) -> Started {
    start_for::<ReplicationController>(Kit::new(NAME, context), context, workers)
}

impl Replicated for ReplicationController {
    const COUNTS_TERMINATING: bool = false;
    const COMPONENT: &'static str = "replication-controller";

    fn as_set(&self) -> Cow<'_, ReplicaSet> {
        Cow::Owned(ReplicaSet {
            metadata: self.metadata.clone(),
            spec: self.spec.as_ref().map(set_spec),
            status: self.status.as_ref().map(set_status),
        })
    }

    fn with_status(&self, status: &ReplicaSetStatus) -> Self {
        Self { status: Some(own_status(status)), ..self.clone() }
    }
}

fn set_spec(spec: &ReplicationControllerSpec) -> ReplicaSetSpec {
    let ReplicationControllerSpec { min_ready_seconds, replicas, selector, template } = spec;
    ReplicaSetSpec {
        min_ready_seconds: *min_ready_seconds,
        replicas: *replicas,
        selector: LabelSelector { match_labels: selector.clone(), match_expressions: None },
        template: template.clone(),
    }
}

fn set_status(status: &ReplicationControllerStatus) -> ReplicaSetStatus {
    let ReplicationControllerStatus {
        available_replicas,
        conditions,
        fully_labeled_replicas,
        observed_generation,
        ready_replicas,
        replicas,
    } = status;
    let conditions = conditions.as_ref().map(|all| {
        let converted = all.iter().map(|one| ReplicaSetCondition {
            last_transition_time: one.last_transition_time.clone(),
            message: one.message.clone(),
            reason: one.reason.clone(),
            status: one.status.clone(),
            type_: one.type_.clone(),
        });
        converted.collect()
    });
    ReplicaSetStatus {
        available_replicas: *available_replicas,
        conditions,
        fully_labeled_replicas: *fully_labeled_replicas,
        observed_generation: *observed_generation,
        ready_replicas: *ready_replicas,
        replicas: *replicas,
        terminating_replicas: None,
    }
}

fn own_status(status: &ReplicaSetStatus) -> ReplicationControllerStatus {
    let ReplicaSetStatus {
        available_replicas,
        conditions,
        fully_labeled_replicas,
        observed_generation,
        ready_replicas,
        replicas,
        terminating_replicas: _,
    } = status;
    let conditions = conditions.as_ref().map(|all| {
        let converted = all.iter().map(|one| ReplicationControllerCondition {
            last_transition_time: one.last_transition_time.clone(),
            message: one.message.clone(),
            reason: one.reason.clone(),
            status: one.status.clone(),
            type_: one.type_.clone(),
        });
        converted.collect()
    });
    ReplicationControllerStatus {
        available_replicas: *available_replicas,
        conditions,
        fully_labeled_replicas: *fully_labeled_replicas,
        observed_generation: *observed_generation,
        ready_replicas: *ready_replicas,
        replicas: *replicas,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use jiff::Timestamp;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;
    use crate::replicaset::{FailedVerb, Failure, Observed, Plan, decide};

    fn controller(replicas: i32) -> ReplicationController {
        serde_json::from_value(json!({
            "metadata": { "name": "web", "namespace": "shop", "uid": "u-web", "generation": 3 },
            "spec": {
                "replicas": replicas,
                "selector": { "app": "web" },
                "template": {
                    "metadata": { "labels": { "app": "web" } },
                    "spec": { "containers": [{ "name": "web", "image": "web:1" }] },
                },
            },
        }))
        .unwrap()
    }

    fn plan(controller: &ReplicationController, pods: &[Pod], failure: Option<Failure>) -> Plan {
        let seen = Observed {
            replica_set: controller,
            pods: pods.iter().collect(),
            siblings: Vec::new(),
            taken_names: BTreeSet::new(),
            failure,
        };
        decide(&seen, Timestamp::UNIX_EPOCH).unwrap()
    }

    #[test]
    fn its_pods_say_that_it_owns_them() {
        let create = plan(&controller(2), &[], None).create.unwrap();
        let owners: Vec<_> = create.pods().map(|pod| pod.metadata.owner_references.unwrap().remove(0)).collect();
        assert_eq!(owners.len(), 2);
        assert!(owners.iter().all(|one| one.api_version == "v1" && one.kind == "ReplicationController"), "{owners:?}");
    }

    #[test]
    fn a_status_that_is_written_is_read_back_as_it_was_planned() {
        let failure = Failure { verb: FailedVerb::Create, message: "no room".to_owned() };
        let planned = plan(&controller(1), &[], Some(failure.clone())).status.unwrap();
        let written = controller(1).with_status(&planned);
        assert_eq!(written.as_set().status.as_ref(), Some(&planned));
        assert_eq!(plan(&written, &[], Some(failure)).status, None);
    }

    /// Its status has no field for them, so that their number is no reason to write again and again.
    #[test]
    fn pods_on_their_way_out_are_not_counted() {
        let mut going = plan(&controller(1), &[], None).create.unwrap().pods().next().unwrap();
        going.metadata.uid = Some("u-pod".to_owned());
        let pods = [serde_json::from_value::<Pod>({
            let mut value = serde_json::to_value(&going).unwrap();
            value["metadata"]["deletionTimestamp"] = json!("2026-01-01T11:59:00Z");
            value
        })
        .unwrap()];
        let planned = plan(&controller(0), &pods, None).status.unwrap();
        assert_eq!(planned.terminating_replicas, None);
        assert_eq!(plan(&controller(0).with_status(&planned), &pods, None), Plan::default());
    }
}
