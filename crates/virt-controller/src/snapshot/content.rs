//! The content of a snapshot: the guest becomes quiet, its claims are copied, the guest goes on.

use api::names::{annotation, label};
use api::owner::controller_reference;
use api::snapshot::{
    Error, VirtualMachineSnapshot as Snapshot, VirtualMachineSnapshotContent as Content,
    VirtualMachineSnapshotContentStatus as ContentStatus, VolumeBackup, VolumeSnapshotStatus,
};
use api::volume_snapshot::{VolumeSnapshot, VolumeSnapshotSource, VolumeSnapshotSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manager::events::Kind;
use manager::writing::{difference, guarded, whole_second};
use serde_json::json;

use super::{AGAIN, GoOn, Making, Quiet, has_agent, is_created, is_paused, stopped, target, waits_for_disk};
use crate::vmi::Event;

/// Why the disks of a guest are not copied that goes on as soon as its disk lets it, which may be between two copies.
const WAITS_FOR_DISK: &str = "the guest stands still because one of its disks failed, and may go on at any time; \
    mend the disk or stop the VM, and the snapshot goes on";

/// What the VolumeSnapshots of a content have come to.
#[derive(Default)]
struct Copies<'a> {
    states: Vec<VolumeSnapshotStatus>,
    /// Those that were there and are not any more.
    lost: Vec<&'a str>,
    /// Those that were not made yet.
    wanted: Vec<&'a VolumeBackup>,
}

impl Copies<'_> {
    fn are_made(&self) -> bool {
        let made = |one: &VolumeSnapshotStatus| one.creation_time.as_ref().is_some();
        self.lost.is_empty() && self.wanted.is_empty() && self.states.iter().all(made)
    }

    fn are_ready(&self) -> bool {
        self.are_made() && self.states.iter().all(|one| one.ready_to_use == Some(true))
    }

    fn problem(&self) -> Option<String> {
        if !self.lost.is_empty() {
            return Some(format!("VolumeSnapshots ({}) missing", self.lost.join(",")));
        }
        self.states.iter().find_map(|one| {
            let message = one.error.as_ref()?.message.as_ref()?;
            Some(format!("VolumeSnapshot {} error: {message}", one.volume_snapshot_name))
        })
    }
}

impl<'a> Making<'a> {
    /// Brings the content further, and tells how far it is.
    pub(super) fn copy(&mut self, snapshot: &Snapshot, content: &'a Content) {
        let copies = self.copies(content);
        let mut status = content.status.clone().unwrap_or_default();
        let mut problem = copies.problem();
        if !copies.wanted.is_empty() {
            problem = self.make(snapshot, content, &copies.wanted).err().or(problem);
        } else if copies.are_made() && !is_created(content) {
            match self.go_on(content) {
                Going::Gone => status.creation_time = Some(whole_second(self.now)).into(),
                Going::Waits => {}
                Going::Fails(message) => problem = Some(message),
            }
        }
        let told = status.error.as_ref().and_then(|error| error.message.clone());
        if problem.is_none() {
            status.error = None;
        } else if problem != told && !copies.are_ready() {
            if !copies.lost.is_empty() {
                let events = copies.lost.iter().map(|name| missing(name));
                self.plan.content_events.extend(events);
            }
            status.error = Some(Error { message: problem, time: Some(whole_second(self.now)) });
        }
        status.ready_to_use = Some(copies.are_ready());
        status.volume_snapshot_status = Some(copies.states).filter(|states| !states.is_empty());
        self.tell_content(content, &status);
    }

    fn tell_content(&mut self, content: &Content, status: &ContentStatus) {
        let old = content.status.clone().unwrap_or_default();
        let patch = difference(&json!(old), &json!(status));
        // The content's own patch comes first, and makes another version of it.
        if self.plan.contents.is_empty() {
            self.plan.content_status = patch.map(|patch| guarded(&content.metadata, json!({ "status": patch })));
        }
    }

