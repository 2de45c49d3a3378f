//! Instances: from an accepted VMI to its launcher pod, to the node that takes over, and to a clean end.
//!
//! ```text
//! VMI ───────────────┐
//! its pods ──────────┼─> observe ──> decide ──> Plan ──> act: pods, then one write of the VMI
//! claims, volumes ───┤
//! configuration ─────┘
//! ```
//! Watches: VMI, Pod, PersistentVolumeClaim, DataVolume, StorageClass, Namespace, ResourceQuota, KubeVirt.
//! Owns: the launcher pod; a VMI's phase until its pod is ready, when the node's handler takes over; the condition
//! `EvictionRequested`, and the end of the mark that it shows; the label of outdated launchers. Emits: events about pods that were
//! made, deleted, or cannot be.
//! Absent on purpose: why an instance is wanted. A VM is only an owner like any other.

mod conditions;
pub mod controller;
mod end;
mod handover;
mod marks;
pub mod pods;
pub mod volumes;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use api::names::finalizer;
use api::vmi::VirtualMachineInstance;
use api::vmi_status::{
    VirtualMachineInstancePhase as Phase, VirtualMachineInstancePhaseTransitionTimestamp as Transition,
    VirtualMachineInstanceStatus,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use manager::events::Kind;
use manager::writing::{difference, whole_second};
use serde_json::{Value, json};
use virt_rules::config::ClusterConfig;

use crate::render::{self, Input, Launcher, Namespace, RenderError};
use volumes::Readiness;

pub(crate) use conditions::not_running;

/// What the caches say about one instance.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    pub vmi: &'a VirtualMachineInstance,
    /// The pods that it controls.
    pub pods: Vec<&'a Pod>,
    /// Whether the server itself was asked for pods, because the cache has none where one should be.
    pub asked: bool,
    /// What is known of its volumes.
    pub volumes: volumes::Known<'a>,
    /// What matters of its namespace.
    pub namespace: Namespace,
    /// The cluster's configuration.
    pub config: &'a ClusterConfig,
    /// How launchers are run.
    pub launcher: &'a Launcher,
    /// Whether nodes can mount images as volumes.
    pub image_volumes: bool,
    /// Why the pod could not be made at the last attempt; none once it was.
    pub failure: Option<&'a str>,
    /// VSOCK context IDs that others have.
    pub taken_cids: &'a BTreeSet<u32>,
    /// A number by chance.
    pub chance: u64,
}

/// What to do about one instance; empty at rest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Nothing else: ask the server itself for the pods, and decide again. A cache may lag, and what follows from a pod that
    /// is gone cannot be undone.
    pub ask: bool,
    /// A pod that is missing.
    pub create: Option<Box<Pod>>,
    /// Pods that must go.
    pub delete: Vec<Deletion>,
    /// What the readiness gate of the launcher pod tells.
    pub gate: Option<(Target, PodCondition)>,
    /// A merge patch of the launcher pod's labels and annotations.
    pub marks: Option<(Target, Value)>,
    /// A merge patch of the instance; it carries the version that was observed, and the UID.
    pub change: Option<Value>,
    /// What people should read.
    pub events: Vec<Event>,
}

/// One object, named such that no namesake is hit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub name: String,
    pub uid: String,
}

/// A pod that must go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    pub target: Target,
    /// Seconds, if other than the pod's own.
    pub grace: Option<u32>,
    /// Only as it was seen: in this version.
    pub version: Option<String>,
}

/// Something to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Whether all is well.
    pub kind: Kind,
    /// A word.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

impl Event {
    pub(crate) fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind: Kind::Warning, reason, message: message.into() }
    }
}

/// A decision in the making: the instance as it shall be, and what else is to be done.
struct Making<'a> {
    seen: &'a Observed<'a>,
    /// The launcher that holds the guest, or will boot it.
    pod: Option<&'a Pod>,
    /// Launchers that a guest may come to.
    targets: Vec<&'a Pod>,
    next: VirtualMachineInstance,
    now: Timestamp,
    plan: Plan,
}

