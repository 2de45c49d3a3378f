//! What a launcher has for a guest on this node: files, sockets, taps. On the next node they may be others; the
//! [`Guest`](crate::guest::Guest) is the same.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::accelerator::Accelerator;

/// Files, sockets and taps of one guest on one node.
#[derive(Clone, Debug)]
pub struct Wiring {
    /// What runs the guest's instructions.
    pub accelerator: Accelerator,
    /// A directory of the guest's own, mode 0700, for its sockets and logs.
    pub runtime: PathBuf,
    /// Where the bytes of each volume are, by its name.
    pub volumes: BTreeMap<String, Source>,
    /// What each interface is attached to, by its name.
    pub interfaces: BTreeMap<String, Attachment>,
    /// The files of a direct kernel boot.
    pub kernel: Option<Kernel>,
    /// The files of EFI firmware; not needed for BIOS guests.
    pub efi: Option<Efi>,
    /// The guest does not boot: its state will come from another launcher.
    pub incoming: bool,
}

/// The bytes behind a disk: what the guest writes to, and what that stands on.
///
/// Formats are what the caller knows, never what the bytes look like: a guest can write any header onto its disk.
#[derive(Clone, Debug)]
pub struct Source {
    /// What the guest writes to.
    pub top: Layer,
    /// What that stands on, from above; read, never written. Only qcow2 stands on anything.
    pub below: Vec<Layer>,
    /// Nothing may be written to it.
    pub read_only: bool,
    /// All of it can be read and written around the node's cache.
    pub direct_io: bool,
}

/// One image of a chain.
#[derive(Clone, Debug)]
pub struct Layer {
    /// An absolute path.
    pub path: PathBuf,
    /// How the bytes are laid out.
    pub format: Format,
    /// Whether it is a file or a block device.
    pub kind: SourceKind,
}

/// How the bytes of a disk are laid out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    /// As the guest sees them.
    Raw,
    /// In QEMU's own format.
    Qcow2,
}

/// What a path leads to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SourceKind {
    /// A regular file.
    File,
    /// A block device.
    Block,
}

/// What an interface is attached to.
#[derive(Clone, Debug)]
pub enum Attachment {
    /// A tap device of this name, already set up.
    Tap {
        /// The device's name.
        device: String,
        /// The kernel carries its packets (vhost-net).
        vhost: bool,
    },
    /// User-mode networking inside QEMU, with ports forwarded to the guest.
    User {
        /// Ports of the host that lead into the guest.
        forwards: Vec<Forward>,
    },
}

/// A port of the host that leads into the guest.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Forward {
    /// The address of the host to listen on.
    pub address: IpAddr,
    /// The port of the host.
    pub host: u16,
    /// The port of the guest.
    pub guest: u16,
}

/// The files of a direct kernel boot.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub kernel: Option<PathBuf>,
    /// The initial file system.
    pub initrd: Option<PathBuf>,
}

/// The files of EFI firmware.
#[derive(Clone, Debug)]
pub struct Efi {
    /// The firmware's code, shared and read-only.
    pub code: PathBuf,
    /// The guest's own copy of the variables.
    pub variables: PathBuf,
}