    fn copies(&self, content: &'a Content) -> Copies<'a> {
        let mut copies = Copies::default();
        for backup in content.spec.volume_backups.iter().flatten() {
            let Some(name) = backup.volume_snapshot_name.as_deref() else { continue };
            match self.seen.copies.get(name) {
                Some(copy) => copies.states.push(state(name, copy)),
                None if is_created(content) => copies.lost.push(name),
                None => copies.wanted.push(backup),
            }
        }
        copies
    }

    /// Copies what is missing, once the guest is quiet.
    fn make(&mut self, snapshot: &Snapshot, content: &Content, wanted: &[&VolumeBackup]) -> Result<(), String> {
        let failure = self.seen.failure.as_ref();
        if let Some(failure) = failure.filter(|failure| !failure.forever && self.now < failure.again) {
            let left = failure.again.duration_since(self.now);
            self.recheck(Some(left.try_into().unwrap_or(AGAIN)));
            return Err(failure.message.clone());
        }
        let made: Result<Vec<VolumeSnapshot>, String> =
            wanted.iter().map(|backup| self.volume_snapshot(content, backup)).collect();
        let made = made.inspect_err(|_| self.recheck(Some(AGAIN)))?;
        if self.becomes_quiet(snapshot, content)? {
            self.plan.copy = made;
        }
        Ok(())
    }

    /// Whether copies can be made now, after what the plan has by then; an error says why the guest cannot be made quiet.
    fn becomes_quiet(&mut self, snapshot: &Snapshot, content: &Content) -> Result<bool, String> {
        let Some(vmi) = self.seen.vmi.filter(|vmi| !vmi.is_final()) else { return Ok(true) };
        if !vmi.is_running() {
            // Its guest may run before the instance says so; it cannot be made quiet before that.
            self.recheck(Some(AGAIN));
            return Ok(false);
        }
        let noted = stopped(content).is_some_and(|(uid, _)| Some(uid) == vmi.metadata.uid.as_deref());
        if self.seen.failure.as_ref().is_some_and(|failure| failure.forever) || is_paused(vmi) {
            return Ok(true);
        }
        if waits_for_disk(vmi) {
            return Err(WAITS_FOR_DISK.to_owned());
        }
        if has_agent(vmi) && !noted {
            // Asked for even if the instance says that it is frozen: it is told of that minutes later, and says so of a guest that
            // writes again. A launcher takes no offence.
            let limit = snapshot.spec.failure_deadline.as_ref().map_or("5m0s".to_owned(), ToString::to_string);
            self.plan.quiet = Some(Quiet::Freeze { limit });
            return Ok(true);
        }
        if noted {
            // The copies wait until the instance shows it: only what is shown can be undone.
            self.plan.quiet = Some(Quiet::Stop);
            self.recheck(Some(AGAIN));
        } else {
            let note = format!("{}@{}", vmi.metadata.uid.as_deref().unwrap_or_default(), whole_second(self.now).0);
            let patch = json!({ "metadata": { "annotations": { annotation::STOPPED_FOR_SNAPSHOT: note } } });
            self.plan.contents.push((target(&content.metadata), guarded(&content.metadata, patch)));
        }
        Ok(false)
    }

    /// All copies are made.
    fn go_on(&mut self, content: &Content) -> Going {
        let failure = self.seen.failure.as_ref();
        if let Some(failure) = failure.filter(|failure| !failure.forever && self.now < failure.again) {
            let left = failure.again.duration_since(self.now);
            self.recheck(Some(left.try_into().unwrap_or(AGAIN)));
            return Going::Fails(failure.message.clone());
        }
        let vmi = self.seen.vmi.filter(|vmi| vmi.is_running());
        let Some((uid, _)) = stopped(content) else {
            if vmi.is_some_and(|vmi| has_agent(vmi) && !is_paused(vmi)) {
                self.plan.go_on = Some(GoOn::Thaw);
            }
            return Going::Gone;
        };
        if vmi.is_some_and(|vmi| is_paused(vmi) && vmi.metadata.uid.as_deref() == Some(uid)) {
            self.plan.go_on = Some(GoOn::Resume);
            self.recheck(Some(AGAIN));
        } else {
            let patch = json!({ "metadata": { "annotations": { annotation::STOPPED_FOR_SNAPSHOT: null } } });
            self.plan.contents.push((target(&content.metadata), guarded(&content.metadata, patch)));
        }
        Going::Waits
    }

    fn volume_snapshot(&self, content: &Content, backup: &VolumeBackup) -> Result<VolumeSnapshot, String> {
        let claim = &backup.persistent_volume_claim;
        let name = claim.metadata.as_ref().and_then(|metadata| metadata.name.clone()).unwrap_or_default();
        let storage = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
        let storage = storage.ok_or_else(|| format!("{name} VolumeSnapshot requested but no storage class"))?;
        let class = self.seen.classes.copies(storage)?;
        let class = class.ok_or_else(|| format!("Couldn't find VolumeSnapshotClass for {storage}"))?;
        let vm = content.spec.source.virtual_machine.as_ref().and_then(|vm| vm.metadata.as_ref());
        let text = |part: Option<&String>| part.cloned().unwrap_or_default();
        let labels = [
            (label::SNAPSHOT_SOURCE_NAME.to_owned(), text(vm.and_then(|vm| vm.name.as_ref()))),
            (label::SNAPSHOT_SOURCE_NAMESPACE.to_owned(), text(vm.and_then(|vm| vm.namespace.as_ref()))),
        ];
        Ok(VolumeSnapshot {
            metadata: ObjectMeta {
                name: backup.volume_snapshot_name.clone(),
                namespace: content.metadata.namespace.clone(),
                labels: Some(labels.into()),
                owner_references: controller_reference(content).map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            spec: VolumeSnapshotSpec {
                source: VolumeSnapshotSource {
                    persistent_volume_claim_name: Some(name),
                    ..VolumeSnapshotSource::default()
                },
                volume_snapshot_class_name: Some(class.to_owned()),
            },
            ..VolumeSnapshot::default()
        })
    }
}

/// Whether the guest has gone on.
enum Going {
    /// With what the plan has.
    Gone,
    /// It shows later.
    Waits,
    /// The last attempt failed, and the next comes later.
    Fails(String),
}

fn state(name: &str, copy: &VolumeSnapshot) -> VolumeSnapshotStatus {
    let status = copy.status.clone().unwrap_or_default();
    let error = status.error.map(|error| Error { message: error.message, time: error.time });
    VolumeSnapshotStatus {
        volume_snapshot_name: name.to_owned(),
        creation_time: status.creation_time.into(),
        error,
        ready_to_use: status.ready_to_use,
    }
}

fn missing(name: &str) -> Event {
    let message = format!("VolumeSnapshot {name} no longer exists");
    Event { kind: Kind::Warning, reason: "VolumeSnapshotMissing", message }
}
