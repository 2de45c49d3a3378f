//! The memory of a launcher pod that is not the guest's: a sum of measured parts.
//!
//! | part | when | size |
//! |---|---|---|
//! | page tables | `resources.requests.memory` is set | 1/512 of it |
//! | launcher | always | 16Mi |
//! | QEMU | always | 50Mi |
//! | vCPUs | always | 8Mi each |
//! | I/O thread | always | 8Mi |
//! | graphics | unless `autoattachGraphicsDevice: false` | 32Mi |
//! | UEFI images | arm64 | 128Mi |
//! | VFIO | a GPU, host device or SR-IOV interface | 1Gi |
//! | metrics disk | a volume `downwardMetrics` | 1Mi |
//! | probe commands | exec probes | 100Mi, and 10Mi each |
//! | SEV | `launchSecurity.sev` or `.snp` | 256Mi |
//! | TPM | `devices.tpm` | 53Mi |
//! | Guaranteed | dedicated CPUs, or requests equal to limits | 100Mi |
//! | reserved | `memory.reservedOverhead.addedOverhead` | as it says |
//!
//! `additionalGuestMemoryOverheadRatio` multiplies that sum; passt (250Mi) and network binding plugins (as the CR says)
//! come on top. KubeVirt has 190Mi where the launcher's 16Mi stand: a launcher, a monitor and libvirt's daemons.
//! Of the other parts this project has measured none to be smaller, so they are KubeVirt's.

use std::collections::BTreeSet;

use api::quantity::{Amount, Quantity};
use api::vmi::VirtualMachineInstance;

use super::cpu;
use virt_rules::config::ClusterConfig;

const MI: u64 = 1 << 20;

/// What a part of the overhead is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the table of the module says what each is")]
pub enum Part {
    PageTables,
    Launcher,
    Qemu,
    Vcpus,
    IoThread,
    Graphics,
    Arm64,
    Vfio,
    DownwardMetrics,
    Probes,
    Sev,
    Tpm,
    Guaranteed,
    Reserved,
}

