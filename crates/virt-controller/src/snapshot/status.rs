//! What a snapshot tells of itself: phase, conditions, and how the guest was when its disks were copied.

use std::collections::BTreeSet;

use api::conditions::{self, ConditionStatus};
use api::snapshot::{
    Condition, SnapshotVolumesLists, SourceIndication, VirtualMachineSnapshot as Snapshot,
    VirtualMachineSnapshotContent as Content, VirtualMachineSnapshotPhase as Phase,
    VirtualMachineSnapshotStatus as Status,
};
use jiff::Timestamp;
use manager::writing::{difference, guarded, whole_second};
use serde_json::json;

use super::source::{LOCKED, NOT_LOCKED};
use super::{Making, content_name, has_agent, is_paused, stopped};
use crate::volume_snapshots::claim_of;

const ONLINE: &str = "Online";
const AGENT: &str = "GuestAgent";
const NO_AGENT: &str = "NoGuestAgent";
const TIMEOUT: &str = "QuiesceTimeout";
const PAUSED: &str = "Paused";
const PARTIAL: &str = "PartialSnapshot";
/// What the guest agent of Windows says when it could not keep its file systems frozen for long enough.
const LIMITED: &str = "fsfreeze is limited";

impl Making<'_> {
    pub(super) fn tell(&mut self, snapshot: &Snapshot, excuse: &str) {
        let old = snapshot.status.clone().unwrap_or_default();
        let mut status = super::status_of(snapshot);
        if let Some(uid) = self.seen.vm.and_then(|vm| vm.metadata.uid.clone()) {
            status.source_uid = Some(uid);
        }
        let content = self.seen.content;
        if let Some(told) = content.and_then(|content| content.status.as_ref()) {
            status.virtual_machine_snapshot_content_name = Some(content_name(snapshot));
            status.creation_time = told.creation_time.clone();
            status.ready_to_use = told.ready_to_use;
            status.error.clone_from(&told.error);
        }
        if self.is_late(&Snapshot { status: Some(status.clone()), ..snapshot.clone() }) {
            status.phase = Some(Phase::Failed);
            self.put(&mut status, "Failure", true, "snapshot deadline exceeded");
            self.put(&mut status, "Progressing", false, "Operation failed");
        } else if status.phase == Some(Phase::Succeeded) || status.creation_time.as_ref().is_some() {
            status.phase = Some(Phase::Succeeded);
            self.put(&mut status, "Progressing", false, "Operation complete");
            if let Some(content) = content {
                tell_volumes(&mut status, content);
            }
        } else {
            self.tell_progress(snapshot, &mut status, excuse);
        }
        let ready = status.ready_to_use == Some(true);
        self.put(&mut status, "Ready", ready, if ready { "Ready" } else { "Not ready" });
        if status.error.is_some() {
            self.put(&mut status, "Progressing", false, "In error state");
        }
        let patch = difference(&json!(old), &json!(status));
        self.plan.status = patch.map(|patch| guarded(&snapshot.metadata, json!({ "status": patch })));
    }

    fn tell_progress(&self, snapshot: &Snapshot, status: &mut Status, excuse: &str) {
        status.phase = Some(Phase::InProgress);
        let locked = self.is_locked(snapshot);
        match self.seen.vm {
            Some(_) if locked => self.put(status, "Progressing", true, LOCKED),
            Some(_) => self.put(status, "Progressing", false, &format!("{NOT_LOCKED}{excuse}")),
            None => self.put(status, "Progressing", false, "Source does not exist"),
        }
        if self.seen.vm.is_some() {
            self.tell_indications(status);
        }
        if snapshot.metadata.deletion_timestamp.is_some() {
            status.phase = Some(Phase::Deleting);
            self.put(status, "Progressing", false, "VM snapshot is deleting");
        }
    }

    /// How the guest is. What was once true of the snapshot stays so.
    fn tell_indications(&self, status: &mut Status) {
        let Some(vmi) = self.seen.vmi else {
            (status.indications, status.source_indications) = (None, None);
            return;
        };
        let mut all: BTreeSet<String> = status.indications.iter().flatten().cloned().collect();
        all.insert(ONLINE.to_owned());
        let ours = self.seen.content.is_some_and(|content| stopped(content).is_some());
        if is_paused(vmi) && !ours {
            all.insert(PAUSED.to_owned());
        } else if has_agent(vmi) {
            all.insert(AGENT.to_owned());
            let message = status.error.as_ref().and_then(|error| error.message.as_deref());
            if message.is_some_and(|message| message.contains(LIMITED)) {
                all.insert(TIMEOUT.to_owned());
            }
        } else {
            all.insert(NO_AGENT.to_owned());
        }
        status.source_indications = Some(all.iter().map(|one| indication(one)).collect());
        status.indications = Some(all.into_iter().collect());
    }

    fn put(&self, status: &mut Status, kind: &str, holds: bool, reason: &str) {
        put(&mut status.conditions, kind, holds, reason, self.now);
    }
}

/// Sets a condition as KubeVirt does: what it has to say is the reason.
pub(crate) fn put(all: &mut Option<Vec<Condition>>, kind: &str, holds: bool, reason: &str, now: Timestamp) {
    let condition = Condition {
        type_: kind.to_owned(),
        status: if holds { ConditionStatus::True } else { ConditionStatus::False },
        reason: Some(reason.to_owned()),
        ..Condition::default()
    };
    conditions::set(all, condition, whole_second(now).0);
}

/// Which volumes the snapshot has.
fn tell_volumes(status: &mut Status, content: &Content) {
    let vm = content.spec.source.virtual_machine.as_ref();
    let Some(template) = vm.and_then(|vm| vm.spec.as_ref()?.template.spec.as_ref()) else { return };
    let has = |name: &str| content.spec.volume_backups.iter().flatten().any(|one| one.volume_name == name);
    let (included, excluded): (Vec<_>, Vec<_>) = template.volumes.iter().flatten().partition(|one| has(&one.name));
    let partial = excluded.iter().any(|volume| claim_of(volume).is_some());
    let names = |volumes: Vec<&api::volumes::Volume>| {
        let names: Vec<String> = volumes.into_iter().map(|volume| volume.name.clone()).collect();
        Some(names).filter(|names| !names.is_empty())
    };
    let lists = SnapshotVolumesLists { included_volumes: names(included), excluded_volumes: names(excluded) };
    status.snapshot_volumes = Some(lists);
    let known = status.indications.iter().flatten().any(|one| one == PARTIAL);
    if partial && !known {
        status.indications.get_or_insert_default().push(PARTIAL.to_owned());
        status.source_indications.get_or_insert_default().push(indication(PARTIAL));
    }
}

fn indication(name: &str) -> SourceIndication {
    let message = match name {
        ONLINE => "Snapshot taken while the VM was running. Consistency depends on guest-agent quiescing.",
        AGENT => "Guest agent was active and attempted to quiesce the filesystem for application consistency.",
        NO_AGENT => {
            "Guest agent was not available. Snapshot is crash-consistent and may not be application-consistent."
        }
        TIMEOUT => {
            "Guest agent quiesced the filesystem, but the freeze window timed out before completion. Snapshot is crash-consistent and may not be application-consistent."
        }
        PAUSED => {
            "Snapshot taken while the VM was paused. Snapshot is crash-consistent and may not be application-consistent."
        }
        PARTIAL => {
            "Not all snapshotable volumes were included in the snapshot. Check status.snapshotVolumes for excluded volumes and VM VolumeSnapshotStatus for details."
        }
        _ => "Unknown indication",
    };
    SourceIndication { indication: name.to_owned(), message: message.to_owned() }
}
