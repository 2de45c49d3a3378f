//! Preferences: what a guest operating system likes, used where a VM says nothing.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::clock::{ClockOffset, Timer};
use crate::devices::{
    BlockSize, DiskBus, DriverCache, DriverIO, InputBus, InputType, PanicDeviceModel, Rng, TPMDevice, VGPUOptions,
};
use crate::domain::{CPUFeature, LaunchSecurity};
use crate::enums::open_enum;
use crate::features::{FeatureAPIC, FeatureHyperv, FeatureKVM, FeatureState};
use crate::firmware::EFI;
use crate::networks::InterfaceMasquerade;
use crate::quantity::Quantity;
use crate::resource::resource;
use crate::schema;

/// Device and firmware defaults that VMs of one namespace share.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct VirtualMachinePreference {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Standard object metadata.
    #[serde(default)]
    #[schemars(with = "Option<schema::AnyObject>")]
    pub metadata: ObjectMeta,
    /// Defaults that yield to what the VM sets itself.
    pub spec: VirtualMachinePreferenceSpec,
}

resource!(VirtualMachinePreference is namespaced "virtualmachinepreferences" of "instancetype.kubevirt.io" in "v1beta1" with { spec });

/// A page of virtual machine preferences.
pub type VirtualMachinePreferenceList = k8s_openapi::List<VirtualMachinePreference>;

/// Device and firmware defaults for VMs of all namespaces.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct VirtualMachineClusterPreference {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Standard object metadata.
    #[serde(default)]
    #[schemars(with = "Option<schema::AnyObject>")]
    pub metadata: ObjectMeta,
    /// Defaults that yield to what the VM sets itself.
    pub spec: VirtualMachinePreferenceSpec,
}

resource!(VirtualMachineClusterPreference is cluster "virtualmachineclusterpreferences" of "instancetype.kubevirt.io" in "v1beta1" with { spec });

/// A page of virtual machine cluster preferences.
pub type VirtualMachineClusterPreferenceList = k8s_openapi::List<VirtualMachineClusterPreference>;

/// Defaults that suit a guest system; the VM's own values win.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachinePreferenceSpec {
    /// Annotations added to the running instance.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Clock base and timers for the guest.
    pub clock: Option<ClockPreferences>,
    /// vCPU topology and CPU flags.
    pub cpu: Option<CPUPreferences>,
    /// Buses, models and automatic devices.
    pub devices: Option<DevicePreferences>,
    /// ACPI, APIC, Hyper-V and other hypervisor features.
    pub features: Option<FeaturePreferences>,
    /// BIOS or EFI boot, with or without Secure Boot.
    pub firmware: Option<FirmwarePreferences>,
    /// QEMU machine type.
    pub machine: Option<MachinePreferences>,
    /// Deprecated: use cpu.spreadOptions.ratio.
    pub prefer_spread_socket_to_core_ratio: Option<u32>,
    /// Guest architecture: amd64, arm64 or s390x.
    pub preferred_architecture: Option<String>,
    /// Guest memory encryption if the VM sets none.
    pub preferred_launch_security: Option<LaunchSecurity>,
    /// DNS subdomain of the guest's full host name.
    pub preferred_subdomain: Option<String>,
    /// Seconds the guest gets to power off before it is killed.
    pub preferred_termination_grace_period_seconds: Option<i64>,
    /// Minimum resources; smaller VMs are rejected.
    pub requirements: Option<PreferenceRequirements>,
    /// Storage defaults for the VM's DataVolumes.
    pub volumes: Option<VolumePreferences>,
}

/// How the guest's vCPUs are presented.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CPUPreferences {
    /// CPU flags to require, force, disable or forbid.
    #[serde(rename = "preferredCPUFeatures")]
    pub preferred_cpu_features: Option<Vec<CPUFeature>>,
    /// vCPUs become sockets (default), cores or threads, or any or spread.
    #[serde(rename = "preferredCPUTopology")]
    pub preferred_cpu_topology: Option<PreferredCPUTopology>,
    /// Details for the spread topology.
    pub spread_options: Option<SpreadOptions>,
}

/// How vCPUs are divided under the spread topology.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct SpreadOptions {
    /// SocketsCores (default), SocketsCoresThreads or CoresThreads.
    pub across: Option<SpreadAcross>,
    /// Cores per socket, or threads per core under CoresThreads; 2 if unset.
    pub ratio: Option<u32>,
}

/// Timekeeping defaults for the guest.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClockPreferences {
    /// UTC or a time zone as base of the guest clock.
    pub preferred_clock_offset: Option<ClockOffset>,
    /// Timers offered to the guest, such as HPET, PIT and kvmclock.
    pub preferred_timer: Option<Timer>,
}

