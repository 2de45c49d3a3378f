//! Snapshots of VMs: the VM as it is declared, and a VolumeSnapshot of each of its claims, all of one moment.
//!
//! ```text
//! VirtualMachineSnapshot ──┐                    ┌─> lock: the VM's status and finalizer
//! its content ─────────────┤                    ├─> content: the VM's specification and its claims
//! VM, instance, revision ──┼─> observe ─> decide┼─> the guest is quiet: frozen, or stopped
//! claims, classes ─────────┤                    ├─> VolumeSnapshots, until each has its time
//! VolumeSnapshots, now ────┘                    └─> the guest goes on, the status tells
//! ```
//! Watches: VirtualMachineSnapshot, VirtualMachineSnapshotContent, VirtualMachine, VirtualMachineInstance, ControllerRevision,
//! PersistentVolumeClaim, DataVolume, Pod (launchers), StorageClass, VolumeSnapshot, VolumeSnapshotClass. Owns: the content, its
//! VolumeSnapshots, copies of the revisions that the VM names, and `status.snapshotInProgress` of the VM. Emits: events about what
//! it made and what went missing.
//! Absent on purpose: the copies themselves, which a CSI driver or the machine's own storage makes; and the guest's memory.
//!
//! | phase | what is seen | next |
//! |---|---|---|
//! | none | | InProgress |
//! | InProgress | a claim is not ready, or another snapshot holds the VM | looked at again |
//! | InProgress | nobody holds the VM | the VM is locked |
//! | InProgress | the VM is locked | the content is made |
//! | InProgress | VolumeSnapshots are missing | the guest is made quiet, then they are made |
//! | InProgress | each VolumeSnapshot has its time | the guest goes on, then Succeeded |
//! | InProgress | the deadline has passed | the guest goes on, the content goes, Failed |
//! | InProgress | somebody deletes the snapshot | the same: Deleting |
//! | Succeeded, Failed | | the VM is unlocked |

pub mod controller;

mod content;
mod guest;
mod source;
mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use api::names::{annotation, finalizer};
use api::snapshot::{
    DeletionPolicy, VirtualMachineSnapshot as Snapshot, VirtualMachineSnapshotContent as Content,
    VirtualMachineSnapshotPhase as Phase, VirtualMachineSnapshotStatus as Status,
};
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use api::volume_snapshot::VolumeSnapshot;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manager::writing::guarded;
use serde_json::{Value, json};

use self::guest::{has_agent, is_paused, waits_for_disk};
use crate::vmi::volumes::Known;
use crate::vmi::{Event, Target};
use crate::volume_snapshots::SnapshotClasses;

/// How long a snapshot may take if it does not say.
const DEADLINE: Duration = Duration::from_secs(5 * 60);
/// After what nobody tells of: a lock that somebody else holds, a guest that does not become quiet.
const AGAIN: Duration = Duration::from_secs(5);
/// A stop that was asked for shows in the instance within this time, or never.
const STOP_SHOWS: Duration = Duration::from_secs(60);

/// What the caches say about one snapshot.
#[derive(Clone, Debug, Default)]
pub struct Observed<'a> {
    /// The snapshot; none once it is gone.
    pub snapshot: Option<&'a Snapshot>,
    pub content: Option<&'a Content>,
    /// Contents that name a snapshot of this name and are those of another, each with its instance.
    pub strangers: Vec<(&'a Content, Option<&'a VirtualMachineInstance>)>,
    pub vm: Option<&'a VirtualMachine>,
    /// The VM's instance.
    pub vmi: Option<&'a VirtualMachineInstance>,
    /// Revisions that the VM or its instance name.
    pub revisions: BTreeMap<&'a str, &'a ControllerRevision>,
    /// What is known of the VM's claims.
    pub volumes: Known<'a>,
    /// Launchers that have the claims, while there is no instance.
    pub users: usize,
    /// Which class copies what.
    pub classes: SnapshotClasses,
    /// VolumeSnapshots of the content, by name.
    pub copies: BTreeMap<&'a str, &'a VolumeSnapshot>,
    /// What went wrong with the guest at the last attempt.
    pub failure: Option<Failure>,
    /// A restore has begun to use it, and has not ended.
    pub restores: bool,
}

