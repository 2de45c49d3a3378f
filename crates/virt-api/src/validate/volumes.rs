//! Volumes: one source each, and what that source needs.

use std::collections::{BTreeMap, BTreeSet};

use api::quantity::Amount;
use api::vmi::VirtualMachineInstanceSpec;
use api::volumes::{HostDisk, HostDiskType, Volume};
use virt_rules::names::{is_dns_label, is_dns_subdomain};

use super::{cloud_init, firmware, word};
use crate::denial::Problems;

pub(super) fn check(spec: &VirtualMachineInstanceSpec, problems: &mut Problems) {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let devices = &spec.domain.devices;
    let disks = devices.disks.iter().flatten().map(|disk| disk.name.as_str());
    let filesystems = devices.filesystems.iter().flatten().map(|filesystem| filesystem.name.as_str());
    let used: BTreeSet<&str> = disks.chain(filesystems).collect();
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        let field = format!("spec.volumes[{index}]");
        if let Some(other) = seen.insert(&volume.name, index) {
            let message = format!("{:?} is already used by spec.volumes[{other}]; rename it", volume.name);
            problems.duplicate(format!("{field}.name"), message);
        }
        if !is_dns_label(&volume.name) {
            let message = "must have at most 63 lower-case letters, digits and -";
            problems.invalid(format!("{field}.name"), format!("{:?} {message}", volume.name));
        }
        if !used.contains(volume.name.as_str()) && volume.memory_dump.is_none() {
            let message = format!("no disk uses {:?}; add one to spec.domain.devices.disks", volume.name);
            problems.not_found(format!("{field}.name"), message);
        }
        check_source(volume, &field, problems);
        check_references(volume, &field, problems);
        cloud_init::check(volume, &field, problems);
    }
    check_once(spec, problems);
}

fn check_source(volume: &Volume, field: &str, problems: &mut Problems) {
    let Volume {
        name: _,
        cloud_init_config_drive,
        cloud_init_no_cloud,
        config_map,
        container_disk,
        container_path,
        data_volume,
        downward_api,
        downward_metrics,
        empty_disk,
        ephemeral,
        host_disk,
        memory_dump,
        persistent_volume_claim,
        secret,
        service_account,
        sysprep,
    } = volume;
    let set = [
        cloud_init_config_drive.is_some(),
        cloud_init_no_cloud.is_some(),
        config_map.is_some(),
        container_disk.is_some(),
        container_path.is_some(),
        data_volume.is_some(),
        downward_api.is_some(),
        downward_metrics.is_some(),
        empty_disk.is_some(),
        ephemeral.is_some(),
        host_disk.is_some(),
        memory_dump.is_some(),
        persistent_volume_claim.is_some(),
        secret.is_some(),
        service_account.is_some(),
        sysprep.is_some(),
    ];
    match set.iter().filter(|set| **set).count() {
        1 => {}
        0 => problems.required(field, "has no source; set one, such as containerDisk"),
        _ => problems.invalid(field, "has more than one source; keep one"),
    }
}

