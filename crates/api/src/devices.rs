//! Devices of an instance: disks, GPUs, inputs, watchdog and the rest. Interfaces are in `networks`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::enums::open_enum;
use crate::features::FeatureState;
use crate::networks::Interface;
use crate::schema;

/// Everything plugged into the guest.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Devices {
    /// Adds a video card and VNC; true if unset.
    pub autoattach_graphics_device: Option<bool>,
    /// Adds a tablet if no input is listed; false if unset.
    pub autoattach_input_device: Option<bool>,
    /// Adds a balloon, also used for memory stats; true if unset.
    pub autoattach_mem_balloon: Option<bool>,
    /// Adds a pod network NIC if none is listed; true if unset.
    pub autoattach_pod_interface: Option<bool>,
    /// Adds the serial port of virtctl console; true if unset.
    pub autoattach_serial_console: Option<bool>,
    /// Adds a host-guest socket with its own CID; false if unset.
    #[serde(rename = "autoattachVSOCK")]
    pub autoattach_vsock: Option<bool>,
    /// One virtio disk queue per vCPU; false if unset.
    pub block_multi_queue: Option<bool>,
    /// Lets virtctl usbredir forward a client's USB devices.
    pub client_passthrough: Option<ClientPassthroughDevices>,
    /// Gives up disk hotplug and its SCSI controller.
    pub disable_hotplug: Option<bool>,
    /// Guest drives, each tied to a volume by name.
    #[schemars(extend("maxItems" = 256))]
    pub disks: Option<Vec<Disk>>,
    /// Serves host metrics over a virtio-serial port.
    pub downward_metrics: Option<DownwardMetrics>,
    /// Volumes shared as directories instead of drives.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub filesystems: Option<Vec<Filesystem>>,
    /// Physical or mediated GPUs handed to the guest.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub gpus: Option<Vec<GPU>>,
    /// PCI, USB or mediated host devices handed over.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub host_devices: Option<Vec<HostDevice>>,
    /// Pointing devices, e.g. a tablet for VNC.
    pub inputs: Option<Vec<Input>>,
    /// Guest NICs, each tied to a network by name.
    #[schemars(extend("maxItems" = 256))]
    pub interfaces: Option<Vec<Interface>>,
    /// Copies serial output to a container log.
    pub log_serial_console: Option<bool>,
    /// One virtio NIC queue per vCPU; false if unset.
    pub network_interface_multiqueue: Option<bool>,
    /// Devices by which a guest reports its crash.
    pub panic_devices: Option<Vec<PanicDevice>>,
    /// Virtio entropy source fed by the host.
    pub rng: Option<Rng>,
    /// Sound card whose output is discarded on the host.
    pub sound: Option<SoundDevice>,
    /// Software TPM 2.0 run by swtpm.
    pub tpm: Option<TPMDevice>,
    /// Virtio devices that old 0.9 drivers can drive as well.
    pub use_virtio_transitional: Option<bool>,
    /// Model of the video card; needs graphics attached.
    pub video: Option<VideoDevice>,
    /// Timer that acts when the guest stops feeding it.
    pub watchdog: Option<Watchdog>,
}

/// A drive; set one of disk, lun or cdrom.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    /// Name of the volume behind this drive.
    pub name: String,
    /// Sector sizes reported to the guest.
    pub block_size: Option<BlockSize>,
    /// Boot rank from 1, lowest first, unique across disks and NICs.
    #[schemars(with = "Option<schema::Integer>")]
    pub boot_order: Option<u32>,
    /// Host caching: none, writethrough or writeback.
    pub cache: Option<DriverCache>,
    /// Presents the volume as an optical drive.
    pub cdrom: Option<CDRomTarget>,
    /// Records changed blocks for incremental backup.
    pub changed_block_tracking: Option<bool>,
    /// Gives this virtio disk an I/O thread of its own.
    #[serde(rename = "dedicatedIOThread")]
    pub dedicated_io_thread: Option<bool>,
    /// Presents the volume as a hard disk; the default.
    pub disk: Option<DiskTarget>,
    /// On I/O errors: stop (default), report, ignore or enospace.
    pub error_policy: Option<DiskErrorPolicy>,
    /// QEMU I/O backend: native, threads or default.
    pub io: Option<DriverIO>,
    /// Passes a SCSI device through with its commands.
    pub lun: Option<LunTarget>,
    /// Serial number the guest reads from the drive.
    pub serial: Option<String>,
    /// Lets several guests write at once; turns caching off.
    pub shareable: Option<bool>,
    /// Label passed to the guest in cloud-init device metadata.
    pub tag: Option<String>,
}