/// Why a guest did not become quiet, or did not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The error, for people.
    pub message: String,
    /// Whether the guest can never be stopped: then its disks are copied as it runs.
    pub forever: bool,
    /// When to try again.
    pub again: Timestamp,
}

/// How the guest becomes quiet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Quiet {
    /// The guest agent freezes the file systems, and thaws them by itself after this time.
    Freeze {
        /// As Go writes it.
        limit: String,
    },
    /// The vCPUs stop.
    Stop,
}

/// How the guest goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoOn {
    /// The guest agent thaws the file systems.
    Thaw,
    /// The vCPUs run again.
    Resume,
}

/// What to do about one snapshot; empty at rest. In this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SnapshotPlan {
    /// A guarded merge patch of the snapshot: its finalizer comes. What follows waits for it.
    pub protect: Option<Value>,
    /// A guarded merge patch of the VM's status: it is locked, or unlocked.
    pub vm_status: Option<Value>,
    /// A guarded merge patch of the VM: its finalizer comes or goes.
    pub vm: Option<Value>,
    /// Copies of the revisions that the content names.
    pub keep: Vec<ControllerRevision>,
    pub content: Option<Box<Content>>,
    /// The VM whose guest this is about.
    pub machine: String,
    /// The guest becomes quiet.
    pub quiet: Option<Quiet>,
    /// VolumeSnapshots, once the guest is quiet.
    pub copy: Vec<VolumeSnapshot>,
    /// The guest goes on.
    pub go_on: Option<GoOn>,
    /// Whether a failure of that only needs a line in the log: the guest agent thaws by itself.
    pub thaws_by_itself: bool,
    /// Guarded merge patches of contents: the mark of a stop, the finalizer.
    pub contents: Vec<(Target, Value)>,
    /// A guarded merge patch of the content's status.
    pub content_status: Option<Value>,
    /// The content must go.
    pub delete: Option<Target>,
    /// A guarded merge patch of the snapshot's status.
    pub status: Option<Value>,
    /// A guarded merge patch of the snapshot: its finalizer goes.
    pub release: Option<Value>,
    /// What people should read about the snapshot.
    pub events: Vec<Event>,
    /// What people should read about the content.
    pub content_events: Vec<Event>,
    /// When time alone changes something: decide again then.
    pub recheck_after: Option<Duration>,
}

/// # Guarantees
/// - Nothing is copied before the VM is locked, nor by a guest that is not quiet, unless it can neither be frozen nor stopped.
/// - A stop is noted in the content before it is asked for, and the note goes only when the guest runs, or is gone: whoever comes
///   after a crash finds it.
/// - A guest that somebody else has paused is not resumed. One that a failed disk has stopped is not copied: it may go on by itself.
/// - Whether a guest is frozen is never concluded from its instance, which is told of it late: each attempt to copy asks for it.
/// - The VM is unlocked, and the finalizers of content and snapshot go, only when the guest has gone on.
/// - Succeeded and Failed are final.
/// - A snapshot that is deleted stays, with its content, until the restores that have begun have ended.
/// - Equal observations give equal plans; at rest the plan is empty.
#[must_use]
pub fn decide(seen: &Observed<'_>, now: Timestamp) -> SnapshotPlan {
    let mut making = Making { seen, now, plan: SnapshotPlan::default() };
    making.follow();
    making.plan
}

pub(crate) use status::put;

/// The name of a snapshot's content.
#[must_use]
pub fn content_name(snapshot: &Snapshot) -> String {
    let told = snapshot.status.as_ref().and_then(|status| status.virtual_machine_snapshot_content_name.clone());
    told.unwrap_or_else(|| format!("vmsnapshot-content-{}", snapshot.metadata.uid.as_deref().unwrap_or_default()))
}

/// Whether a restore can be made of it.
#[must_use]
pub fn is_ready(snapshot: &Snapshot) -> bool {
    snapshot.status.as_ref().is_some_and(|status| status.ready_to_use == Some(true))
}

/// The phase of a snapshot.
#[must_use]
pub fn phase(snapshot: &Snapshot) -> &Phase {
    const UNSET: &Phase = &Phase::Unset;
    snapshot.status.as_ref().and_then(|status| status.phase.as_ref()).unwrap_or(UNSET)
}

