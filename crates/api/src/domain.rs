//! The virtual hardware of an instance: CPU, memory, machine, launch security.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::clock::Clock;
use crate::devices::Devices;
use crate::enums::{closed_enum, open_enum};
use crate::features::Features;
use crate::firmware::Firmware;
use crate::quantity::Quantity;

/// Virtual hardware of the guest.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainSpec {
    /// Disks, NICs and all other attached hardware.
    pub devices: Devices,
    /// SMBIOS chassis strings the guest can read.
    pub chassis: Option<Chassis>,
    /// How guest time starts and which timers it sees.
    pub clock: Option<Clock>,
    /// Topology, model and pinning of the vCPUs.
    pub cpu: Option<CPU>,
    /// Hypervisor features such as ACPI, SMM and Hyper-V hints.
    pub features: Option<Features>,
    /// BIOS or UEFI, SMBIOS identity and direct kernel boot.
    pub firmware: Option<Firmware>,
    /// Pool size used by the supplementalPool policy.
    pub io_threads: Option<DiskIOThreads>,
    /// How disks share I/O threads: shared, auto or supplementalPool.
    pub io_threads_policy: Option<IOThreadsPolicy>,
    /// Confidential computing: SEV, SEV-SNP or TDX.
    pub launch_security: Option<LaunchSecurity>,
    /// QEMU machine type; the cluster default if unset.
    pub machine: Option<Machine>,
    /// Guest RAM, its ceiling and its backing pages.
    pub memory: Option<Memory>,
    /// On guest reboot: Reboot in place or Terminate the instance.
    pub reboot_policy: Option<RebootPolicy>,
    /// CPU and memory asked of the scheduler for the pod.
    pub resources: Option<ResourceRequirements>,
}

/// What the instance claims from its node.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRequirements {
    /// Upper bounds by resource name, set on the compute container.
    pub limits: Option<BTreeMap<String, Quantity>>,
    /// Leaves hypervisor overhead out of the pod memory request.
    pub overcommit_guest_overhead: Option<bool>,
    /// Amounts the scheduler reserves, by resource name.
    pub requests: Option<BTreeMap<String, Quantity>>,
}

/// The guest's virtual CPUs.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CPU {
    /// Cores per socket; 1 if unset.
    pub cores: Option<u32>,
    /// Pins each vCPU to a host CPU of its own.
    pub dedicated_cpu_placement: Option<bool>,
    /// CPU flags added to or removed from the model.
    pub features: Option<Vec<CPUFeature>>,
    /// Gives QEMU's own threads an extra dedicated CPU.
    pub isolate_emulator_thread: Option<bool>,
    /// Ceiling up to which sockets can be hotplugged.
    pub max_sockets: Option<u32>,
    /// QEMU model name, host-model (default) or host-passthrough.
    pub model: Option<String>,
    /// NUMA layout shown to the guest.
    pub numa: Option<NUMA>,
    /// Runs vCPUs under the host's realtime scheduler.
    pub realtime: Option<Realtime>,
    /// CPU sockets, the unit of CPU hotplug; 1 if unset.
    pub sockets: Option<u32>,
    /// Hardware threads per core; 1 if unset.
    pub threads: Option<u32>,
}

/// One CPU flag and how strictly it is wanted.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct CPUFeature {
    /// Name of the flag, e.g. pcid or vmx.
    pub name: String,
    /// One of force, require (default), optional, disable, forbid.
    pub policy: Option<CPUFeaturePolicy>,
}

/// How the guest's NUMA nodes come about.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NUMA {
    /// Mirrors the host NUMA nodes of the pinned CPUs.
    pub guest_mapping_passthrough: Option<NUMAGuestMappingPassthrough>,
}

/// Switch without options; needs pinned CPUs and hugepages.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct NUMAGuestMappingPassthrough {}

