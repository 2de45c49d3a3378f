//! Changes of a VM that something in progress does not allow, and requests that nobody carries out yet.

use api::vm::{InstancetypeMatcher, PreferenceMatcher, VirtualMachine, VirtualMachineStatus};

use crate::denial::Problems;
use crate::object;
use crate::request::{Request, Requester, Response};

/// What may not change now.
pub(super) fn check(old: &VirtualMachine, new: &VirtualMachine, problems: &mut Problems) {
    let status = old.status.as_ref();
    let snapshot = status.and_then(|status| status.snapshot_in_progress.as_deref());
    let restore = status.and_then(|status| status.restore_in_progress.as_deref());
    let moved = old.spec.effective_run_strategy() != new.spec.effective_run_strategy();
    if let Some(snapshot) = snapshot {
        let message = format!("the snapshot {snapshot:?} is being taken; wait until it is done");
        let (before, after) = (template(old), template(new));
        let volumes = |template: Option<&api::vmi::VirtualMachineInstanceSpec>| {
            template.map(|spec| spec.volumes.clone().unwrap_or_default()).unwrap_or_default()
        };
        let disks = |template: Option<&api::vmi::VirtualMachineInstanceSpec>| {
            template.map(|spec| spec.domain.devices.disks.clone().unwrap_or_default()).unwrap_or_default()
        };
        if volumes(before) != volumes(after) {
            problems.unsupported("spec.template.spec.volumes", message.clone());
        }
        if disks(before) != disks(after) {
            problems.unsupported("spec.template.spec.domain.devices.disks", message.clone());
        }
        if moved {
            problems.unsupported("spec.runStrategy", message);
        }
    }
    if let Some(restore) = restore.filter(|_| moved) {
        problems
            .unsupported("spec.runStrategy", format!("the restore {restore:?} is in progress; wait until it is done"));
    }
    check_revisions(old, new, problems);
}

/// A revision belongs to the object it was taken of.
fn check_revisions(old: &VirtualMachine, new: &VirtualMachine, problems: &mut Problems) {
    let instancetype = |matcher: &InstancetypeMatcher| (matcher.name.clone(), matcher.revision_name.clone());
    let preference = |matcher: &PreferenceMatcher| (matcher.name.clone(), matcher.revision_name.clone());
    for (field, old, new) in [
        (
            "spec.instancetype",
            old.spec.instancetype.as_ref().map(instancetype),
            new.spec.instancetype.as_ref().map(instancetype),
        ),
        ("spec.preference", old.spec.preference.as_ref().map(preference), new.spec.preference.as_ref().map(preference)),
    ] {
        let (Some((old_name, old_revision)), Some((name, revision))) = (old, new) else { continue };
        let bound = revision.as_deref().is_some_and(|revision| !revision.is_empty());
        if old_name != name && bound && old_revision == revision {
            let message =
                format!("is the revision of {:?}; remove it together with that name", old_name.unwrap_or_default());
            problems.invalid(format!("{field}.revisionName"), message);
        }
    }
}

fn template(vm: &VirtualMachine) -> Option<&api::vmi::VirtualMachineInstanceSpec> {
    vm.spec.template.spec.as_ref()
}

/// Requests in the status that nobody carries out yet.
pub(super) fn admit_status(request: &Request<'_>) -> Response {
    if request.requester == Requester::Component {
        return Response::allowed();
    }
    let read = object::read::<VirtualMachine>(request.object)
        .and_then(|new| Ok((object::read::<VirtualMachine>(request.old)?, new)));
    let (old, new) = match read {
        Ok(both) => both,
        Err(denial) => return Response::denied(denial),
    };
    let mut problems = Problems::default();
    let none = VirtualMachineStatus::default();
    let (before, after) = (old.status.as_ref().unwrap_or(&none), new.status.as_ref().unwrap_or(&none));
    let requests = |status: &VirtualMachineStatus| status.volume_requests.clone().unwrap_or_default();
    if !requests(after).is_empty() && requests(before) != requests(after) {
        let message = "is not supported yet; change spec.template.spec.volumes and restart the VM";
        problems.unsupported("status.volumeRequests", message);
    }
    let dump = after.memory_dump_request.as_ref();
    if dump.is_some() && before.memory_dump_request.as_ref() != dump {
        problems.unsupported("status.memoryDumpRequest", "is not supported yet; dump memory from inside the guest");
    }
    object::decided(request.object, &new, &new, problems)
}
