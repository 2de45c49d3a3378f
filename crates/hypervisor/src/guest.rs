//! The guest model: everything that a guest can see, and that must not change while it runs.
//!
//! ```text
//! VirtualMachineInstance ──build──> Guest ──┐
//!      (and the guest of before)            ├── render ──> arguments, or commands to a QEMU that runs
//! volumes, taps, sockets of this node ── Wiring
//! ```
//! The same guest is given to the target of a migration instead of the manifest, whatever defaults the target's release has. Where
//! its bytes and packets come from on one node is the [`Wiring`](crate::wiring::Wiring), which may differ on the next.
//!
//! # Guarantees
//! - Equal guests look equal from inside, on every node and in every release that knows their version.
//! - A device keeps its id and its place as long as the instance names it, whatever comes and goes beside it. Ids are not used twice.

pub mod build;
mod device;
mod id;
mod place;
mod stored;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use device::{Cache, Device, Disk, Input, Interface, Io, Kind, Media, OnError, Panic, Video, WatchdogAction};
pub use id::DeviceId;
pub use place::Place;
pub(crate) use place::{ROOT_PORTS_SLOT, function_of};
pub use stored::{OLDEST, StoredError};

/// The version of the model that this release writes. A release that reads an older one keeps what it says.
pub const VERSION: u32 = 1;

/// A guest, as it looks from inside.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Guest {
    /// Which fields there are, and what they mean.
    pub version: u32,
    pub identity: Identity,
    pub board: Board,
    /// Its vCPUs.
    pub cpu: Cpu,
    pub memory: Memory,
    /// What runs first.
    pub boot: Boot,
    /// Its time.
    pub clock: Clock,
    /// Everything that is plugged in.
    pub devices: BTreeMap<DeviceId, Device>,
    /// How many ids were given out, by their beginning.
    pub minted: BTreeMap<String, u32>,
}

/// Who a guest is.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Identity {
    /// What the node's own tools call it; the guest does not see it.
    pub name: String,
    /// Its UUID; QEMU has none to show where it is absent.
    pub uuid: Option<String>,
    /// What its SMBIOS says of the system.
    pub system: BTreeMap<String, String>,
    /// And of the chassis.
    pub chassis: Option<BTreeMap<String, String>>,
}

/// The board, and what happens to a guest that reboots.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Board {
    /// QEMU's name for it. An alias such as `q35` until QEMU has said which one that is.
    #[serde(rename = "type")]
    pub type_: String,
    /// It has a high precision event timer.
    pub hpet: bool,
    /// It has ACPI tables.
    pub acpi: bool,
    /// Its firmware speaks on the screen, not on the serial port.
    pub graphics: bool,
    /// A reboot is the end of this guest.
    pub ends_on_reboot: bool,
}

impl Board {
    /// Whether it is one of the old boards, whose root bus takes devices while the guest runs.
    #[must_use]
    pub fn is_pc(&self) -> bool {
        self.type_ == "pc" || self.type_.starts_with("pc-i440fx-")
    }
}

/// Virtual CPUs.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Cpu {
    /// QEMU's name of the model.
    pub model: String,
    /// Features that the model does not have by itself, or is not to have; in this order.
    pub features: Vec<(String, bool)>,
    /// Sockets that are filled at the start.
    pub sockets: u32,
    /// Sockets that can be filled later.
    pub most_sockets: u32,
    /// Cores of each.
    pub cores: u32,
    /// Threads of each core.
    pub threads: u32,
    /// A SHA-256 digest of what the first CPU really is: models such as `host` and `max` stand for something else on the next CPU and in
    /// the next QEMU. None until QEMU has said so, and in guests of earlier releases.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub found: Option<String>,
}

/// Guest memory.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Memory {
    /// At the start.
    pub bytes: u64,
    /// As far as it can grow.
    pub most_bytes: u64,
}

/// What runs first.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Boot {
    pub firmware: Firmware,
    /// A kernel that is given directly, with its arguments.
    pub kernel: Option<Kernel>,
    /// How large the files of EFI firmware are with which it has booted. None for BIOS, and before it has.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub flash: Option<Flash>,
}

/// Flash memory, in bytes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Flash {
    /// Of the firmware's code.
    pub code: u64,
    /// Of its variables.
    pub variables: u64,
}

/// The firmware.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Firmware {
    /// The PC's.
    Bios,
    /// EFI, with variables of the guest's own.
    Efi,
}

/// A kernel that is given directly.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Kernel {
    /// What it is told.
    pub arguments: Option<String>,
}

/// Guest time.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Clock {
    /// The zone in which its clock runs, as `TZ` takes it; UTC if there is none.
    pub zone: Option<String>,
    /// Ticks that were missed are made up for.
    pub catches_up: bool,
    /// Whether its clock goes on while the guest is stopped; QEMU's choice where nothing was asked for.
    pub goes_on: Option<bool>,
}
