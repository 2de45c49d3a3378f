//! Which pods go first when there are too many.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use crate::pods;
use manager::claim::Target;

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The first `count` of `mine`, those that are missed least first.
pub(super) fn choose(mine: &[&Pod], siblings: &[&Pod], count: usize, now: Timestamp) -> Vec<Target> {
    if count == 0 {
        return Vec::new();
    }
    let mut on_node: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in mine.iter().chain(siblings).filter(|pod| pods::is_active(pod)) {
        *on_node.entry(node(pod)).or_default() += 1;
    }
    let mut ordered = mine.to_vec();
    ordered.sort_by_cached_key(|pod| Worth::of(pod, on_node.get(node(pod)).copied().unwrap_or(0), now));
    ordered.into_iter().take(count).map(|pod| Target::of(&pod.metadata)).collect()
}

/// What a pod is worth; its fields in order of weight, the least first to go.
///
/// Kubernetes compares two pods of one age bracket by UID and looks no further. That is no order at all when a third
/// pod has the age of one of them; here restarts decide before the UID does.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Worth {
    assigned: bool,
    phase: Phase,
    ready: bool,
    deletion_cost: i32,
    crowding: Reverse<usize>,
    ready_for: Age,
    restarts: Reverse<(i32, i32)>,
    created: Age,
    uid: String,
}

impl Worth {
    fn of(pod: &Pod, on_its_node: usize, now: Timestamp) -> Self {
        let cost =
            pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(DELETION_COST)?.parse().ok());
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        Self {
            assigned: !node(pod).is_empty(),
            phase: Phase::of(pod),
            ready: pods::is_ready(pod),
            deletion_cost: cost.unwrap_or(0),
            crowding: Reverse(on_its_node),
            ready_for: Age::of(pods::ready_since(pod), now),
            restarts: Reverse((restarts(pod), sidecar_restarts(pod))),
            created: Age::of(created, now),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
        }
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Pending,
    Unknown,
    Running,
}

impl Phase {
    fn of(pod: &Pod) -> Self {
        match pods::phase(pod) {
            "Running" => Self::Running,
            "Unknown" => Self::Unknown,
            _ => Self::Pending,
        }
    }
}

/// How old, in brackets that double: within one bracket pods are equals, so that not always the newest zone is emptied.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Age {
    Unknown,
    Zero,
    PowerOfTwo(u32),
}

impl Age {
    fn of(since: Option<Timestamp>, now: Timestamp) -> Self {
        let Some(since) = since else { return Self::Unknown };
        now.duration_since(since).as_nanos().checked_ilog2().map_or(Self::Zero, Self::PowerOfTwo)
    }
}

fn node(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    most_restarts(statuses)
}

fn sidecar_restarts(pod: &Pod) -> i32 {
    let init_containers = || pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let is_sidecar = |name: &str| {
        init_containers()
            .any(|container| container.name == name && container.restart_policy.as_deref() == Some("Always"))
    };
    let statuses = pod.status.iter().flat_map(|status| status.init_container_statuses.iter().flatten());
    most_restarts(statuses.filter(|status| is_sidecar(&status.name)))
}

fn most_restarts<'a>(statuses: impl Iterator<Item = &'a ContainerStatus>) -> i32 {
    statuses.map(|status| status.restart_count).max().unwrap_or(0)
}
