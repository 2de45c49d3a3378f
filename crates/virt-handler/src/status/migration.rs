//! Why a guest cannot move to another node while it runs.

use api::vmi::VirtualMachineInstance;
use api::volumes::Volume;

/// The first reason that holds, as KubeVirt names it. Migration itself is not supported yet, which is the last of them.
pub(super) fn why_not(vmi: &VirtualMachineInstance) -> (&'static str, String) {
    let domain = &vmi.spec.domain;
    let volumes = vmi.spec.volumes.as_deref().unwrap_or_default();
    if let Some(volume) = volumes.iter().find(|volume| stays_here(vmi, volume)) {
        let message = format!("cannot migrate VMI: volume {} is not shared between nodes", volume.name);
        return ("DisksNotLiveMigratable", message);
    }
    let interfaces = domain.devices.interfaces.as_deref().unwrap_or_default();
    if interfaces.iter().any(|interface| interface.masquerade.is_none() && is_on_pod_network(vmi, &interface.name)) {
        let message = "cannot migrate VMI which does not use masquerade to connect to the pod network".to_owned();
        return ("InterfaceNotLiveMigratable", message);
    }
    let devices = &domain.devices;
    let given = |count: Option<usize>| count.is_some_and(|count| count > 0);
    if given(devices.host_devices.as_ref().map(Vec::len)) || given(devices.gpus.as_ref().map(Vec::len)) {
        return ("HostDeviceNotLiveMigratable", "VMI uses a PCI host devices".to_owned());
    }
    ("MigrationNotSupported", "live migration is not supported yet".to_owned())
}

fn is_on_pod_network(vmi: &VirtualMachineInstance, name: &str) -> bool {
    vmi.spec.networks.iter().flatten().any(|network| network.name == name && network.pod.is_some())
}

/// Whether a volume's data are on this node only.
fn stays_here(vmi: &VirtualMachineInstance, volume: &Volume) -> bool {
    if let Some(disk) = &volume.host_disk {
        return disk.shared != Some(true);
    }
    if volume.persistent_volume_claim.is_none() && volume.data_volume.is_none() {
        return false;
    }
    let known = vmi.status.as_ref().and_then(|status| status.volume_status.as_deref()).unwrap_or_default();
    let claim =
        known.iter().find(|one| one.name == volume.name).and_then(|one| one.persistent_volume_claim_info.as_ref());
    let modes = claim.and_then(|claim| claim.access_modes.as_deref()).unwrap_or_default();
    !modes.iter().any(|mode| mode == "ReadWriteMany")
}