/// # Guarantees
/// - A pod that a node has taken is never replaced.
/// - A pod is made only while the instance is young (no phase, or Pending), not about to go, and carries the finalizer that
///   keeps it until its pods are gone.
/// - From Scheduled on the phase is the handler's; only a pod that the server itself does not know makes it Failed, and that not
///   while another waits for the guest.
/// - A pod that waits for the guest is never taken for the one that holds it.
/// - The finalizer goes only when the server itself knows no pod of the instance.
/// - Equal observations give equal plans; at rest the plan is empty.
#[must_use]
pub fn decide(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let vmi = seen.vmi;
    let pods::Launchers { holder: pod, targets } = pods::launchers(vmi, &seen.pods);
    // What has ended and is let go needs no pod to be gone.
    let is_over = vmi.is_final() && !has_finalizer(vmi);
    let leans_on_absence = match vmi.is_marked_for_deletion() {
        true => seen.pods.is_empty(),
        false => pod.is_none() && has_pod(vmi.phase()),
    };
    if leans_on_absence && !is_over && !seen.asked {
        return Plan { ask: true, ..Plan::default() };
    }
    let mut making = Making { seen, pod, targets, next: vmi.clone(), now, plan: Plan::default() };
    if vmi.is_marked_for_deletion() {
        making.end();
    } else {
        match vmi.phase() {
            Phase::Unset | Phase::Pending => making.begin(),
            Phase::Scheduling => making.schedule(),
            Phase::Scheduled | Phase::Running => making.watch_over(),
            // It ended: its pod stays until it is deleted, so that its log can be read.
            Phase::Succeeded | Phase::Failed => making.clear_provisioning(),
            Phase::WaitingForSync | Phase::Unknown | Phase::Other(_) => {}
        }
    }
    making.finish()
}

/// Whether an instance of this phase has a pod, unless something went wrong.
fn has_pod(phase: &Phase) -> bool {
    matches!(phase, Phase::Scheduling | Phase::Scheduled | Phase::Running)
}

fn has_finalizer(vmi: &VirtualMachineInstance) -> bool {
    vmi.metadata.finalizers.iter().flatten().any(|one| one == finalizer::VMI)
}

