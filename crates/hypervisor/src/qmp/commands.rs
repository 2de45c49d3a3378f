//! The QMP commands that are used, with only the fields that are read.

mod migration;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Command;
pub use migration::{
    BlockExportAdd, BlockImage, BlockJob, BlockJobCancel, BlockNode, BlockdevAdd, BlockdevDel, BlockdevMirror, Migrate,
    MigrateCancel, MigrateContinue, MigrateIncoming, MigrationCapability, MigrationInfo, MigrationRam, NbdServerStart,
    NbdServerStop, QueryBlockJobs, QueryMigrate, QueryNamedBlockNodes, SetMigrationCapabilities,
    SetMigrationParameters,
};

/// Declares commands without arguments whose answer is of no interest.
macro_rules! plain {
    ($($(#[$meta:meta])* $name:ident = $text:literal;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Serialize)]
        pub struct $name {}

        impl Command for $name {
            const NAME: &'static str = $text;
            type Answer = Empty;
        }
    )*};
}

/// An answer that says no more than that it worked.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Empty {}

plain! {
    /// Leaves negotiation mode; nothing else works before.
    Capabilities = "qmp_capabilities";
    /// Lets the vCPUs run.
    Continue = "cont";
    /// Stops the vCPUs.
    Stop = "stop";
    /// Presses the power button; what comes of it is up to the guest.
    PowerDown = "system_powerdown";
    /// Presses the reset button.
    Reset = "system_reset";
    /// Ends QEMU at once.
    Quit = "quit";
}

/// Asks whether the vCPUs run, and if not, why.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct QueryStatus {}

/// Whether the vCPUs run.
#[derive(Clone, Debug, Deserialize)]
pub struct Status {
    /// They do.
    pub running: bool,
    /// QEMU's word for it, such as `prelaunch`, `paused`, `io-error`.
    pub status: String,
}

impl Command for QueryStatus {
    const NAME: &'static str = "query-status";
    type Answer = Status;
}

/// Says what QEMU does when something happens to the guest.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SetAction {
    /// When it powers off.
    pub shutdown: ShutdownAction,
}

/// What QEMU does with a guest that has powered off.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ShutdownAction {
    /// It ends.
    Poweroff,
    /// It holds the guest, which can be reset.
    Pause,
}

impl Command for SetAction {
    const NAME: &'static str = "set-action";
    type Answer = Empty;
}

/// Asks for a property of something in QEMU.
#[derive(Clone, Debug, Serialize)]
pub struct QomGet {
    /// Where, as in `/machine`.
    pub path: String,
    pub property: &'static str,
}

impl Command for QomGet {
    const NAME: &'static str = "qom-get";
    type Answer = serde_json::Value;
}

/// Lists what something in QEMU consists of.
#[derive(Clone, Debug, Serialize)]
pub struct QomList {
    /// Where, as in `/machine/peripheral`.
    pub path: &'static str,
}

/// A property, or a child.
#[derive(Clone, Debug, Deserialize)]
pub struct Property {
    /// Its name; devices are children by their ids.
    pub name: String,
}

impl Command for QomList {
    const NAME: &'static str = "qom-list";
    type Answer = Vec<Property>;
}

/// Asks which QEMU this is.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct QueryVersion {}

/// Which QEMU it is.
#[derive(Clone, Debug, Deserialize)]
pub struct Version {
    /// The numbers.
    pub qemu: VersionTriple,
    /// What a distribution adds.
    #[serde(default)]
    pub package: String,
}

/// A version in numbers.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct VersionTriple {
    /// The first number.
    pub major: u32,
    /// The second.
    pub minor: u32,
    /// The third.
    pub micro: u32,
}

impl Command for QueryVersion {
    const NAME: &'static str = "query-version";
    type Answer = Version;
}

/// Writes the screen to a file.
#[derive(Clone, Debug, Serialize)]
pub struct ScreenDump {
    pub filename: PathBuf,
    /// `png` or `ppm`; PNG needs QEMU 7.1.
    pub format: &'static str,
}

impl Command for ScreenDump {
    const NAME: &'static str = "screendump";
    type Answer = Empty;
}

/// Does what somebody at the guest's keyboard or pointer does.
#[derive(Clone, Debug, Serialize)]
pub struct InputSendEvent {
    pub events: Vec<InputEvent>,
}

/// A movement of the pointer.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "type", content = "data", rename_all = "lowercase")]
pub enum InputEvent {
    /// To a place, of which the farthest is 32767. Only tablets are told so.
    Abs(Movement),
    /// By so much. Only mice are told so.
    Rel(Movement),
}

/// Along one axis.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Movement {
    /// `x` or `y`.
    pub axis: &'static str,
    pub value: i64,
}

impl Command for InputSendEvent {
    const NAME: &'static str = "input-send-event";
    type Answer = Empty;
}

/// Asks what the block devices did.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct QueryBlockStats {}

/// What one block device did.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct BlockStats {
    /// The node behind it, as in `disk0-top`.
    #[serde(default)]
    pub node_name: Option<String>,
    pub stats: BlockNumbers,
}

/// What a block device did since it was made.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct BlockNumbers {
    /// Bytes read.
    pub rd_bytes: u64,
    /// Bytes written.
    pub wr_bytes: u64,
    /// Read requests.
    pub rd_operations: u64,
    /// Write requests.
    pub wr_operations: u64,
    /// Nanoseconds spent reading.
    pub rd_total_time_ns: u64,
    /// Nanoseconds spent writing.
    pub wr_total_time_ns: u64,
}

impl Command for QueryBlockStats {
    const NAME: &'static str = "query-blockstats";
    type Answer = Vec<BlockStats>;
}

/// Asks how much memory the guest has after its balloon.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct QueryBalloon {}

/// How much memory the guest has after its balloon.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Balloon {
    /// In bytes.
    pub actual: u64,
}

impl Command for QueryBalloon {
    const NAME: &'static str = "query-balloon";
    type Answer = Balloon;
}

/// Asks for the vCPUs and their threads.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct QueryCpus {}

/// One vCPU.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Cpu {
    /// Its number.
    pub cpu_index: u32,
    /// The thread of the host that runs it.
    pub thread_id: i32,
}

impl Command for QueryCpus {
    const NAME: &'static str = "query-cpus-fast";
    type Answer = Vec<Cpu>;
}

/// Asks where the vCPUs are among QEMU's objects.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct QueryCpuPaths {}

/// Where one vCPU is.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct CpuPath {
    pub cpu_index: u32,
    /// As [`QomGet`] takes it.
    pub qom_path: String,
}

impl Command for QueryCpuPaths {
    const NAME: &'static str = "query-cpus-fast";
    type Answer = Vec<CpuPath>;
}
