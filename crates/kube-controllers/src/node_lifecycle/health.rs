//! Signs of life: a node that renews its lease or posts its status lives. What counts is when we saw it change, by our
//! clock; the clocks of nodes are their own.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use tokio::time::Instant;

use super::{Options, condition};
use manager::writing::whole_second;

/// `NetworkUnavailable` is not the node's own word.
const POSTED_BY_NODES: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// What was last seen of a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Health {
    uid: Option<String>,
    posted: Posted,
    renewed: Option<MicroTime>,
    silent_at: Instant,
}

#[derive(Clone, Debug, PartialEq)]
enum Posted {
    Never,
    At(Option<Time>),
}

impl Posted {
    fn of(node: &Node) -> Self {
        condition(node, "Ready").map_or(Self::Never, |ready| Self::At(ready.last_heartbeat_time.clone()))
    }

    fn grace(&self, options: &Options) -> Duration {
        match self {
            Self::Never => options.startup_grace_period,
            Self::At(_) => options.monitor_grace_period,
        }
    }
}

impl Health {
    /// Takes in what the caches hold. A node that is new, to the cluster or to us, is given its time; but one that never
    /// said anything had it since it was made, whoever watched.
    pub(super) fn see(
        known: Option<Self>,
        node: &Node,
        lease: Option<&Lease>,
        options: &Options,
        (now, wall): (Instant, Timestamp),
    ) -> Self {
        let posted = Posted::of(node);
        let renewed = renew_time(lease);
        let grace = posted.grace(options);
        let uid = node.metadata.uid.clone();
        let Some(known) = known.filter(|known| known.uid == uid) else {
            let made =
                node.metadata.creation_timestamp.as_ref().filter(|_| posted == Posted::Never && renewed.is_none());
            let age = made.and_then(|made| Duration::try_from(wall.duration_since(made.0)).ok()).unwrap_or_default();
            return Self { uid, posted, renewed, silent_at: now + grace.saturating_sub(age) };
        };
        let lives = known.posted != posted || (renewed.is_some() && known.renewed != renewed);
        let silent_at = if lives { now + grace } else { known.silent_at };
        // A lease that is gone and comes back unchanged is no sign.
        Self { uid, posted, renewed: renewed.or(known.renewed), silent_at }
    }

    /// Starts the time anew, as after an outage of which nobody knows who was at fault.
    pub(super) fn pardon(&mut self, options: &Options, now: Instant) {
        self.silent_at = now + self.posted.grace(options);
    }

    pub(super) fn is_silent(&self, now: Instant) -> bool {
        now >= self.silent_at
    }

    /// Whether this lease tells something new.
    pub(super) fn is_news(&self, lease: Option<&Lease>) -> bool {
        let renewed = renew_time(lease);
        renewed.is_some() && renewed != self.renewed
    }
}

fn renew_time(lease: Option<&Lease>) -> Option<MicroTime> {
    lease?.spec.as_ref()?.renew_time.clone()
}

/// The conditions of a silent node that still claim to know something.
pub(super) fn unknown(node: &Node, now: Timestamp) -> Vec<NodeCondition> {
    let unknown = |kind: &&str| {
        let old = condition(node, kind);
        if old.is_some_and(|old| old.status == "Unknown") {
            return None;
        }
        let (reason, message) = match old {
            Some(_) => ("NodeStatusUnknown", "Kubelet stopped posting node status."),
            None => ("NodeStatusNeverUpdated", "Kubelet never posted node status."),
        };
        let heartbeat = old.map_or(node.metadata.creation_timestamp.clone(), |old| old.last_heartbeat_time.clone());
        Some(NodeCondition {
            type_: (*kind).to_owned(),
            status: "Unknown".to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_heartbeat_time: heartbeat,
            last_transition_time: Some(whole_second(now)),
        })
    };
    POSTED_BY_NODES.iter().filter_map(unknown).collect()
}
