//! Networks: one source each, one of them the pod's at most, each with an interface.

use std::collections::BTreeSet;

use api::vmi::VirtualMachineInstanceSpec;

use crate::denial::Problems;

pub(super) fn check(spec: &VirtualMachineInstanceSpec, problems: &mut Problems) {
    let interfaces = spec.domain.devices.interfaces.iter().flatten();
    let interfaces: BTreeSet<&str> = interfaces.map(|interface| interface.name.as_str()).collect();
    let mut seen = BTreeSet::new();
    let (mut pod, mut default) = (None, None);
    for (index, network) in spec.networks.iter().flatten().enumerate() {
        let field = format!("spec.networks[{index}]");
        let name = network.name.as_str();
        if !seen.insert(name) {
            problems
                .duplicate(format!("{field}.name"), format!("{name:?} is already used by another network; rename it"));
        }
        if !interfaces.contains(name) {
            let message = format!("no interface uses {name:?}; add one to spec.domain.devices.interfaces");
            problems.required(format!("{field}.name"), message);
        }
        let sources = [network.pod.is_some(), network.multus.is_some(), network.resource_claim.is_some()];
        match sources.iter().filter(|set| **set).count() {
            1 => {}
            0 => problems.required(field.clone(), "has no source; set pod or multus"),
            _ => problems.invalid(field.clone(), "has more than one source; keep one"),
        }
        if let Some(multus) = &network.multus {
            if multus.network_name.is_empty() {
                let message = "is empty; name a NetworkAttachmentDefinition";
                problems.required(format!("{field}.multus.networkName"), message);
            }
            if multus.default == Some(true) && default.replace(index).is_some() {
                problems.invalid(format!("{field}.multus.default"), "only one network can be the default; remove it");
            }
        }
        if network.pod.is_some() && pod.replace(index).is_some() {
            problems.duplicate(format!("{field}.pod"), "only one network can be the pod network; remove it");
        }
    }
    if let (Some(_), Some(index)) = (pod, default) {
        let message = "replaces the pod network, which is also listed; remove one of them";
        problems.invalid(format!("spec.networks[{index}].multus.default"), message);
    }
}
