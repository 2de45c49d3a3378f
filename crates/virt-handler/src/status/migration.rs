//! Why a guest cannot move to another node while it runs, and what its instance says of its way.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use api::migration::{MigrationAbortStatus, MigrationMode};
use api::names::{annotation, label};
use api::vmi::VirtualMachineInstance;
use api::vmi_status::MigrationMethod;
use api::volumes::Volume;
use jiff::Timestamp;
use manager::writing::whole_second;

use super::Facts;
use crate::decide::Milestone;

/// Writes down how far a migration is. `reached_at` is where other nodes reach this one.
pub(crate) fn reached(
    next: &mut VirtualMachineInstance,
    milestone: &Milestone,
    reached_at: Option<SocketAddr>,
    now: Timestamp,
) {
    let at = whole_second(now);
    let status = next.status.get_or_insert_default();
    let Some(state) = status.migration_state.as_mut() else { return };
    match milestone {
        Milestone::Prepared => {
            let Some(address) = reached_at else { return };
            let ports = BTreeMap::from([(address.port().to_string(), 0)]);
            state.target_node_address = Some(address.ip().to_string());
            state.target_direct_migration_node_ports = Some(ports.clone());
            if let Some(target) = state.target_state.as_mut() {
                target.node_address = state.target_node_address.clone();
                target.direct_migration_node_ports = Some(ports);
            }
        }
        Milestone::Begun => {
            state.start_timestamp = Some(at).into();
            state.mode = Some(MigrationMode::PreCopy);
        }
        Milestone::Failed { why, is_aborted } => {
            state.completed = Some(true);
            state.failed = Some(true);
            state.failure_reason = Some(super::cut(why));
            state.end_timestamp = Some(at).into();
            if *is_aborted {
                state.abort_status = Some(MigrationAbortStatus::Succeeded);
            }
            if let Some(labels) = &mut next.metadata.labels {
                labels.remove(label::MIGRATION_TARGET_NODE_NAME);
            }
        }
        Milestone::Arrived => {
            state.completed = Some(true);
            state.end_timestamp = Some(at.clone()).into();
            state.target_node_domain_detected = Some(true);
            state.target_node_domain_ready_timestamp = Some(at);
            if state.abort_requested == Some(true) {
                state.abort_status = Some(MigrationAbortStatus::Failed);
            }
            let node = state.target_node.clone().unwrap_or_default();
            status.node_name = Some(node.clone());
            let labels = next.metadata.labels.get_or_insert_default();
            labels.insert(label::NODE_NAME.to_owned(), node);
            labels.remove(label::MIGRATION_TARGET_NODE_NAME);
        }
    }
}

/// The first reason that holds, as KubeVirt names it.
pub(super) fn why_not(vmi: &VirtualMachineInstance, facts: &Facts<'_>) -> Option<(&'static str, String)> {
    let domain = &vmi.spec.domain;
    let volumes = vmi.spec.volumes.as_deref().unwrap_or_default();
    if let Some(volume) = volumes.iter().find(|volume| stays_here(vmi, volume)) {
        let message = format!("cannot migrate VMI: volume {} is not shared between nodes", volume.name);
        return Some(("DisksNotLiveMigratable", message));
    }
    if let Some(volume) = volumes.iter().find(|volume| facts.isolates_claims && is_claim(volume)) {
        let message = format!(
            "cannot migrate VMI: volume {} is a claim, and on this node only one launcher at a time can use a claim, also if it is \
             ReadWriteMany",
            volume.name
        );
        return Some(("DisksNotLiveMigratable", message));
    }
    let interfaces = domain.devices.interfaces.as_deref().unwrap_or_default();
    if interfaces.iter().any(|interface| interface.masquerade.is_none() && is_on_pod_network(vmi, &interface.name)) {
        let message = "cannot migrate VMI which does not use masquerade to connect to the pod network".to_owned();
        return Some(("InterfaceNotLiveMigratable", message));
    }
    let devices = &domain.devices;
    let given = |count: Option<usize>| count.is_some_and(|count| count > 0);
    if given(devices.host_devices.as_ref().map(Vec::len)) || given(devices.gpus.as_ref().map(Vec::len)) {
        return Some(("HostDeviceNotLiveMigratable", "VMI uses a PCI host devices".to_owned()));
    }
    let has_model = vmi.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(annotation::GUEST));
    let why = match (facts.lets_guests_go, has_model) {
        (true, true) => return None,
        (true, false) => "the guest was started by a release that cannot migrate it; restart it to change that",
        (false, _) => "the guest's node takes no part in live migration",
    };
    Some(("MigrationNotSupported", why.to_owned()))
}

fn is_on_pod_network(vmi: &VirtualMachineInstance, name: &str) -> bool {
    vmi.spec.networks.iter().flatten().any(|network| network.name == name && network.pod.is_some())
}

/// How the guest moves, as KubeVirt has it: with copies of its disks, unless all of them are shared or cannot be written to.
pub(super) fn method(vmi: &VirtualMachineInstance) -> MigrationMethod {
    let volumes = vmi.spec.volumes.as_deref().unwrap_or_default();
    let devices = &vmi.spec.domain.devices;
    let is_read_only = |name: &str| {
        let mut disks = devices.disks.iter().flatten();
        disks.any(|disk| disk.name == name && disk.cdrom.as_ref().is_some_and(|cdrom| cdrom.readonly != Some(false)))
    };
    let is_shared_directory = |name: &str| devices.filesystems.iter().flatten().any(|one| one.name == name);
    let is_copied = |volume: &Volume| {
        let is_elsewhere = volume.host_disk.is_some() || is_claim(volume);
        stays_here(vmi, volume) || !(is_elsewhere || is_read_only(&volume.name) || is_shared_directory(&volume.name))
    };
    if volumes.iter().any(is_copied) { MigrationMethod::BlockMigration } else { MigrationMethod::LiveMigration }
}

fn is_claim(volume: &Volume) -> bool {
    volume.persistent_volume_claim.is_some() || volume.data_volume.is_some()
}

/// Whether a volume's data are on this node only.
fn stays_here(vmi: &VirtualMachineInstance, volume: &Volume) -> bool {
    if let Some(disk) = &volume.host_disk {
        return disk.shared != Some(true);
    }
    if !is_claim(volume) {
        return false;
    }
    let known = vmi.status.as_ref().and_then(|status| status.volume_status.as_deref()).unwrap_or_default();
    let claim =
        known.iter().find(|one| one.name == volume.name).and_then(|one| one.persistent_volume_claim_info.as_ref());
    let modes = claim.and_then(|claim| claim.access_modes.as_deref()).unwrap_or_default();
    !modes.iter().any(|mode| mode == "ReadWriteMany")
}
