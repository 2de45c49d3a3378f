//! What an instance gets without listing it: a disk for each volume, an input device, a place on the pod's network.
//!
//! Whoever makes an instance of a VM does this before a preference is applied, admission for whatever else arrives;
//! done twice it changes nothing.

use std::collections::BTreeSet;

use api::devices::{Disk, Input, InputType};
use api::networks::{Interface, InterfaceBridge, InterfaceMasquerade, Network, PodNetwork};
use api::vmi::VirtualMachineInstanceSpec;

use crate::config::{ClusterConfig, DefaultInterface};

/// The name of a network and its interface that nobody listed.
const DEFAULT: &str = "default";
/// The name of an input device that nobody listed.
const DEFAULT_INPUT: &str = "default-0";

/// Adds a disk for each volume that neither a disk nor a filesystem uses.
pub fn disks(spec: &mut VirtualMachineInstanceSpec) {
    let devices = &spec.domain.devices;
    let disks = devices.disks.iter().flatten().map(|disk| disk.name.clone());
    let used = disks.chain(devices.filesystems.iter().flatten().map(|filesystem| filesystem.name.clone()));
    let mut used: BTreeSet<String> = used.collect();
    for volume in spec.volumes.iter().flatten() {
        if used.insert(volume.name.clone()) {
            let disk = Disk { name: volume.name.clone(), ..Disk::default() };
            spec.domain.devices.disks.get_or_insert_default().push(disk);
        }
    }
}

/// Adds an input device if one is wanted and none is listed. Its type is left open for a preference.
pub fn input(spec: &mut VirtualMachineInstanceSpec) {
    let devices = &mut spec.domain.devices;
    let listed = devices.inputs.as_ref().is_some_and(|inputs| !inputs.is_empty());
    if devices.autoattach_input_device == Some(true) && !listed {
        let type_ = InputType::Other(String::new());
        devices.inputs = Some(vec![Input { name: DEFAULT_INPUT.to_owned(), type_, bus: None }]);
    }
}

/// Connects an instance that lists neither networks nor interfaces to the pod's network, unless it does not want to.
pub fn network(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) {
    let devices = &mut spec.domain.devices;
    let listed = devices.interfaces.as_ref().is_some_and(|interfaces| !interfaces.is_empty())
        || spec.networks.as_ref().is_some_and(|networks| !networks.is_empty());
    if devices.autoattach_pod_interface == Some(false) || listed {
        return;
    }
    let interface = Interface { name: DEFAULT.to_owned(), ..Interface::default() };
    devices.interfaces = Some(vec![match config.default_interface() {
        DefaultInterface::Bridge => Interface { bridge: Some(InterfaceBridge {}), ..interface },
        DefaultInterface::Masquerade => Interface { masquerade: Some(InterfaceMasquerade {}), ..interface },
    }]);
    let network = Network { name: DEFAULT.to_owned(), pod: Some(PodNetwork::default()), ..Network::default() };
    spec.networks = Some(vec![network]);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(json: Value) -> VirtualMachineInstanceSpec {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_volume_without_a_disk_gets_one() {
        let mut spec = spec(json!({
            "domain": { "devices": { "disks": [{ "name": "a" }], "filesystems": [{ "name": "b", "virtiofs": {} }] } },
            "volumes": [{ "name": "a" }, { "name": "b" }, { "name": "c" }],
        }));
        disks(&mut spec);
        let names: Vec<_> = spec.domain.devices.disks.iter().flatten().map(|disk| disk.name.as_str()).collect();
        assert_eq!(names, ["a", "c"]);
    }

    #[test]
    fn an_input_comes_only_when_asked_for() {
        let mut without = spec(json!({ "domain": { "devices": {} } }));
        input(&mut without);
        assert_eq!(without.domain.devices.inputs, None);
        let mut with = spec(json!({ "domain": { "devices": { "autoattachInputDevice": true } } }));
        input(&mut with);
        assert_eq!(with.domain.devices.inputs.map(|inputs| inputs.len()), Some(1));
    }

    #[test]
    fn an_instance_without_networks_joins_the_pods() {
        let mut hidden = spec(json!({ "domain": { "devices": {} } }));
        network(&mut hidden, &ClusterConfig::default());
        let json = serde_json::to_value(&hidden).unwrap();
        assert_eq!(json["networks"], json!([{ "name": "default", "pod": {} }]));
        assert_eq!(json["domain"]["devices"]["interfaces"], json!([{ "name": "default", "masquerade": {} }]));
        let mut alone = spec(json!({ "domain": { "devices": { "autoattachPodInterface": false } } }));
        network(&mut alone, &ClusterConfig::default());
        assert_eq!(alone.networks, None);
    }

    #[test]
    fn a_cluster_may_prefer_a_bridge() {
        let kubevirt = json!({
            "metadata": { "name": "kubevirt" },
            "spec": { "configuration": { "network": { "defaultNetworkInterface": "bridge" } } },
        });
        let config = ClusterConfig::new(Some(&serde_json::from_value(kubevirt).unwrap()));
        let mut bridged = spec(json!({ "domain": { "devices": {} } }));
        network(&mut bridged, &config);
        assert!(bridged.domain.devices.interfaces.unwrap()[0].bridge.is_some());
    }
}
