//! Which instances go first when there are too many.

use std::cmp::Reverse;

use api::conditions::{self, ConditionStatus};
use api::vmi::VirtualMachineInstance;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// How much would be lost with an instance, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Worth {
    /// It has not come to run yet.
    Starting,
    /// It is on its way to another node, which would be for nothing otherwise.
    Migrating,
    /// It runs, and cannot be used.
    NotReady,
    Ready,
}

/// So many of these, those that are missed least first: by worth, then the youngest, then by name. KubeVirt promises no order.
pub(super) fn choose<'a>(active: &[&'a VirtualMachineInstance], count: usize) -> Vec<&'a VirtualMachineInstance> {
    let mut sorted = active.to_vec();
    sorted.sort_by_key(|instance| {
        let created = instance.metadata.creation_timestamp.as_ref().map(|Time(at)| *at);
        (worth(instance), Reverse(created), instance.metadata.name.clone())
    });
    sorted.truncate(count);
    sorted
}

fn worth(instance: &VirtualMachineInstance) -> Worth {
    let status = instance.status.as_ref();
    let migration = status.and_then(|status| status.migration_state.as_ref());
    if !instance.is_running() {
        Worth::Starting
    } else if migration.is_some_and(|migration| migration.completed != Some(true)) {
        Worth::Migrating
    } else if is_ready(instance) {
        Worth::Ready
    } else {
        Worth::NotReady
    }
}

/// Whether it can be used.
pub(super) fn is_ready(instance: &VirtualMachineInstance) -> bool {
    let all = instance.status.as_ref().and_then(|status| status.conditions.as_deref());
    conditions::has(all, "Ready", &ConditionStatus::True)
}