/// Realtime scheduling of vCPUs; needs pinned CPUs.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Realtime {
    /// vCPUs to run as realtime, e.g. 0-3,^1; all if empty.
    pub mask: Option<String>,
}

/// The guest's RAM.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// RAM the guest sees at boot; the memory request if unset.
    pub guest: Option<Quantity>,
    /// Backs guest RAM with preallocated huge pages.
    pub hugepages: Option<Hugepages>,
    /// Ceiling up to which memory can be hotplugged.
    pub max_guest: Option<Quantity>,
    /// Adjusts what the pod reserves beyond guest RAM.
    pub reserved_overhead: Option<ReservedOverhead>,
}

/// Huge page backing of guest RAM.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Hugepages {
    /// Page size, e.g. 2Mi or 1Gi; nodes must offer it.
    pub page_size: Option<String>,
}

/// Pod memory on top of the guest's own.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReservedOverhead {
    /// Extra memory on top of the computed overhead.
    pub added_overhead: Option<Quantity>,
    /// Whether guest memory must be lockable: Required or NotRequired.
    pub mem_lock: Option<MemLock>,
}

/// The emulated mainboard.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// QEMU machine, e.g. q35, pc-q35-rhel9.4.0 or virt.
    pub type_: Option<String>,
}

/// SMBIOS type 3 strings of the enclosure.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Chassis {
    /// Inventory tag shown in the guest's DMI data.
    pub asset: Option<String>,
    /// Vendor name shown in the guest's DMI data.
    pub manufacturer: Option<String>,
    /// Enclosure serial number in the guest's DMI data.
    pub serial: Option<String>,
    /// Stock keeping number in the guest's DMI data.
    pub sku: Option<String>,
    /// Free-form revision in the guest's DMI data.
    pub version: Option<String>,
}

/// Sizing of the I/O thread pool.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskIOThreads {
    /// Threads in the pool every virtio disk can use.
    pub supplemental_pool_thread_count: Option<u32>,
}

/// Memory encryption of the guest; set one technology.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct LaunchSecurity {
    /// AMD SEV, optionally with encrypted register state.
    pub sev: Option<SEV>,
    /// AMD SEV-SNP, which adds memory integrity.
    pub snp: Option<SEVSNP>,
    /// Intel Trust Domain Extensions.
    pub tdx: Option<TDX>,
}

/// AMD Secure Encrypted Virtualization settings.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SEV {
    /// If set, the guest stays paused until it is attested.
    pub attestation: Option<SEVAttestation>,
    /// Guest owner's Diffie-Hellman certificate, base64.
    pub dh_cert: Option<String>,
    /// Launch restrictions enforced by the AMD firmware.
    pub policy: Option<SEVPolicy>,
    /// Launch session blob of the guest owner, base64.
    pub session: Option<String>,
}

/// Bits of the SEV guest policy.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SEVPolicy {
    /// Turns on SEV-ES, which also encrypts CPU registers.
    pub encrypted_state: Option<bool>,
}

/// Empty marker that asks for attestation before start.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct SEVAttestation {}

/// Empty marker that turns on SEV-SNP.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct SEVSNP {}

/// Empty marker that turns on Intel TDX.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct TDX {}

open_enum! {
    /// How disks share QEMU I/O threads.
    pub enum IOThreadsPolicy {
        Shared = "shared",
        Auto = "auto",
        SupplementalPool = "supplementalPool",
    }
}

open_enum! {
    /// How strongly a CPU feature is asked for.
    pub enum CPUFeaturePolicy {
        Force = "force",
        Require = "require",
        Optional = "optional",
        Disable = "disable",
        Forbid = "forbid",
    }
}

closed_enum! {
    /// What a reboot by the guest leads to.
    pub enum RebootPolicy {
        Reboot = "Reboot",
        Terminate = "Terminate",
    }
}

closed_enum! {
    /// Whether guest memory must be locked.
    pub enum MemLock {
        NotRequired = "NotRequired",
        Required = "Required",
    }
}