fn check_references(volume: &Volume, field: &str, problems: &mut Problems) {
    let claim = volume.persistent_volume_claim.as_ref().map(|claim| Some(claim.claim_name.as_str()));
    let base = volume
        .ephemeral
        .as_ref()
        .map(|ephemeral| ephemeral.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.as_str()));
    for (name, reference) in [
        ("persistentVolumeClaim.claimName", claim),
        ("ephemeral.persistentVolumeClaim.claimName", base),
        ("dataVolume.name", volume.data_volume.as_ref().map(|volume| Some(volume.name.as_str()))),
        ("containerDisk.image", volume.container_disk.as_ref().map(|disk| Some(disk.image.as_str()))),
        ("configMap.name", volume.config_map.as_ref().map(|map| map.name.as_deref())),
        ("secret.secretName", volume.secret.as_ref().map(|secret| secret.secret_name.as_deref())),
        (
            "serviceAccount.serviceAccountName",
            volume.service_account.as_ref().map(|account| account.service_account_name.as_deref()),
        ),
    ] {
        let Some(reference) = reference else { continue };
        match reference.unwrap_or_default() {
            "" => problems.required(format!("{field}.{name}"), "is empty; name the object"),
            _ if name == "containerDisk.image" => {}
            reference => check_name(reference, format!("{field}.{name}"), problems),
        }
    }
    let path = volume.container_disk.as_ref().and_then(|disk| disk.path.as_deref());
    if let Some(path) = path.filter(|path| !path.is_empty()) {
        firmware::check_path(path, &format!("{field}.containerDisk.path"), problems);
    }
    if let Some(disk) = &volume.host_disk {
        check_host_disk(disk, &format!("{field}.hostDisk"), problems);
    }
    if volume.empty_disk.as_ref().is_some_and(|disk| disk.capacity.amount() <= Amount::default()) {
        problems.invalid(format!("{field}.emptyDisk.capacity"), "must be greater than 0; use a size such as 2Gi");
    }
    if let Some(sysprep) = &volume.sysprep {
        if sysprep.config_map.is_some() == sysprep.secret.is_some() {
            problems.invalid(format!("{field}.sysprep"), "must have exactly one of configMap and secret");
        }
        for (name, reference) in [("configMap", &sysprep.config_map), ("secret", &sysprep.secret)] {
            if let Some(reference) = reference {
                check_name(&reference.name, format!("{field}.sysprep.{name}.name"), problems);
            }
        }
    }
}

/// The name of another object. It becomes a part of the launcher's arguments: no other text can be a name, anyway.
pub(super) fn check_name(name: &str, field: String, problems: &mut Problems) {
    if !is_dns_subdomain(name) {
        let message = "is not a valid object name; use at most 253 lower-case letters, digits, . and -";
        problems.invalid(field, format!("{name:?} {message}"));
    }
}

fn check_host_disk(disk: &HostDisk, field: &str, problems: &mut Problems) {
    if !disk.path.starts_with('/') {
        problems.required(format!("{field}.path"), "must be the absolute path of a file on the node");
    }
    let capacity = disk.capacity.as_ref().map(api::quantity::Quantity::amount).unwrap_or_default();
    match &disk.type_ {
        HostDiskType::Disk if !capacity.is_zero() => {
            problems.invalid(format!("{field}.capacity"), "only works with type DiskOrCreate; remove it");
        }
        HostDiskType::Disk => {}
        HostDiskType::DiskOrCreate if capacity <= Amount::default() => {
            problems.required(format!("{field}.capacity"), "is required for type DiskOrCreate; use a size such as 2Gi");
        }
        HostDiskType::DiskOrCreate => {}
        HostDiskType::Other(other) => word(Some(other), HostDiskType::KNOWN, format!("{field}.type"), problems),
    }
}

fn check_once(spec: &VirtualMachineInstanceSpec, problems: &mut Problems) {
    let volumes = || spec.volumes.iter().flatten();
    let counts = [
        ("serviceAccount", volumes().filter(|volume| volume.service_account.is_some()).count()),
        ("downwardMetrics", volumes().filter(|volume| volume.downward_metrics.is_some()).count()),
        ("memoryDump", volumes().filter(|volume| volume.memory_dump.is_some()).count()),
    ];
    for (source, count) in counts {
        if count > 1 {
            problems.invalid("spec.volumes", format!("only one volume may be a {source}; remove the others"));
        }
    }
    let Some(account) = spec.service_account_name.as_deref().filter(|name| !name.is_empty()) else { return };
    let mut named = volumes().filter_map(|volume| volume.service_account.as_ref()?.service_account_name.as_deref());
    if let Some(other) = named.find(|name| *name != account) {
        let message = format!("{account:?} differs from the account of the volume, {other:?}; a pod can only have one");
        problems.invalid("spec.serviceAccountName", message);
    }
}
