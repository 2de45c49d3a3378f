//! The scheduler's decisions: which node a pod goes to, and when it is tried again.
//!
//! ```text
//! nodes, pods, namespaces ──> Cluster ──┐            ┌─> Bind: assume, then write the binding
//! pending pods ──> Queue ──pop──> PodInfo ──schedule──┤
//!                    ^                               └─> Unschedulable: write the condition, Queue::failed
//!                    └── Event, from each update of the Cluster
//! ```
//! Watches: Node, Pod, Namespace. Owns: nothing. Emits: a binding, or the message of the `PodScheduled` condition.
//!
//! One attempt runs the table of filters over all nodes and, where more than one node is left, the table of scores over
//! those. Rules, weights and wording are those of Kubernetes v1.36 (`pkg/scheduler/framework/plugins`).
//!
//! Absent on purpose:
//! - Preemption; so the message ends where Kubernetes would begin with `preemption:`.
//! - What [`ignored_fields`] names: topology spread, resource claims, scheduling groups. Nor do claims of volumes and
//!   images that a node already has play a part.
//! - `matchLabelKeys` of pod affinity: the API server merges them into the label selector when it stores the pod.
//! - Resizing in place: a pod counts with what its spec asks for, not with what its status says it still holds.
//! - Sampling: Kubernetes looks at part of a large cluster only, here every node is looked at.

mod affinity;
mod census;
mod cluster;
mod filter;
mod node;
mod pod;
mod queue;
mod reason;
mod resources;
pub mod run;
mod score;
mod selector;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

pub use cluster::Cluster;
pub(crate) use filter::tolerates;
pub use pod::{PodInfo, ignored_fields};
pub use queue::{Event, Queue};

use affinity::{Domains, Pull};
use filter::{Attempt, FILTERS};
use node::NodeInfo;
use reason::{Reason, message};
use score::{Preferences, best};

/// What came of one attempt to place a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The pod fits best there.
    Bind {
        /// The node's name.
        node: String,
    },
    /// No node takes the pod as things are.
    Unschedulable {
        /// For the pod's condition and its event, in Kubernetes' words.
        message: String,
        /// What may change that; for [`Queue::failed`].
        cured_by: BTreeSet<Event>,
    },
}

impl Cluster {
    /// # Guarantees
    /// - A node that is named here passes every filter; with [`Cluster::assume`] after each `Bind`, no node is ever
    ///   given more than it can allocate.
    /// - The same cluster, brought about by the same calls, decides the same. Among nodes of equal score the choice
    ///   goes round by name, so that equal pods spread.
    pub fn schedule(&mut self, pod: &PodInfo) -> Outcome {
        let outcome = self.decide(pod);
        if matches!(outcome, Outcome::Bind { .. }) {
            self.advance_rotation();
        }
        outcome
    }

    fn decide(&self, pod: &PodInfo) -> Outcome {
        let total = self.nodes().len();
        if total == 0 {
            return unschedulable("no nodes available to schedule pods".to_owned(), &[]);
        }
        if pod.node_names.as_ref().is_some_and(BTreeSet::is_empty) {
            // Only an edit of the pod can help, and that comes back through `Queue::push`.
            let message = format!("0/{total} nodes are available: pod affinity terms conflict.");
            return Outcome::Unschedulable { message, cured_by: BTreeSet::new() };
        }
        let attempt = Attempt { pod, domains: Domains::around(pod, self) };
        let mut feasible = Vec::new();
        let mut reasons = Vec::new();
        for node in self.nodes() {
            match refusal(&attempt, node) {
                None => feasible.push(node),
                Some(reason) => reasons.push(reason),
            }
        }
        match feasible.as_slice() {
            [] => unschedulable(message(total, &reasons), &reasons),
            [only] => Outcome::Bind { node: only.name.clone() },
            several => {
                let preferences = Preferences { pod, pull: Pull::on(pod, self) };
                Outcome::Bind { node: best(&preferences, several, self.rotation()).to_owned() }
            }
        }
    }
}

/// The first filter that refuses decides: the order of the table is part of the message.
fn refusal(attempt: &Attempt<'_>, node: &NodeInfo) -> Option<Reason> {
    FILTERS.iter().find_map(|filter| filter(attempt, node).err())
}

fn unschedulable(message: String, reasons: &[Reason]) -> Outcome {
    // A new node is always worth another look.
    let mut cured_by = BTreeSet::from([Event::Node]);
    for reason in reasons {
        cured_by.extend(Event::ALL.into_iter().filter(|event| reason.is_cured_by(*event)));
    }
    Outcome::Unschedulable { message, cured_by }
}