/// Defaults for virtual devices the VM leaves open.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DevicePreferences {
    /// Whether to add a VGA device and VNC access.
    pub preferred_autoattach_graphics_device: Option<bool>,
    /// Whether to add a tablet for the pointer.
    pub preferred_autoattach_input_device: Option<bool>,
    /// Whether to add a balloon, which also gives memory statistics.
    pub preferred_autoattach_mem_balloon: Option<bool>,
    /// Whether a VM without networks gets the pod network.
    pub preferred_autoattach_pod_interface: Option<bool>,
    /// Whether to add the serial port behind virtctl console.
    pub preferred_autoattach_serial_console: Option<bool>,
    /// Gives virtio disks one queue per vCPU.
    pub preferred_block_multi_queue: Option<bool>,
    /// CD-ROM bus: sata, scsi or usb.
    pub preferred_cdrom_bus: Option<DiskBus>,
    /// Leaves out the controllers that disk hotplug needs.
    pub preferred_disable_hotplug: Option<bool>,
    /// Logical and physical sector size of disks.
    pub preferred_disk_block_size: Option<BlockSize>,
    /// Disk bus: virtio, sata, scsi or usb.
    pub preferred_disk_bus: Option<DiskBus>,
    /// Host caching: none, writethrough or writeback.
    pub preferred_disk_cache: Option<DriverCache>,
    /// Gives each virtio disk an I/O thread of its own.
    pub preferred_disk_dedicated_io_thread: Option<bool>,
    /// QEMU I/O mode of disks: native, threads or default.
    #[serde(rename = "preferredDiskIO")]
    pub preferred_disk_io: Option<DriverIO>,
    /// Input device bus: usb or virtio.
    pub preferred_input_bus: Option<InputBus>,
    /// Input device type; only tablet exists.
    pub preferred_input_type: Option<InputType>,
    /// Puts pod network interfaces without a binding behind NAT.
    pub preferred_interface_masquerade: Option<InterfaceMasquerade>,
    /// Network card: virtio, e1000e, e1000, rtl8139 and others.
    pub preferred_interface_model: Option<String>,
    /// Bus of LUN passthrough disks, usually scsi.
    pub preferred_lun_bus: Option<DiskBus>,
    /// Gives virtio network cards one queue per vCPU.
    pub preferred_network_interface_multi_queue: Option<bool>,
    /// Device that reports guest crashes: hyperv, isa or pvpanic.
    pub preferred_panic_device_model: Option<PanicDeviceModel>,
    /// Adds a virtio entropy source fed by the host.
    pub preferred_rng: Option<Rng>,
    /// Sound card: ich9 or ac97.
    pub preferred_sound_model: Option<String>,
    /// Adds an emulated TPM, with or without persistent state.
    #[serde(rename = "preferredTPM")]
    pub preferred_tpm: Option<TPMDevice>,
    /// Uses virtio 0.9 compatible devices for old guests.
    pub preferred_use_virtio_transitional: Option<bool>,
    /// Graphics card: vga, virtio, bochs, cirrus or ramfb.
    pub preferred_video_type: Option<String>,
    /// Whether a vGPU serves as display and boot framebuffer.
    #[serde(rename = "preferredVirtualGPUOptions")]
    pub preferred_virtual_gpu_options: Option<VGPUOptions>,
}

/// Hypervisor features offered to the guest.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FeaturePreferences {
    /// ACPI tables; off breaks clean shutdown in most guests.
    pub preferred_acpi: Option<FeatureState>,
    /// Interrupt controller, with optional end-of-interrupt boost.
    pub preferred_apic: Option<FeatureAPIC>,
    /// Enlightenments that speed up Windows guests.
    pub preferred_hyperv: Option<FeatureHyperv>,
    /// Whether to hide KVM from the guest.
    pub preferred_kvm: Option<FeatureKVM>,
    /// Paravirtual spinlocks, helpful on overcommitted hosts.
    pub preferred_pvspinlock: Option<FeatureState>,
    /// System management mode, needed for Secure Boot.
    pub preferred_smm: Option<FeatureState>,
}

/// Firmware used if the VM sets no bootloader.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FirmwarePreferences {
    /// EFI boot with Secure Boot and persistent NVRAM settings.
    pub preferred_efi: Option<EFI>,
    /// Boots through legacy BIOS.
    pub preferred_use_bios: Option<bool>,
    /// Sends BIOS output to the serial console.
    pub preferred_use_bios_serial: Option<bool>,
    /// Deprecated: use preferredEfi.
    pub preferred_use_efi: Option<bool>,
    /// Deprecated: use preferredEfi.
    pub preferred_use_secure_boot: Option<bool>,
}

/// Virtual mainboard defaults.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MachinePreferences {
    /// QEMU machine type, such as q35 or pc-q35-rhel9.4.0.
    pub preferred_machine_type: Option<String>,
}

/// Storage defaults for the VM's DataVolumes.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumePreferences {
    /// Class for dataVolumeTemplates that name none.
    pub preferred_storage_class_name: Option<String>,
}

/// Least that a VM must have to use the preference.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct PreferenceRequirements {
    /// Architecture the VM must have.
    pub architecture: Option<String>,
    /// Lower bound for vCPUs.
    pub cpu: Option<CPUPreferenceRequirement>,
    /// Lower bound for guest memory.
    pub memory: Option<MemoryPreferenceRequirement>,
}

/// vCPUs a VM must have at least.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct CPUPreferenceRequirement {
    /// Minimum number of vCPUs, given by instance type or VM.
    pub guest: u32,
}

/// Memory a VM must have at least.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct MemoryPreferenceRequirement {
    /// Minimum guest RAM, such as 2Gi.
    pub guest: Quantity,
}

open_enum! {
    /// What a number of vCPUs is turned into.
    pub enum PreferredCPUTopology {
        Sockets = "sockets",
        Cores = "cores",
        Threads = "threads",
        Spread = "spread",
        Any = "any",
        /// Older spelling of sockets.
        PreferSockets = "preferSockets",
        /// Older spelling of cores.
        PreferCores = "preferCores",
        /// Older spelling of threads.
        PreferThreads = "preferThreads",
        /// Older spelling of spread.
        PreferSpread = "preferSpread",
        /// Older spelling of any.
        PreferAny = "preferAny",
    }
}

open_enum! {
    /// What vCPUs are spread over.
    pub enum SpreadAcross {
        SocketsCores = "SocketsCores",
        SocketsCoresThreads = "SocketsCoresThreads",
        CoresThreads = "CoresThreads",
    }
}