impl Making<'_> {
    fn status(&mut self) -> &mut VirtualMachineInstanceStatus {
        self.next.status.get_or_insert_default()
    }

    fn enter(&mut self, phase: Phase) {
        if self.next.phase() == &phase {
            return;
        }
        let at = whole_second(self.now);
        let status = self.status();
        let entered = status.phase_transition_timestamps.get_or_insert_default();
        entered.push(Transition { phase: Some(phase.clone()), phase_transition_timestamp: Some(at) });
        status.phase = Some(phase);
    }

    /// No phase yet, or Pending: whatever keeps the pod from being made is told, and then it is made.
    fn begin(&mut self) {
        if self.pod.is_some() {
            return self.schedule();
        }
        if !has_finalizer(&self.next) {
            self.next.metadata.finalizers.get_or_insert_default().push(finalizer::VMI.to_owned());
            self.enter(Phase::Pending);
            return;
        }
        let readiness = volumes::readiness(self.seen.vmi, &self.seen.volumes);
        self.enter(Phase::Pending);
        conditions::volumes(&mut self.next, &readiness, self.now);
        match readiness {
            Readiness::Ready => {
                self.clear_provisioning();
                self.make_pod(false);
            }
            Readiness::NeedsConsumer { .. } if pods::provisioning(&self.seen.pods).next().is_none() => {
                self.make_pod(true);
            }
            Readiness::NeedsConsumer { .. } | Readiness::Waits { .. } => {}
            Readiness::Missing { ref message } => self.tell_once("FailedPvcNotFound", message),
            Readiness::Failed { reason, ref message } => self.tell_once(reason, message),
        }
    }

    fn make_pod(&mut self, provisioning: bool) {
        match self.render(provisioning) {
            Ok(pod) => {
                self.plan.create = Some(Box::new(pod));
                if let Some(failure) = self.seen.failure {
                    conditions::not_synchronized(&mut self.next, "FailedCreate", failure, self.now);
                }
            }
            Err(error) => self.tell_once("FailedCreate", &error.to_string()),
        }
    }

    fn render(&self, provisioning: bool) -> Result<Pod, RenderError> {
        let claims = self.seen.volumes.claims_by_mode();
        let input = Input {
            vmi: self.seen.vmi,
            config: self.seen.config,
            launcher: self.seen.launcher,
            claims: &claims,
            namespace: &self.seen.namespace,
            image_volumes: self.seen.image_volumes,
        };
        if provisioning { render::provisioning(&input) } else { render::render(&input) }
    }

    /// A warning, as a condition and, when that is new, as an event.
    fn tell_once(&mut self, reason: &'static str, message: &str) {
        if conditions::not_synchronized(&mut self.next, reason, message, self.now) {
            self.plan.events.push(Event::warning(reason, message));
        }
    }

    /// The pod is there and not yet the node's: until it is ready, or ends.
    fn schedule(&mut self) {
        let Some(pod) = self.pod else {
            conditions::forget_start(&mut self.next);
            return self.enter(Phase::Failed);
        };
        self.clear_provisioning();
        if pods::has_ended(pod) {
            self.tell_end(pod);
            self.enter(Phase::Failed);
        } else if pods::is_ready_to_run(pod) && !pods::is_terminating(pod) {
            self.hand_over(pod);
        } else if self.is_outdated(pod) {
            self.replace(pod);
        } else {
            self.enter(Phase::Scheduling);
            self.note_pod(pod);
        }
        if matches!(self.next.phase(), Phase::Scheduling | Phase::Pending) {
            conditions::pod_scheduled(&mut self.next, pod, self.now);
            self.note_image_pull(pod);
        } else {
            conditions::forget_start(&mut self.next);
        }
    }

    /// Whether no node has taken the pod, and it would be another if it were made now: guests run with something else, or the
    /// configuration or the nodes' offers have changed.
    fn is_outdated(&self, pod: &Pod) -> bool {
        let is_free = pods::node(pod).is_empty() && !pods::is_terminating(pod);
        is_free && self.render(false).is_ok_and(|now| render::fingerprint::differs(pod, &now))
    }

    /// Makes room for another pod. A node may take this one at any moment; so the instance first goes back to where it may
    /// have a new one, and then the pod goes as it was seen, or not at all.
    fn replace(&mut self, pod: &Pod) {
        if self.seen.vmi.phase() != &Phase::Pending {
            return self.enter(Phase::Pending);
        }
        let version = pod.metadata.resource_version.clone();
        self.plan.delete.push(Deletion { target: pods::target(pod), grace: None, version });
    }

    /// Why images of the pod do not come.
    fn note_image_pull(&mut self, pod: &Pod) {
        match pods::image_problem(pod) {
            Some((reason, message)) => self.tell_once(reason, &message),
            None => conditions::forget_synchronized(&mut self.next),
        }
    }

    /// Why the pod ended before the guest could start.
    fn tell_end(&mut self, pod: &Pod) {
        let message = pods::last_words(pod);
        self.plan.events.push(Event::warning("FailedStart", format!("the launcher pod ended early: {message}")));
    }

    /// The handler has it. A pod that is gone took the guest along, unless the guest may be in another by now.
    fn watch_over(&mut self) {
        let pod = match self.pod {
            Some(pod) => pod,
            None if self.targets.is_empty() => return self.enter(Phase::Failed),
            None => return self.forget_holder(),
        };
        self.clear_provisioning();
        self.note_pod(pod);
        self.plan.gate = pods::gate(self.seen.vmi, pod, self.now);
        marks::note_eviction(&mut self.next, self.now);
        self.plan.marks = marks::of_pod(&self.next, pod);
    }

    fn clear_provisioning(&mut self) {
        let done = pods::provisioning(&self.seen.pods).filter(|pod| !pods::is_terminating(pod));
        self.plan.delete.extend(done.map(|pod| Deletion { target: pods::target(pod), grace: Some(0), version: None }));
    }

    fn finish(mut self) -> Plan {
        conditions::ready(&mut self.next, self.pod, self.now);
        // What follows from a pod that is about to be made is told when it is there: one write instead of two. What was
        // wrong before is told at once.
        let silent = self.plan.create.is_some() && self.seen.failure.is_none();
        if !silent && self.next != *self.seen.vmi {
            self.plan.change = change(self.seen.vmi, &self.next);
        }
        self.plan
    }
}

/// The merge patch from one version of an instance to the next.
pub(crate) fn change(old: &VirtualMachineInstance, new: &VirtualMachineInstance) -> Option<Value> {
    let mut patch = difference(&json!(old), &json!(new))?;
    let metadata = &old.metadata;
    patch["metadata"]["uid"] = json!(metadata.uid);
    patch["metadata"]["resourceVersion"] = json!(metadata.resource_version);
    Some(patch)
}
