//! What becomes of an instance's status: from the guest, its launcher and its network, as a whole; what differs is written.

mod conditions;
mod interfaces;
pub(crate) mod migration;

use api::devices::{Disk, DiskBus};
use api::domain::Machine;
use api::names::annotation;
use api::vmi::VirtualMachineInstance;
use api::vmi_status::{
    FsFreezeStatus, VirtualMachineInstanceGuestOSInfo as OperatingSystem, VirtualMachineInstancePhase as Phase,
    VirtualMachineInstancePhaseTransitionTimestamp as Transition, VolumeStatus,
};
use hypervisor::guest::Guest;
use jiff::Timestamp;
use launcher_api::Outcome;
use launcher_api::rpc::{Domain, GuestInfo};
use manager::writing::{difference, whole_second};
use serde_json::{Value, json};

use crate::networks::Link;

/// Why a disk's failure has stopped the guest of an instance, if one has.
pub(crate) fn io_error(vmi: &VirtualMachineInstance) -> Option<&str> {
    conditions::io_error(vmi)
}

/// Characters that one text of a launcher takes in a status. A launcher that its guest has taken over says what it likes.
const LONGEST_TEXT: usize = 1024;
/// Bytes of a guest model that an instance keeps: many times those of one with as many devices as there may be. Kubernetes takes
/// 256 KiB for all annotations together, and refuses the whole status with them.
const LARGEST_MODEL: usize = 128 << 10;

/// As much of a text as a status takes.
fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST_TEXT) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// What is known besides the instance itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts<'a> {
    /// What the launcher told last.
    pub(crate) domain: Option<&'a Domain>,
    /// What the guest's agent told last.
    pub(crate) guest: Option<&'a GuestInfo>,
    /// The guest's network, if this process made it.
    pub(crate) links: Option<&'a [Link]>,
    /// What came of the last attempt to make the guest what the instance says.
    pub(crate) outcome: Option<&'a Outcome>,
    /// What the guest sees, as its launcher knows it.
    pub(crate) model: Option<&'a str>,
    /// The board that the machine type of the instance stands for on this node. The guest may have another one, from before.
    pub(crate) machine: Option<&'a str>,
    /// Guests are emulated here.
    pub(crate) is_emulated: bool,
    /// Guests can leave this node while they run.
    pub(crate) lets_guests_go: bool,
    /// A claim belongs to the launcher that has it: another could not use it at the same time.
    pub(crate) isolates_claims: bool,
}

/// The instance as it shall be.
///
/// # Guarantees
/// - What is not virt-handler's stays as it is.
/// - A phase only goes forward, and each that was entered has its time.
/// - Equal facts change nothing.
pub(crate) fn next(
    vmi: &VirtualMachineInstance,
    phase: Option<&Phase>,
    facts: &Facts<'_>,
    now: Timestamp,
) -> VirtualMachineInstance {
    let mut next = vmi.clone();
    let entered = phase.filter(|phase| rank(phase) > rank(vmi.phase()));
    if let Some(phase) = entered {
        let status = next.status.get_or_insert_default();
        let transitions = status.phase_transition_timestamps.get_or_insert_default();
        let at = Some(whole_second(now));
        transitions.push(Transition { phase: Some(phase.clone()), phase_transition_timestamp: at });
        status.phase = Some(phase.clone());
    }
    match next.phase() {
        Phase::Scheduled => conditions::synchronized(&mut next, facts.outcome, now),
        Phase::Running => running(&mut next, entered.is_some(), facts, now),
        Phase::Succeeded | Phase::Failed if entered.is_some() => {
            conditions::ended(&mut next, facts, now);
        }
        _ => {}
    }
    next
}

/// The merge patch from one version of an instance to the next; none if they are equal.
pub(crate) fn change(old: &VirtualMachineInstance, new: &VirtualMachineInstance) -> Option<Value> {
    if old == new {
        return None;
    }
    let mut patch = difference(&json!(old), &json!(new))?;
    patch["metadata"]["uid"] = json!(old.metadata.uid);
    patch["metadata"]["resourceVersion"] = json!(old.metadata.resource_version);
    Some(patch)
}

/// How far an instance is; those that virt-handler does not know are nowhere it could go from.
fn rank(phase: &Phase) -> u8 {
    match phase {
        Phase::Scheduled => 1,
        Phase::Running => 2,
        Phase::Succeeded | Phase::Failed => 3,
        Phase::Unset
        | Phase::Pending
        | Phase::Scheduling
        | Phase::WaitingForSync
        | Phase::Unknown
        | Phase::Other(_) => u8::MAX,
    }
}