/// A decision in the making.
struct Making<'a> {
    seen: &'a Observed<'a>,
    now: Timestamp,
    plan: SnapshotPlan,
}

impl<'a> Making<'a> {
    fn follow(&mut self) {
        for (content, vmi) in &self.seen.strangers {
            let vm = content.spec.source.virtual_machine.as_ref().and_then(|vm| vm.metadata.as_ref()?.name.clone());
            self.plan.machine = vm.unwrap_or_default();
            self.let_go(content, *vmi);
            if self.plan.go_on.is_some() {
                return;
            }
        }
        let Some(snapshot) = self.seen.snapshot else { return };
        self.plan.machine.clone_from(&snapshot.spec.source.name);
        let ends = self.ends(snapshot);
        if !ends && !has(&snapshot.metadata, finalizer::SNAPSHOT) {
            self.plan.protect = Some(with_finalizer(&snapshot.metadata, finalizer::SNAPSHOT));
            return;
        }
        let mut excuse = String::new();
        if snapshot.status.is_some() {
            if is_progressing(snapshot) && !ends {
                excuse = self.take(snapshot);
            } else {
                self.end(snapshot, ends);
            }
        }
        // What is about to be taken is told once it is.
        let takes = self.plan.vm_status.is_some() || self.plan.vm.is_some();
        if ends || !takes || !is_progressing(snapshot) {
            self.tell(snapshot, &excuse);
        }
        let gone_on = self.seen.content.is_none_or(|content| !has(&content.metadata, finalizer::SNAPSHOT_CONTENT));
        let deleted = snapshot.metadata.deletion_timestamp.is_some();
        let done = self.plan.status.is_none() && !self.is_locked(snapshot) && gone_on;
        if deleted && done && !self.seen.restores && has(&snapshot.metadata, finalizer::SNAPSHOT) {
            self.plan.release = Some(without_finalizer(&snapshot.metadata, finalizer::SNAPSHOT));
        }
        if is_progressing(snapshot) && !deleted {
            let left = self.time_left(snapshot).map(|left| left.max(Duration::from_secs(1)));
            self.recheck(left);
        }
    }

    /// It is not finished yet. Returns what the lock has to say.
    fn take(&mut self, snapshot: &'a Snapshot) -> String {
        let Some(vm) = self.seen.vm else { return String::new() };
        if !self.is_locked(snapshot) {
            return self.lock(snapshot, vm);
        }
        match self.seen.content {
            None => self.make_content(snapshot, vm),
            Some(content) if content.metadata.deletion_timestamp.is_none() => self.copy(snapshot, content),
            // Somebody deletes it: its guest must not wait for what nobody follows any more. Then it is made anew.
            Some(content) => self.let_go(content, self.seen.vmi),
        }
        String::new()
    }

    /// It is finished, has failed or is to go.
    fn end(&mut self, snapshot: &'a Snapshot, ends: bool) {
        let content = self.seen.content;
        if let Some(content) = content.filter(|_| ends) {
            self.let_go(content, self.seen.vmi);
            let let_go = !has(&content.metadata, finalizer::SNAPSHOT_CONTENT);
            if should_go(snapshot, content) && let_go && content.metadata.deletion_timestamp.is_none() {
                self.plan.delete = Some(target(&content.metadata));
            }
        } else if let Some(content) = content.filter(|content| content.metadata.deletion_timestamp.is_none()) {
            self.copy(snapshot, content);
        }
        let cleaned = content.is_none_or(|content| !should_go(snapshot, content));
        let gone_on = content.is_none_or(|content| stopped(content).is_none());
        if (!is_progressing(snapshot) || cleaned) && gone_on {
            self.unlock(snapshot);
        }
    }

