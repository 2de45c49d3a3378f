//! Host devices that guests may be given.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Mediated devices, such as vGPUs, made by virt-handler.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MediatedDevicesConfiguration {
    /// False leaves creation and removal to others; true if unset.
    pub enabled: Option<bool>,
    /// Types made on nodes with no entry of their own, such as nvidia-222.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub mediated_device_types: Option<Vec<String>>,
    /// Deprecated: use mediatedDeviceTypes.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub mediated_devices_types: Option<Vec<String>>,
    /// Types for selected nodes, in place of the cluster list.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub node_mediated_device_types: Option<Vec<NodeMediatedDeviceTypesConfig>>,
}

/// A kind of mediated device that guests may use.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MediatedHostDevice {
    /// Type name as in sysfs, such as GRID T4-1Q.
    pub mdev_name_selector: String,
    /// Node resource VMs ask for, such as nvidia.com/GRID_T4-1Q.
    pub resource_name: String,
    /// True if another device plugin advertises the resource.
    pub external_resource_provider: Option<bool>,
}

/// Mediated device types for a group of nodes.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeMediatedDeviceTypesConfig {
    /// Labels a node must have for this entry to apply.
    pub node_selector: BTreeMap<String, String>,
    /// Types to create on these nodes, such as nvidia-222.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub mediated_device_types: Option<Vec<String>>,
    /// Deprecated: use mediatedDeviceTypes.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub mediated_devices_types: Option<Vec<String>>,
}

/// A PCI device model that guests may get passed through.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PciHostDevice {
    /// Vendor and device ID in hex, such as 10DE:1EB8.
    pub pci_vendor_selector: String,
    /// Node resource VMs ask for, such as nvidia.com/TU104GL.
    pub resource_name: String,
    /// True if another device plugin advertises the resource.
    pub external_resource_provider: Option<bool>,
}

/// Allow list of host devices for passthrough.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PermittedHostDevices {
    /// Allowed slices of shared devices, such as vGPUs.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub mediated_devices: Option<Vec<MediatedHostDevice>>,
    /// Allowed whole PCI devices, by vendor and device ID.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub pci_host_devices: Option<Vec<PciHostDevice>>,
    /// Allowed USB devices, by vendor and product ID.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub usb: Option<Vec<USBHostDevice>>,
}

/// A USB device, or a set handed out together.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct USBHostDevice {
    /// Node resource VMs ask for, such as kubevirt.io/storage.
    pub resource_name: String,
    /// True if another device plugin advertises the resource.
    pub external_resource_provider: Option<bool>,
    /// Devices that make up one resource unit; all must be present.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub selectors: Option<Vec<USBSelector>>,
}

/// Identifies a USB device model, as lsusb prints it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct USBSelector {
    /// Product ID, four hex digits.
    pub product: String,
    /// Vendor ID, four hex digits.
    pub vendor: String,
}
