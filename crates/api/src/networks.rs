//! Networks and the interfaces that connect an instance to them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::devices::ClaimRequest;
use crate::enums::open_enum;
use crate::schema;

/// A network source that an interface connects to.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// Key by which an interface refers to it.
    pub name: String,
    /// Secondary network from a NetworkAttachmentDefinition.
    pub multus: Option<MultusNetwork>,
    /// The cluster's default pod network.
    pub pod: Option<PodNetwork>,
    /// Network device allocated through DRA.
    pub resource_claim: Option<ClaimRequest>,
}

/// Addresses used behind masquerade on the pod network.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct PodNetwork {
    /// IPv6 range for the guest; fd10:0:2::/120 if unset.
    #[serde(rename = "vmIPv6NetworkCIDR")]
    pub vm_i_pv6_network_cidr: Option<String>,
    /// IPv4 range for the guest; 10.0.2.0/24 if unset.
    #[serde(rename = "vmNetworkCIDR")]
    pub vm_network_cidr: Option<String>,
}

/// Reference to a Multus network.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MultusNetwork {
    /// NetworkAttachmentDefinition, as name or namespace/name.
    pub network_name: String,
    /// Replaces the pod network as the pod's primary one.
    pub default: Option<bool>,
}

/// A guest NIC and the way it reaches its network.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    /// Name of the network this NIC connects to.
    pub name: String,
    /// Slot number from 1 for stable guest names such as eno1.
    #[schemars(with = "Option<schema::Integer>")]
    pub acpi_index: Option<u32>,
    /// Uses a binding plugin registered in the KubeVirt CR.
    pub binding: Option<PluginBinding>,
    /// Network boot rank from 1, shared with the disks.
    #[schemars(with = "Option<schema::Integer>")]
    pub boot_order: Option<u32>,
    /// Bridges at layer 2; the guest takes over the pod IP.
    pub bridge: Option<InterfaceBridge>,
    /// Extra answers of the built-in DHCP server.
    pub dhcp_options: Option<DHCPOptions>,
    /// Guest MAC, e.g. 02:00:00:12:34:56; generated if unset.
    pub mac_address: Option<String>,
    /// Deprecated: use a binding plugin.
    pub macvtap: Option<DeprecatedInterfaceMacvtap>,
    /// NATs guest traffic behind the pod IP.
    pub masquerade: Option<InterfaceMasquerade>,
    /// Emulated NIC: virtio (default), e1000, e1000e, rtl8139 and others.
    pub model: Option<String>,
    /// Deprecated: use passtBinding.
    pub passt: Option<DeprecatedInterfacePasst>,
    /// Relays guest sockets via passt, without NAT rules.
    pub passt_binding: Option<InterfacePasstBinding>,
    /// Fixed PCI address in the guest, e.g. 0000:81:00.1.
    pub pci_address: Option<String>,
    /// Spans of ports forwarded to the guest.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub port_ranges: Option<Vec<PortRange>>,
    /// Ports forwarded to the guest; all if empty.
    pub ports: Option<Vec<Port>>,
    /// Deprecated: no longer supported, use masquerade.
    pub slirp: Option<DeprecatedInterfaceSlirp>,
    /// Hands over an SR-IOV virtual function via VFIO.
    pub sriov: Option<InterfaceSRIOV>,
    /// Link up or down; absent unplugs the NIC.
    pub state: Option<InterfaceState>,
    /// Label passed to the guest in cloud-init device metadata.
    pub tag: Option<String>,
}

/// Empty marker that picks the bridge binding.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct InterfaceBridge {}

/// Empty marker that picks the NAT binding.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct InterfaceMasquerade {}

/// Empty marker that picks SR-IOV passthrough.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct InterfaceSRIOV {}

/// Empty marker that picks the passt binding.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct InterfacePasstBinding {}

/// Deprecated: kept so old objects still parse.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct DeprecatedInterfaceSlirp {}

/// Deprecated: macvtap moved to a binding plugin.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct DeprecatedInterfaceMacvtap {}

/// Deprecated: superseded by InterfacePasstBinding.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct DeprecatedInterfacePasst {}

/// Reference to a network binding plugin.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct PluginBinding {
    /// Key under network.binding in the KubeVirt CR.
    pub name: String,
}

/// One port the guest receives traffic on.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Port {
    /// Port number, 1 to 65535.
    pub port: i32,
    /// Optional label, unique within the interface.
    pub name: Option<String>,
    /// Either TCP, the default, or UDP.
    pub protocol: Option<String>,
}

/// Consecutive ports the guest receives traffic on.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct PortRange {
    /// Last port, inclusive.
    pub end: i32,
    /// Transport of all ports in the range: TCP or UDP.
    pub protocol: String,
    /// First port, inclusive.
    pub start: i32,
}

/// Options handed out to the guest by DHCP.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DHCPOptions {
    /// Network boot file, DHCP option 67.
    pub boot_file_name: Option<String>,
    /// IPv4 addresses of time servers, DHCP option 42.
    pub ntp_servers: Option<Vec<String>>,
    /// Site-specific options, codes 224 to 254.
    pub private_options: Option<Vec<DHCPPrivateOptions>>,
    /// Host that serves the boot file, DHCP option 66.
    pub tftp_server_name: Option<String>,
}

/// One site-specific DHCP option.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct DHCPPrivateOptions {
    /// Code between 224 and 254.
    #[schemars(with = "schema::Integer")]
    pub option: u32,
    /// Payload, sent to the guest as text.
    pub value: String,
}

open_enum! {
    /// The link state wanted for an interface.
    pub enum InterfaceState {
        Up = "up",
        Down = "down",
        /// Unplug it.
        Absent = "absent",
    }
}