fn running(next: &mut VirtualMachineInstance, entered: bool, facts: &Facts<'_>, now: Timestamp) {
    // Whether the guest can move follows from it.
    if let Some(model) = facts.model.filter(|model| model.len() <= LARGEST_MODEL) {
        next.metadata.annotations.get_or_insert_default().insert(annotation::GUEST.to_owned(), model.to_owned());
    }
    conditions::synchronized(next, facts.outcome, now);
    conditions::waiting(next, facts.outcome, now);
    conditions::running(next, entered, facts, now);
    let interfaces = interfaces::interfaces(next, facts);
    let volumes = volumes(next);
    let guest_memory = next.spec.domain.memory.as_ref().and_then(|memory| memory.guest.clone());
    let method = migration::method(next);
    let status = next.status.get_or_insert_default();
    status.migration_method = Some(method);
    status.interfaces = Some(interfaces).filter(|all| !all.is_empty()).or(status.interfaces.take());
    status.volume_status = Some(volumes).filter(|all| !all.is_empty());
    if let Some(guest) = guest_memory {
        let memory = status.memory.get_or_insert_default();
        memory.guest_at_boot.get_or_insert_with(|| guest.clone());
        memory.guest_requested.get_or_insert_with(|| guest.clone());
        memory.guest_current.get_or_insert(guest);
    }
    // A guest keeps the board that it was started with, whatever an alias stands for by now.
    let board = |name: String| Machine { type_: Some(name) };
    if let Some(kept) = facts.model.and_then(board_of) {
        status.machine = Some(board(kept));
    } else if let Some(machine) = facts.machine {
        status.machine.get_or_insert_with(|| board(machine.to_owned()));
    }
    if let Some(guest) = facts.guest {
        status.guest_os_info = guest.os.as_ref().map(operating_system);
        let frozen = guest.freeze_status == "frozen";
        status.fs_freeze_status = frozen.then_some(FsFreezeStatus::Frozen);
    } else if facts.domain.is_some_and(|domain| !domain.agent_connected) {
        status.guest_os_info = None;
        status.fs_freeze_status = None;
    }
}

/// The board in a guest model. None if the model is of a release that this one does not understand.
fn board_of(model: &str) -> Option<String> {
    Some(Guest::from_stored(model.as_bytes()).ok()?.board.type_)
}

fn operating_system(os: &launcher_api::rpc::OperatingSystem) -> OperatingSystem {
    let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    OperatingSystem {
        id: text(&os.id),
        kernel_release: text(&os.kernel_release),
        kernel_version: text(&os.kernel_version),
        machine: text(&os.machine),
        name: text(&os.name),
        pretty_name: text(&os.pretty_name),
        version: text(&os.version),
        version_id: text(&os.version_id),
    }
}

/// One entry for each disk with a volume, in their order, with the name that a Linux guest is likely to give it. What else
/// is known of a volume stays.
fn volumes(vmi: &VirtualMachineInstance) -> Vec<VolumeStatus> {
    let known = vmi.status.as_ref().and_then(|status| status.volume_status.as_deref()).unwrap_or_default();
    let mut letters = (0_u32, 0_u32);
    let disks = vmi.spec.domain.devices.disks.iter().flatten();
    let mut all: Vec<VolumeStatus> = disks
        .map(|disk| {
            let old = known.iter().find(|one| one.name == disk.name).cloned().unwrap_or_default();
            VolumeStatus { name: disk.name.clone(), target: target(disk, &mut letters), ..old }
        })
        .collect();
    all.extend(known.iter().filter(|one| !all.iter().any(|other| other.name == one.name)).cloned().collect::<Vec<_>>());
    all
}

fn target(disk: &Disk, (virtio, others): &mut (u32, u32)) -> String {
    let bus = match (&disk.disk, &disk.cdrom) {
        (Some(disk), _) => disk.bus.as_ref(),
        (None, Some(cdrom)) => cdrom.bus.as_ref(),
        (None, None) => None,
    };
    let (prefix, count) = if bus == Some(&DiskBus::Virtio) { ("vd", virtio) } else { ("sd", others) };
    let name = format!("{prefix}{}", letters(*count));
    *count += 1;
    name
}

/// As the kernel counts disks: a to z, then aa.
fn letters(index: u32) -> String {
    let last = char::from(b'a' + u8::try_from(index % 26).unwrap_or_default());
    if index < 26 { last.to_string() } else { format!("{}{last}", letters(index / 26 - 1)) }
}

#[cfg(test)]
mod tests;