/// The whole overhead.
#[must_use]
pub fn overhead(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> Amount {
    let sum: Amount = parts(vmi).into_iter().map(|(_, amount)| amount).sum();
    let scaled = config.overhead_ratio().map_or(sum, |ratio| ratio.of(sum));
    whole_bytes(scaled + passt(vmi) + binding_plugins(vmi, config))
}

/// The parts that the ratio multiplies; those that are nothing are left out.
#[must_use]
pub fn parts(vmi: &VirtualMachineInstance) -> Vec<(Part, Amount)> {
    let mi = |count: u64| Amount::bytes(count.saturating_mul(MI));
    let when = |condition: bool, count: u64| if condition { mi(count) } else { Amount::default() };
    let domain = &vmi.spec.domain;
    let devices = &domain.devices;
    let security = domain.launch_security.as_ref();
    let reserved = domain.memory.as_ref().and_then(|memory| memory.reserved_overhead.as_ref());
    let exec = [&vmi.spec.liveness_probe, &vmi.spec.readiness_probe];
    let exec = exec.iter().filter(|probe| probe.as_ref().is_some_and(|probe| probe.exec.is_some())).count();
    let exec = u64::try_from(exec).unwrap_or_default();
    let metrics = vmi.spec.volumes.iter().flatten().any(|volume| volume.downward_metrics.is_some());
    let parts = vec![
        (Part::PageTables, page_tables(vmi)),
        (Part::Launcher, mi(16)),
        (Part::Qemu, mi(50)),
        (Part::Vcpus, mi(cpu::vcpus(vmi).saturating_mul(8))),
        (Part::IoThread, mi(8)),
        (Part::Graphics, when(devices.autoattach_graphics_device != Some(false), 32)),
        (Part::Arm64, when(vmi.spec.architecture.as_deref() == Some("arm64"), 128)),
        (Part::Vfio, when(passes_devices_through(vmi), 1024)),
        (Part::DownwardMetrics, when(metrics, 1)),
        (Part::Probes, when(exec > 0, 100 + 10 * exec)),
        (Part::Sev, when(security.is_some_and(|security| security.sev.is_some() || security.snp.is_some()), 256)),
        (Part::Tpm, when(devices.tpm.as_ref().is_some_and(|tpm| tpm.enabled != Some(false)), 53)),
        (Part::Guaranteed, when(cpu::is_dedicated(vmi) || wants_guaranteed(vmi), 100)),
        (
            Part::Reserved,
            reserved.and_then(|reserved| reserved.added_overhead.as_ref()).map_or(Amount::default(), size),
        ),
    ];
    parts.into_iter().filter(|(_, amount)| !amount.is_zero()).collect()
}

/// Requests equal to limits, for CPU and memory: what Kubernetes calls Guaranteed.
pub(super) fn wants_guaranteed(vmi: &VirtualMachineInstance) -> bool {
    let Some(resources) = &vmi.spec.domain.resources else { return false };
    let of = |list: &Option<std::collections::BTreeMap<String, Quantity>>, name: &str| {
        list.as_ref().and_then(|list| list.get(name)).map(Quantity::amount)
    };
    ["cpu", "memory"]
        .iter()
        .all(|name| of(&resources.requests, name).is_some_and(|request| Some(request) == of(&resources.limits, name)))
}

/// Whole devices of the host are in the guest, and their memory is mapped.
fn passes_devices_through(vmi: &VirtualMachineInstance) -> bool {
    let devices = &vmi.spec.domain.devices;
    let any = |present: Option<bool>| present == Some(true);
    any(devices.gpus.as_ref().map(|list| !list.is_empty()))
        || any(devices.host_devices.as_ref().map(|list| !list.is_empty()))
        || devices.interfaces.iter().flatten().any(|interface| interface.sriov.is_some())
}

fn page_tables(vmi: &VirtualMachineInstance) -> Amount {
    let requests = vmi.spec.domain.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let memory = requests.and_then(|requests| requests.get("memory")).map_or(Amount::default(), size);
    memory.scaled(1, 512).map(whole_bytes).unwrap_or_default()
}

fn passt(vmi: &VirtualMachineInstance) -> Amount {
    let passt = vmi.spec.domain.devices.interfaces.iter().flatten().any(|interface| interface.passt_binding.is_some());
    if passt { Amount::bytes(250 * MI) } else { Amount::default() }
}

/// Each plugin counts once, however many interfaces use it.
fn binding_plugins(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> Amount {
    let interfaces = vmi.spec.domain.devices.interfaces.iter().flatten();
    let names: BTreeSet<&str> =
        interfaces.filter_map(|interface| interface.binding.as_ref()).map(|binding| binding.name.as_str()).collect();
    let plugins = names.into_iter().filter_map(|name| config.binding_plugin(name)?.compute_resource_overhead.as_ref());
    plugins.filter_map(|resources| resources.requests.as_ref()?.get("memory")).map(size).sum()
}

/// A size as Kubernetes counts it: whole bytes, and never less than nothing.
fn size(quantity: &Quantity) -> Amount {
    whole_bytes(quantity.amount().max(Amount::default()))
}

pub(super) fn whole_bytes(amount: Amount) -> Amount {
    Amount::bytes(u64::try_from(amount.units().max(0)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, vmi};
    use super::*;
    use serde_json::{Value, json};

    fn mebibytes(spec: Value) -> i128 {
        overhead(&vmi(spec), &ClusterConfig::default()).units() / i128::from(MI)
    }

    #[test]
    fn the_plain_guest_costs_what_its_parts_sum_up_to() {
        assert_eq!(mebibytes(json!({})), 16 + 50 + 8 + 8 + 32);
    }

    #[test]
    fn the_launcher_itself_stays_small() {
        let launcher = parts(&vmi(json!({}))).into_iter().find(|(part, _)| *part == Part::Launcher);
        assert!(launcher.unwrap().1 <= Amount::bytes(16 * MI));
    }

    #[test]
    fn each_part_adds_what_the_table_says() {
        let plain = mebibytes(json!({}));
        for (spec, more) in [
            (json!({ "domain": { "cpu": { "sockets": 2, "cores": 2 } } }), 24),
            (json!({ "domain": { "devices": { "autoattachGraphicsDevice": false } } }), -32),
            (json!({ "architecture": "arm64" }), 128),
            (json!({ "domain": { "devices": { "gpus": [{ "name": "a", "deviceName": "x/y" }] } } }), 1024),
            (json!({ "domain": { "devices": { "interfaces": [{ "name": "a", "sriov": {} }] } } }), 1024),
            (json!({ "volumes": [{ "name": "m", "downwardMetrics": {} }] }), 1),
            (json!({ "readinessProbe": { "exec": { "command": ["a"] } } }), 110),
            (
                json!({ "readinessProbe": { "exec": { "command": ["a"] } }, "livenessProbe": { "exec": { "command": ["a"] } } }),
                120,
            ),
            (json!({ "domain": { "launchSecurity": { "snp": {} } } }), 256),
            (json!({ "domain": { "devices": { "tpm": {} } } }), 53),
            (json!({ "domain": { "devices": { "tpm": { "enabled": false } } } }), 0),
            (json!({ "domain": { "cpu": { "dedicatedCpuPlacement": true } } }), 100),
            (json!({ "domain": { "memory": { "reservedOverhead": { "addedOverhead": "10Mi" } } } }), 10),
            (json!({ "domain": { "resources": { "requests": { "memory": "1Gi" } } } }), 2),
            (json!({ "domain": { "devices": { "interfaces": [{ "name": "a", "passtBinding": {} }] } } }), 250),
            (
                json!({ "domain": { "resources": { "requests": { "memory": "1Gi", "cpu": 1 }, "limits": { "memory": "1Gi", "cpu": "1" } } } }),
                102,
            ),
        ] {
            assert_eq!(mebibytes(spec.clone()) - plain, more, "{spec}");
        }
    }

    #[test]
    fn the_ratio_multiplies_before_networks_are_added() {
        let bench = Bench::configured(&json!({
            "additionalGuestMemoryOverheadRatio": "1.5",
            "network": { "binding": { "snug": { "computeResourceOverhead": { "requests": { "memory": "7Mi" } } } } },
        }));
        let interface = |name: &str| json!({ "name": name, "binding": { "name": "snug" } });
        let vmi = vmi(json!({ "domain": { "devices": { "interfaces": [interface("a"), interface("b")] } } }));
        assert_eq!(overhead(&vmi, &bench.config), Amount::bytes((114 * 3 / 2 + 7) * MI));
    }
}