/// A hard disk as the guest sees it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskTarget {
    /// One of virtio, sata, scsi or usb.
    pub bus: Option<DiskBus>,
    /// Fixed guest PCI address, virtio only, e.g. 0000:81:01.1.
    pub pci_address: Option<String>,
    /// Write-protects the disk; false if unset.
    pub readonly: Option<bool>,
}

/// A SCSI passthrough drive as the guest sees it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct LunTarget {
    /// Usually scsi; sata and virtio carry fewer commands.
    pub bus: Option<DiskBus>,
    /// Write-protects the LUN; false if unset.
    pub readonly: Option<bool>,
    /// Allows SCSI persistent reservations, e.g. for clusters.
    pub reservation: Option<bool>,
}

/// An optical drive as the guest sees it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct CDRomTarget {
    /// One of sata or scsi; virtio is not possible.
    pub bus: Option<DiskBus>,
    /// True if unset, as optical media are not written.
    pub readonly: Option<bool>,
    /// State at boot: open or closed, the default.
    pub tray: Option<TrayState>,
}

/// Sector sizes; set either one.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockSize {
    /// Sizes given by hand.
    pub custom: Option<CustomBlockSize>,
    /// Copies the sizes of the backing volume.
    pub match_volume: Option<FeatureState>,
}

/// Explicit sector sizes in bytes.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CustomBlockSize {
    /// Bytes per discard unit, a multiple of logical.
    #[schemars(with = "Option<schema::Integer>")]
    pub discard_granularity: Option<u32>,
    /// Smallest addressable unit in bytes, a power of 2.
    #[schemars(with = "Option<schema::Integer>")]
    pub logical: Option<u32>,
    /// Bytes written at once by the medium, at least logical.
    #[schemars(with = "Option<schema::Integer>")]
    pub physical: Option<u32>,
}

/// A volume shared with the guest as a directory.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Filesystem {
    /// Volume to share, and the mount tag in the guest.
    pub name: String,
    /// Shares through virtiofs, the only transport.
    pub virtiofs: FilesystemVirtiofs,
}

/// Empty marker that picks virtiofs.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct FilesystemVirtiofs {}

/// A host GPU handed to the guest.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GPU {
    /// Alias of the device inside QEMU.
    pub name: String,
    /// Entry of spec.resourceClaims that provides the GPU.
    pub claim_name: Option<String>,
    /// Resource name of a device plugin, e.g. nvidia.com/TU104GL.
    pub device_name: Option<String>,
    /// Request inside the claim that this GPU takes.
    pub request_name: Option<String>,
    /// Label passed to the guest in cloud-init device metadata.
    pub tag: Option<String>,
    /// Options for mediated (vGPU) devices.
    #[serde(rename = "virtualGPUOptions")]
    pub virtual_gpu_options: Option<VGPUOptions>,
}

/// Extras of a mediated GPU.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct VGPUOptions {
    /// Whether the vGPU also drives the VNC display.
    pub display: Option<VGPUDisplayOptions>,
}

/// Display output of a vGPU.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct VGPUDisplayOptions {
    /// True if unset; only one vGPU can drive the display.
    pub enabled: Option<bool>,
    /// Boot framebuffer until the driver loads; on if unset.
    #[serde(rename = "ramFB")]
    pub ram_fb: Option<FeatureState>,
}

/// A host PCI, USB or mediated device handed over.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostDevice {
    /// Alias the device gets inside QEMU.
    pub name: String,
    /// Entry of spec.resourceClaims that provides the device.
    pub claim_name: Option<String>,
    /// Device plugin resource, as permitted in the KubeVirt CR.
    pub device_name: Option<String>,
    /// Request inside the claim that this device takes.
    pub request_name: Option<String>,
    /// Label passed to the guest in cloud-init device metadata.
    pub tag: Option<String>,
}

