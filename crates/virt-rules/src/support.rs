//! What an instance may ask for and nobody does yet, and what this cluster has switched off: refused by its field.

use api::domain::LaunchSecurity;
use api::names::annotation;
use api::networks::Interface;
use api::vmi::VirtualMachineInstance;
use api::volumes::Volume;

use crate::config::{ClusterConfig, Gate};

const NO_HOTPLUG: &str = "attach the volume from the start, without hotpluggable";
const NO_STATE: &str = "remove it; state of the TPM and firmware is not kept between runs";
const NO_CLAIMS: &str = "name a device plugin's resource by deviceName";

/// A field that is not acted on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The field is known and nobody acts on it yet.
    #[error("{path}: is not supported yet; {instead}")]
    Unsupported {
        /// The field, as in `spec.volumes[0].memoryDump`.
        path: String,
        /// What to do instead.
        instead: &'static str,
    },
    /// The feature is off in this cluster.
    #[error("{path}: needs the feature gate {gate}; add it to the KubeVirt CR or remove the field")]
    Gated {
        /// The field.
        path: String,
        /// The gate's name.
        gate: &'static str,
    },
}

/// All fields of an instance that would be accepted and not acted on.
#[must_use]
pub fn refusals(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> Vec<Refusal> {
    let unsupported = object(vmi).into_iter().chain(volumes(vmi)).chain(networks(vmi, config)).chain(devices(vmi));
    let off = gated(vmi).into_iter().filter(|(_, gate)| !config.enabled(*gate));
    unsupported
        .map(|(path, instead)| Refusal::Unsupported { path, instead })
        .chain(off.map(|(path, gate)| Refusal::Gated { path, gate: gate.name() }))
        .collect()
}

type Refusals = Vec<(String, &'static str)>;

fn object(vmi: &VirtualMachineInstance) -> Refusals {
    let mut refusals = Refusals::new();
    let mut refuse = |set: bool, path: &str, instead: &'static str| {
        if set {
            refusals.push((path.to_owned(), instead));
        }
    };
    let annotations = vmi.metadata.annotations.as_ref();
    let hooks = annotations.is_some_and(|annotations| annotations.contains_key(annotation::HOOK_SIDECARS));
    let path = format!("metadata.annotations[{}]", annotation::HOOK_SIDECARS);
    refuse(hooks, &path, "remove it; nothing edits a guest's definition but its spec");
    refuse(filled(vmi.spec.resource_claims.as_deref()), "spec.resourceClaims", NO_CLAIMS);
    refuse(filled(vmi.spec.utility_volumes.as_deref()), "spec.utilityVolumes", "remove it");
    let firmware = vmi.spec.domain.firmware.as_ref();
    let efi = firmware.and_then(|firmware| firmware.bootloader.as_ref()?.efi.as_ref());
    let path = "spec.domain.firmware.bootloader.efi.persistent";
    refuse(efi.is_some_and(|efi| efi.persistent == Some(true)), path, NO_STATE);
    let tpm = vmi.spec.domain.devices.tpm.as_ref();
    let path = "spec.domain.devices.tpm.persistent";
    refuse(tpm.is_some_and(|tpm| tpm.persistent == Some(true) && tpm.enabled != Some(false)), path, NO_STATE);
    refusals
}

fn volumes(vmi: &VirtualMachineInstance) -> Refusals {
    let mut refusals = Refusals::new();
    for (index, volume) in vmi.spec.volumes.iter().flatten().enumerate() {
        let path = |field: &str| format!("spec.volumes[{index}].{field}");
        let Volume { persistent_volume_claim: claim, data_volume, memory_dump, container_path, .. } = volume;
        if claim.as_ref().is_some_and(|claim| claim.hotpluggable == Some(true)) {
            refusals.push((path("persistentVolumeClaim.hotpluggable"), NO_HOTPLUG));
        }
        if data_volume.as_ref().is_some_and(|data_volume| data_volume.hotpluggable == Some(true)) {
            refusals.push((path("dataVolume.hotpluggable"), NO_HOTPLUG));
        }
        if memory_dump.is_some() {
            refusals.push((path("memoryDump"), "remove it"));
        }
        if container_path.is_some() {
            refusals.push((path("containerPath"), "copy the files into a config map or secret"));
        }
    }
    refusals
}

fn networks(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> Refusals {
    let mut refusals = Refusals::new();
    for (index, network) in vmi.spec.networks.iter().flatten().enumerate() {
        if network.resource_claim.is_some() {
            refusals.push((format!("spec.networks[{index}].resourceClaim"), "use pod"));
        }
        if network.multus.is_some() {
            refusals.push((format!("spec.networks[{index}].multus"), "use pod; a guest has one network"));
        }
    }
    for (index, interface) in vmi.spec.domain.devices.interfaces.iter().flatten().enumerate() {
        let path = |field: &str| format!("spec.domain.devices.interfaces[{index}].{field}");
        let Interface { slirp, macvtap, passt, binding, .. } = interface;
        for (name, set) in [("slirp", slirp.is_some()), ("macvtap", macvtap.is_some()), ("passt", passt.is_some())] {
            if set {
                refusals.push((path(name), "use masquerade or bridge"));
            }
        }
        let plugin = binding.as_ref().and_then(|binding| config.binding_plugin(&binding.name));
        if plugin.is_some_and(|plugin| plugin.sidecar_image.is_some()) {
            refusals.push((path("binding"), "use a plugin without a sidecar, or masquerade or bridge"));
        }
    }
    refusals
}

fn devices(vmi: &VirtualMachineInstance) -> Refusals {
    let devices = &vmi.spec.domain.devices;
    let mut refusals = Refusals::new();
    let gpus = devices.gpus.iter().flatten().map(|gpu| &gpu.claim_name).enumerate();
    let others = devices.host_devices.iter().flatten().map(|device| &device.claim_name).enumerate();
    let claims = gpus.map(|(index, claim)| (format!("gpus[{index}]"), claim));
    for (device, claim) in claims.chain(others.map(|(index, claim)| (format!("hostDevices[{index}]"), claim))) {
        if claim.is_some() {
            refusals.push((format!("spec.domain.devices.{device}.claimName"), NO_CLAIMS));
        }
    }
    if filled(devices.filesystems.as_deref()) {
        refusals.push(("spec.domain.devices.filesystems".to_owned(), "attach the volume as a disk"));
    }
    for (index, disk) in devices.disks.iter().flatten().enumerate() {
        if disk.changed_block_tracking == Some(true) {
            refusals.push((format!("spec.domain.devices.disks[{index}].changedBlockTracking"), "remove it"));
        }
    }
    refusals
}

/// Fields that reach for the host or change what the pod may do. Other gates are admission's alone.
fn gated(vmi: &VirtualMachineInstance) -> Vec<(String, Gate)> {
    let domain = &vmi.spec.domain;
    let devices = &domain.devices;
    let mut gated = Vec::new();
    let mut gate = |set: bool, path: &str, gate: Gate| {
        if set {
            gated.push((path.to_owned(), gate));
        }
    };
    gate(filled(devices.host_devices.as_deref()), "spec.domain.devices.hostDevices", Gate::HostDevices);
    gate(devices.autoattach_vsock == Some(true), "spec.domain.devices.autoattachVSOCK", Gate::VSOCK);
    gate(devices.downward_metrics.is_some(), "spec.domain.devices.downwardMetrics", Gate::DownwardMetrics);
    if let Some(LaunchSecurity { sev, snp, tdx }) = &domain.launch_security {
        gate(sev.is_some(), "spec.domain.launchSecurity.sev", Gate::WorkloadEncryptionSEV);
        gate(snp.is_some(), "spec.domain.launchSecurity.snp", Gate::WorkloadEncryptionSEV);
        gate(tdx.is_some(), "spec.domain.launchSecurity.tdx", Gate::WorkloadEncryptionTDX);
    }
    for (index, volume) in vmi.spec.volumes.iter().flatten().enumerate() {
        let path = |field: &str| format!("spec.volumes[{index}].{field}");
        gate(volume.host_disk.is_some(), &path("hostDisk"), Gate::HostDisk);
        gate(volume.downward_metrics.is_some(), &path("downwardMetrics"), Gate::DownwardMetrics);
    }
    for (index, interface) in devices.interfaces.iter().flatten().enumerate() {
        let path = format!("spec.domain.devices.interfaces[{index}].passtBinding");
        gate(interface.passt_binding.is_some(), &path, Gate::PasstBinding);
    }
    gated
}

fn filled<T>(list: Option<&[T]>) -> bool {
    list.is_some_and(|list| !list.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn vmi(spec: &Value) -> VirtualMachineInstance {
        let mut whole = json!({ "domain": { "devices": {} } });
        for (key, value) in spec.as_object().unwrap() {
            whole[key] = value.clone();
        }
        if whole["domain"].get("devices").is_none() {
            whole["domain"]["devices"] = json!({});
        }
        serde_json::from_value(json!({ "metadata": { "name": "v" }, "spec": whole })).unwrap()
    }

    fn first(vmi: &VirtualMachineInstance) -> Option<Refusal> {
        refusals(vmi, &ClusterConfig::default()).into_iter().next()
    }

    #[test]
    fn what_nobody_does_is_refused_by_its_field() {
        for (spec, path) in [
            (
                json!({ "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "fs", "hotpluggable": true } }] }),
                "spec.volumes[0].persistentVolumeClaim.hotpluggable",
            ),
            (
                json!({ "volumes": [{ "name": "v", "dataVolume": { "name": "fs", "hotpluggable": true } }] }),
                "spec.volumes[0].dataVolume.hotpluggable",
            ),
            (
                json!({ "volumes": [{ "name": "v", "memoryDump": { "claimName": "fs" } }] }),
                "spec.volumes[0].memoryDump",
            ),
            (
                json!({ "volumes": [{ "name": "v", "containerPath": { "path": "/a" } }] }),
                "spec.volumes[0].containerPath",
            ),
            (json!({ "utilityVolumes": [{ "name": "v", "claimName": "fs" }] }), "spec.utilityVolumes"),
            (json!({ "resourceClaims": [{ "name": "v" }] }), "spec.resourceClaims"),
            (
                json!({ "domain": { "devices": { "tpm": { "persistent": true } } } }),
                "spec.domain.devices.tpm.persistent",
            ),
            (
                json!({ "domain": { "firmware": { "bootloader": { "efi": { "persistent": true } } } } }),
                "spec.domain.firmware.bootloader.efi.persistent",
            ),
            (
                json!({ "domain": { "devices": { "gpus": [{ "name": "g", "claimName": "c" }] } } }),
                "spec.domain.devices.gpus[0].claimName",
            ),
            (
                json!({ "domain": { "devices": { "filesystems": [{ "name": "f", "virtiofs": {} }] } } }),
                "spec.domain.devices.filesystems",
            ),
            (json!({ "networks": [{ "name": "n", "resourceClaim": {} }] }), "spec.networks[0].resourceClaim"),
            (
                json!({ "domain": { "devices": { "interfaces": [{ "name": "n", "slirp": {} }] } } }),
                "spec.domain.devices.interfaces[0].slirp",
            ),
        ] {
            let error = first(&vmi(&spec)).unwrap();
            assert!(error.to_string().starts_with(&format!("{path}: is not supported yet; ")), "{error}");
        }
    }

    #[test]
    fn sidecars_are_refused() {
        let mut vmi = vmi(&json!({}));
        vmi.metadata.annotations = Some([(annotation::HOOK_SIDECARS.to_owned(), "[]".to_owned())].into());
        assert!(first(&vmi).is_some());
    }

    #[test]
    fn what_is_switched_off_names_its_gate() {
        let host_disk = vmi(&json!({ "volumes": [{ "name": "v", "hostDisk": { "path": "/a/b", "type": "Disk" } }] }));
        let wanted = Refusal::Gated { path: "spec.volumes[0].hostDisk".to_owned(), gate: "HostDisk" };
        assert_eq!(first(&host_disk), Some(wanted));
        let kubevirt = json!({
            "metadata": { "name": "kubevirt" },
            "spec": { "configuration": { "developerConfiguration": { "featureGates": ["HostDisk"] } } },
        });
        let config = ClusterConfig::new(Some(&serde_json::from_value(kubevirt).unwrap()));
        assert_eq!(refusals(&host_disk, &config), []);
    }
}
