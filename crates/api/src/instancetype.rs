//! Instancetypes: sizes that a VM refers to by name.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::devices::{GPU, HostDevice};
use crate::domain::{DiskIOThreads, Hugepages, IOThreadsPolicy, LaunchSecurity, NUMA, Realtime};
use crate::quantity::Quantity;
use crate::resource::resource;
use crate::schema;

/// CPU, memory and device sizing that VMs of one namespace share.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct VirtualMachineInstancetype {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Standard object metadata.
    #[serde(default)]
    #[schemars(with = "Option<schema::AnyObject>")]
    pub metadata: ObjectMeta,
    /// Resources a VM gets and cannot override.
    pub spec: VirtualMachineInstancetypeSpec,
}

resource!(VirtualMachineInstancetype is namespaced "virtualmachineinstancetypes" of "instancetype.kubevirt.io" in "v1beta1" with { spec });

/// A page of virtual machine instancetypes.
pub type VirtualMachineInstancetypeList = k8s_openapi::List<VirtualMachineInstancetype>;

/// CPU, memory and device sizing for VMs of all namespaces.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct VirtualMachineClusterInstancetype {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Standard object metadata.
    #[serde(default)]
    #[schemars(with = "Option<schema::AnyObject>")]
    pub metadata: ObjectMeta,
    /// Resources a VM gets and cannot override.
    pub spec: VirtualMachineInstancetypeSpec,
}

resource!(VirtualMachineClusterInstancetype is cluster "virtualmachineclusterinstancetypes" of "instancetype.kubevirt.io" in "v1beta1" with { spec });

/// A page of virtual machine cluster instancetypes.
pub type VirtualMachineClusterInstancetypeList = k8s_openapi::List<VirtualMachineClusterInstancetype>;

/// Resources imposed on VMs; a VM that sets them too is rejected.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstancetypeSpec {
    /// vCPU count and placement; required.
    pub cpu: CPUInstancetype,
    /// Guest memory size and backing; required.
    pub memory: MemoryInstancetype,
    /// Annotations added to the running instance.
    pub annotations: Option<BTreeMap<String, String>>,
    /// GPUs passed through to the guest.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub gpus: Option<Vec<GPU>>,
    /// Host PCI, mediated or USB devices passed through.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub host_devices: Option<Vec<HostDevice>>,
    /// Thread count for the supplementalPool policy.
    pub io_threads: Option<DiskIOThreads>,
    /// How disks share I/O threads: shared, auto or supplementalPool.
    pub io_threads_policy: Option<IOThreadsPolicy>,
    /// Memory encryption of the guest: SEV, SEV-SNP, TDX or Secure Execution.
    pub launch_security: Option<LaunchSecurity>,
    /// Node labels that the instance is bound to.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Scheduler for the launcher pod; cluster default if unset.
    pub scheduler_name: Option<String>,
}

/// vCPUs that an instance type grants.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CPUInstancetype {
    /// Number of vCPUs; the preference decides their topology.
    pub guest: u32,
    /// Pins each vCPU to a host CPU of its own.
    #[serde(rename = "dedicatedCPUPlacement")]
    pub dedicated_cpu_placement: Option<bool>,
    /// Reserves one more host CPU for QEMU's own threads.
    pub isolate_emulator_thread: Option<bool>,
    /// Upper limit for sockets added by hotplug.
    pub max_sockets: Option<u32>,
    /// CPU model, or host-model or host-passthrough.
    pub model: Option<String>,
    /// Maps host NUMA nodes into the guest; needs pinning and hugepages.
    pub numa: Option<NUMA>,
    /// Runs vCPUs with real-time priority; needs pinning.
    pub realtime: Option<Realtime>,
}

/// Memory that an instance type grants.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryInstancetype {
    /// Amount of RAM the guest sees, such as 4Gi.
    pub guest: Quantity,
    /// Backs guest RAM with preallocated host huge pages.
    pub hugepages: Option<Hugepages>,
    /// Upper limit for memory hotplug.
    pub max_guest: Option<Quantity>,
    /// Share of guest RAM, 0 to 100, that the pod does not request.
    #[schemars(with = "Option<schema::Integer>")]
    #[schemars(extend("minimum" = 0, "maximum" = 100))]
    pub overcommit_percent: Option<u32>,
}