/// Points at one request of a DRA resource claim.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimRequest {
    /// Name of an entry in spec.resourceClaims.
    pub claim_name: Option<String>,
    /// Name of a request inside that claim.
    pub request_name: Option<String>,
}

/// A pointing device for graphical consoles.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Input {
    /// Alias of the device, unique in the list.
    pub name: String,
    /// Only tablet is supported.
    pub type_: InputType,
    /// Either usb, the default, or virtio.
    pub bus: Option<InputBus>,
}

/// Empty marker that adds a virtio entropy device.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Rng {}

/// An emulated sound card.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct SoundDevice {
    /// Alias of the card inside QEMU.
    pub name: String,
    /// Either ich9, the default, or ac97.
    pub model: Option<String>,
}

/// An emulated TPM 2.0.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct TPMDevice {
    /// False drops a TPM that a preference would add.
    pub enabled: Option<bool>,
    /// Keeps sealed keys across restarts on a small PVC.
    pub persistent: Option<bool>,
}

/// The emulated video card.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VideoDevice {
    /// QEMU model, e.g. virtio, vga, bochs or ramfb.
    pub type_: Option<String>,
}

/// A watchdog; set the model that fits the architecture.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Watchdog {
    /// Alias of the device inside QEMU.
    pub name: String,
    /// The s390x watchdog.
    pub diag288: Option<Diag288Watchdog>,
    /// Intel PCI watchdog for x86.
    pub i6300esb: Option<I6300ESBWatchdog>,
}

/// PCI watchdog, driven by i6300esb in Linux.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct I6300ESBWatchdog {
    /// On expiry: reset (default), poweroff or shutdown.
    pub action: Option<WatchdogAction>,
}

/// Hypervisor watchdog of s390x guests.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Diag288Watchdog {
    /// On expiry: reset (default), poweroff or shutdown.
    pub action: Option<WatchdogAction>,
}

/// A channel for guest crash notices.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct PanicDevice {
    /// One of hyperv, isa or pvpanic.
    pub model: Option<PanicDeviceModel>,
}

/// Empty marker that adds the metrics port.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct DownwardMetrics {}

/// Empty marker that adds four USB redirection slots.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ClientPassthroughDevices {}

open_enum! {
    /// The controller a disk sits on.
    pub enum DiskBus {
        Virtio = "virtio",
        Sata = "sata",
        Scsi = "scsi",
        Usb = "usb",
    }
}

open_enum! {
    /// How the host caches a disk.
    pub enum DriverCache {
        /// O_DIRECT on the host.
        None = "none",
        Writethrough = "writethrough",
        Writeback = "writeback",
    }
}

open_enum! {
    /// How QEMU submits I/O.
    pub enum DriverIO {
        Native = "native",
        Threads = "threads",
    }
}

open_enum! {
    /// What an I/O error does to the guest.
    pub enum DiskErrorPolicy {
        Stop = "stop",
        Report = "report",
        Ignore = "ignore",
        Enospace = "enospace",
    }
}

open_enum! {
    /// Whether a CD-ROM tray is out.
    pub enum TrayState {
        Open = "open",
        Closed = "closed",
    }
}

open_enum! {
    /// The bus of an input device.
    pub enum InputBus {
        Usb = "usb",
        Virtio = "virtio",
    }
}

open_enum! {
    /// The kind of an input device.
    pub enum InputType {
        Tablet = "tablet",
        Keyboard = "keyboard",
    }
}

open_enum! {
    /// What a fired watchdog does to the guest.
    pub enum WatchdogAction {
        Poweroff = "poweroff",
        Reset = "reset",
        Shutdown = "shutdown",
    }
}

open_enum! {
    /// The device a guest reports a kernel panic on.
    pub enum PanicDeviceModel {
        Hyperv = "hyperv",
        Isa = "isa",
        Pvpanic = "pvpanic",
    }
}
