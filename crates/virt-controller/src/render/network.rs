//! Networks of the pod: ports that guests offer, and annotations that network plugins and meshes read.

use std::collections::{BTreeMap, BTreeSet};

use api::networks::{Interface, InterfaceState, MultusNetwork, Network};
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::core::v1::ContainerPort;
use serde::Serialize;

use super::{Input, RenderError, name};

/// Which secondary networks Multus attaches.
const MULTUS_NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
/// The network that replaces the pod's own.
const MULTUS_DEFAULT: &str = "v1.multus-cni.io/default-network";
/// Interfaces whose traffic Istio takes as coming from outside: by the name it knows, and by the older one.
const ISTIO: [&str; 2] = ["istio.io/reroute-virtual-interfaces", "traffic.sidecar.istio.io/kubevirtInterfaces"];
/// The bridge in front of a guest behind the pod's address.
const MASQUERADE_BRIDGE: &str = "k6t-eth0";

/// One network as Multus wants it said.
#[derive(Debug, Serialize)]
struct Selection<'a> {
    name: &'a str,
    namespace: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mac: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interface: Option<String>,
    #[serde(rename = "cni-args", skip_serializing_if = "Option::is_none")]
    cni_args: Option<BTreeMap<&'static str, &'a str>>,
}

/// What network plugins and meshes must know.
pub(super) fn annotations(input: &Input<'_>) -> Result<BTreeMap<String, String>, RenderError> {
    let mut annotations = BTreeMap::new();
    let pod_networks: BTreeSet<&str> =
        networks(input.vmi).filter(|one| one.pod.is_some()).map(|one| &*one.name).collect();
    let masquerades =
        |interface: &Interface| interface.masquerade.is_some() && pod_networks.contains(interface.name.as_str());
    if interfaces(input.vmi).any(masquerades) {
        annotations.extend(ISTIO.map(|key| (key.to_owned(), MASQUERADE_BRIDGE.to_owned())));
    }
    let default = networks(input.vmi).filter_map(|network| network.multus.as_ref()).find(|multus| is_default(multus));
    if let Some(multus) = default {
        annotations.insert(MULTUS_DEFAULT.to_owned(), multus.network_name.clone());
    }
    let selections = selections(input)?;
    if !selections.is_empty() {
        // A list of plain strings; there is nothing in it that JSON could refuse.
        let text = serde_json::to_string(&selections)
            .map_err(|error| RenderError::invalid("spec.networks", error.to_string()))?;
        annotations.insert(MULTUS_NETWORKS.to_owned(), text);
    }
    Ok(annotations)
}

/// Ports of the guest, as ports of the compute container: they inform, and name what a Service may target.
pub(super) fn ports(vmi: &VirtualMachineInstance) -> Result<Vec<ContainerPort>, RenderError> {
    let mut ports: Vec<ContainerPort> = Vec::new();
    for (index, interface) in interfaces(vmi).enumerate() {
        for (place, port) in interface.ports.iter().flatten().enumerate() {
            if !(1..=65535).contains(&port.port) {
                let path = format!("spec.domain.devices.interfaces[{index}].ports[{place}].port");
                return Err(RenderError::invalid(path, format!("{} is not a valid port; use 1 to 65535", port.port)));
            }
            let port = ContainerPort {
                container_port: port.port,
                name: port.name.clone().filter(|name| !name.is_empty()),
                protocol: Some(port.protocol.clone().filter(|name| !name.is_empty()).unwrap_or("TCP".to_owned())),
                ..ContainerPort::default()
            };
            if !ports.contains(&port) {
                ports.push(port);
            }
        }
    }
    Ok(ports)
}

fn selections<'a>(input: &Input<'a>) -> Result<Vec<Selection<'a>>, RenderError> {
    let (vmi, own) = (input.vmi, input.vmi.metadata.namespace.as_deref().unwrap_or_default());
    let mut selections = Vec::new();
    for network in networks(vmi) {
        let Some(multus) = network.multus.as_ref().filter(|multus| !is_default(multus)) else { continue };
        let interface = interfaces(vmi).find(|interface| interface.name == network.name);
        // Unplugged, or not plugged in yet.
        if interface.is_none_or(|interface| interface.state == Some(InterfaceState::Absent)) {
            continue;
        }
        let (namespace, name) = multus.network_name.split_once('/').unwrap_or((own, &multus.network_name));
        let mac = interface.and_then(|interface| interface.mac_address.as_deref()).filter(|mac| !mac.is_empty());
        let interface = Some(name::pod_interface(&network.name));
        selections.push(Selection { name, namespace, mac, interface, cni_args: None });
    }
    for (index, interface) in interfaces(vmi).enumerate() {
        let Some(binding) = &interface.binding else { continue };
        let path = || format!("spec.domain.devices.interfaces[{index}].binding.name");
        let Some(plugin) = input.config.binding_plugin(&binding.name) else {
            let problem = format!("plugin {:?} is not registered in the KubeVirt CR; register it there", binding.name);
            return Err(RenderError::invalid(path(), problem));
        };
        let Some(definition) = plugin.network_attachment_definition.as_deref().filter(|text| !text.is_empty()) else {
            continue;
        };
        let (namespace, name) = definition.split_once('/').unwrap_or((own, definition));
        let cni_args = Some(BTreeMap::from([("logicNetworkName", interface.name.as_str())]));
        // The plugin makes no interface of its own, or names it itself.
        selections.push(Selection { name, namespace, mac: None, interface: None, cni_args });
    }
    Ok(selections)
}

fn is_default(multus: &MultusNetwork) -> bool {
    multus.default == Some(true)
}

fn networks(vmi: &VirtualMachineInstance) -> impl Iterator<Item = &Network> {
    vmi.spec.networks.iter().flatten()
}

fn interfaces(vmi: &VirtualMachineInstance) -> impl Iterator<Item = &Interface> {
    vmi.spec.domain.devices.interfaces.iter().flatten()
}

#[cfg(test)]
mod tests;