    /// The guest of a content that nobody follows any more goes on, and then the content may go.
    fn let_go(&mut self, content: &Content, vmi: Option<&VirtualMachineInstance>) {
        let mut patch = without_finalizer(&content.metadata, finalizer::SNAPSHOT_CONTENT);
        if let Some((uid, since)) = stopped(content) {
            let same = vmi.filter(|vmi| vmi.is_running() && vmi.metadata.uid.as_deref() == Some(uid));
            match same {
                Some(vmi) if is_paused(vmi) => {
                    self.plan.go_on = Some(GoOn::Resume);
                    self.recheck(Some(AGAIN));
                    return;
                }
                // It may have been asked for and not shown yet.
                Some(_) if self.now < since + STOP_SHOWS => {
                    self.recheck(Some(AGAIN));
                    return;
                }
                _ => patch["metadata"]["annotations"] = json!({ annotation::STOPPED_FOR_SNAPSHOT: null }),
            }
        } else if !has(&content.metadata, finalizer::SNAPSHOT_CONTENT) {
            return;
        } else if !is_created(content) && self.seen.snapshot.is_some_and(|snapshot| self.is_locked(snapshot)) {
            let thaws = vmi.is_some_and(|vmi| has_agent(vmi) && !is_paused(vmi));
            self.plan.go_on = thaws.then_some(GoOn::Thaw);
            self.plan.thaws_by_itself = thaws;
        }
        self.plan.contents.push((target(&content.metadata), patch));
    }

    /// Whether it has failed, is deleted, or took too long.
    fn ends(&self, snapshot: &Snapshot) -> bool {
        let deleted = snapshot.metadata.deletion_timestamp.is_some();
        deleted && !self.seen.restores || self.is_late(snapshot)
    }

    fn is_late(&self, snapshot: &Snapshot) -> bool {
        match phase(snapshot) {
            Phase::Failed => true,
            Phase::Succeeded => false,
            _ => self.time_left(snapshot).is_some_and(|left| left.is_zero()),
        }
    }

    /// Until the deadline; none if it has none.
    fn time_left(&self, snapshot: &Snapshot) -> Option<Duration> {
        let limit = snapshot.spec.failure_deadline.as_ref().map_or(Some(DEADLINE), api::duration::Duration::to_std);
        let limit = limit.filter(|limit| !limit.is_zero())?;
        let begun = snapshot.metadata.creation_timestamp.as_ref()?.0;
        Some(Duration::try_from((begun + limit).duration_since(self.now)).unwrap_or(Duration::ZERO))
    }

    fn recheck(&mut self, after: Option<Duration>) {
        self.plan.recheck_after = self.plan.recheck_after.into_iter().chain(after).min();
    }
}

fn is_progressing(snapshot: &Snapshot) -> bool {
    !matches!(phase(snapshot), Phase::Succeeded | Phase::Failed)
}

fn is_created(content: &Content) -> bool {
    content.status.as_ref().is_some_and(|status| status.creation_time.as_ref().is_some())
}

/// Whether the content goes with its snapshot. One that is not ready is of no use to anybody.
fn should_go(snapshot: &Snapshot, content: &Content) -> bool {
    let retained = snapshot.spec.deletion_policy == Some(DeletionPolicy::Retain);
    !retained || content.status.as_ref().and_then(|status| status.ready_to_use) != Some(true)
}

/// The instance that was stopped for a content, and when that was decided on.
fn stopped(content: &Content) -> Option<(&str, Timestamp)> {
    let value = content.metadata.annotations.as_ref()?.get(annotation::STOPPED_FOR_SNAPSHOT)?;
    let (uid, since) = value.split_once('@')?;
    Some((uid, since.parse().ok()?))
}

fn target(metadata: &ObjectMeta) -> Target {
    Target { name: metadata.name.clone().unwrap_or_default(), uid: metadata.uid.clone().unwrap_or_default() }
}

pub(crate) fn has(metadata: &ObjectMeta, finalizer: &str) -> bool {
    metadata.finalizers.iter().flatten().any(|one| one == finalizer)
}

pub(crate) fn with_finalizer(metadata: &ObjectMeta, finalizer: &str) -> Value {
    let all: Vec<&str> = metadata.finalizers.iter().flatten().map(String::as_str).chain([finalizer]).collect();
    guarded(metadata, json!({ "metadata": { "finalizers": all } }))
}

pub(crate) fn without_finalizer(metadata: &ObjectMeta, finalizer: &str) -> Value {
    let rest: Vec<&String> = metadata.finalizers.iter().flatten().filter(|one| *one != finalizer).collect();
    guarded(metadata, json!({ "metadata": { "finalizers": rest } }))
}

/// The status as it is, or the one that every snapshot begins with.
fn status_of(snapshot: &Snapshot) -> Status {
    snapshot.status.clone().unwrap_or_else(|| Status { ready_to_use: Some(false), ..Status::default() })
}
