//! Devices, as the guest sees them.

use serde::{Deserialize, Serialize};

use super::Place;

/// Something that is plugged in.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Device {
    /// What the instance calls it, if it names such devices.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub of: Option<String>,
    /// Where it is plugged in.
    pub place: Place,
    pub kind: Kind,
    /// The size of its ROM, as QEMU has made it: on the next node the same ROM may have another. None until QEMU has said so, and for what
    /// has none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rom_bytes: Option<u32>,
}

/// What a device is.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// A port for a device that comes later.
    RootPort,
    /// A controller of channels between guest and host.
    Channels,
    /// A controller of SATA disks.
    Sata,
    /// A controller of SCSI disks.
    Scsi,
    /// A controller of USB devices.
    Usb,
    /// The channel of the guest's agent.
    Agent,
    /// A serial port.
    Serial {
        /// What the guest writes there is kept.
        logged: bool,
    },
    /// A screen.
    Video(Video),
    Disk(Disk),
    /// A network interface.
    Interface(Interface),
    /// A source of random numbers.
    Entropy,
    /// Memory that can be given back.
    Balloon,
    /// A keyboard or tablet; on USB or virtio by its place.
    Input(Input),
    Watchdog(WatchdogAction),
    /// Where a kernel tells that it panicked.
    Panic(Panic),
}

impl Kind {
    /// Whether other devices are plugged into it: it comes first and goes last.
    #[must_use]
    pub fn is_bus(&self) -> bool {
        matches!(self, Self::RootPort | Self::Channels | Self::Sata | Self::Scsi | Self::Usb)
    }

    /// Whether firmware, or the guest, may find a ROM on it.
    #[must_use]
    pub fn has_rom(&self) -> bool {
        match self {
            Self::Video(_) => true,
            Self::Interface(interface) => interface.boot_order.is_some(),
            _ => false,
        }
    }

    /// The same device, tried by firmware when the other one was.
    pub(super) fn booted_as(mut self, was: Option<&Self>) -> Self {
        match (&mut self, was) {
            (Self::Disk(disk), Some(Self::Disk(was))) => disk.boot_order = was.boot_order,
            (Self::Interface(interface), Some(Self::Interface(was))) => interface.boot_order = was.boot_order,
            (Self::Disk(disk), _) => disk.boot_order = None,
            (Self::Interface(interface), _) => interface.boot_order = None,
            _ => {}
        }
        self
    }

    /// What ids of such devices begin with.
    pub(crate) fn prefix(&self) -> &'static str {
        match self {
            Self::RootPort => "port",
            Self::Channels => "channels",
            Self::Sata => "sata",
            Self::Scsi => "scsi",
            Self::Usb => "usb",
            Self::Agent => "agent",
            Self::Serial { .. } => "serial",
            Self::Video(_) => "video",
            Self::Disk(_) => "disk",
            Self::Interface(_) => "net",
            Self::Entropy => "entropy",
            Self::Balloon => "balloon",
            Self::Input(_) => "input",
            Self::Watchdog(_) => "watchdog",
            Self::Panic(_) => "panic",
        }
    }
}

/// Which screen.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Video {
    /// The PC's.
    Vga,
    /// Without the PC's old modes.
    Bochs,
    /// With a ring of requests.
    Virtio,
    /// Of the nineties.
    Cirrus,
}

/// A disk, whatever is behind it. Which controller it is on is said by its place.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Disk {
    /// A disk, or a tray with a medium.
    pub media: Media,
    /// The guest cannot write to it.
    pub read_only: bool,
    /// The guest sees a cache that it must flush. It does not depend on the node: a guest that moves keeps what it has seen.
    pub write_cache: bool,
    /// How its node caches it, which the guest does not see.
    pub cache: Cache,
    /// How its node reads and writes it, which the guest does not see either.
    pub io: Io,
    /// What becomes of requests that fail.
    pub on_error: OnError,
    /// Its serial number.
    pub serial: Option<String>,
    /// When firmware tries it.
    pub boot_order: Option<u32>,
    /// The size of a block, as the guest addresses it.
    pub logical_block: Option<u32>,
    /// The size of a block, as it is written.
    pub physical_block: Option<u32>,
    /// What can be given back at once.
    pub discard_granularity: Option<u32>,
}

/// How a node caches a disk.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Cache {
    /// Not, where its file system can do without.
    Auto,
    /// Not at all.
    None,
    /// What is read; writes are on the disk when they end.
    Writethrough,
    /// What is read and written, until the guest flushes it.
    Writeback,
}

/// How a node reads and writes a disk.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Io {
    /// As suits what is behind the disk.
    Auto,
    /// By the kernel's queues.
    Native,
    /// By threads.
    Threads,
}

/// What a disk looks like.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Media {
    Disk,
    /// A CD-ROM.
    Cdrom,
}

/// What becomes of requests that fail.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum OnError {
    /// The guest is stopped, and goes on when there is room again.
    Stop,
    /// The guest is told.
    Report,
    /// The guest is told that all is well.
    Ignore,
    /// The guest is stopped if there is no room, and told otherwise.
    StopIfFull,
}

/// A network interface.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Interface {
    /// A virtio device, or an e1000.
    pub is_virtio: bool,
    /// Its address, in lower case.
    pub mac: String,
    /// When firmware tries it; without it has no ROM.
    pub boot_order: Option<u32>,
}

/// A keyboard or a tablet.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Input {
    /// Keys.
    Keyboard,
    /// A pointer that knows where it is.
    Tablet,
}

/// What a watchdog does to a guest that forgets it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum WatchdogAction {
    Reset,
    /// Ends it.
    Poweroff,
    /// Asks it to power off.
    Shutdown,
}

/// How a panic is told.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Panic {
    /// By a port of the ISA bus.
    Isa,
    /// By a PCI device.
    Pci,
}
