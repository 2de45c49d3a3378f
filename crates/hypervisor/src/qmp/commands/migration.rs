//! Commands that move a guest from one QEMU to another: its memory, and the disks that do not go with it by themselves.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Command, Empty};

/// A part of migration, by QEMU's name for it.
#[derive(Clone, Debug, Serialize)]
pub struct MigrationCapability {
    /// Such as `events`.
    pub capability: &'static str,
    /// On or off.
    pub state: bool,
}

/// Turns parts of migration on or off.
#[derive(Clone, Debug, Serialize)]
pub struct SetMigrationCapabilities {
    pub capabilities: Vec<MigrationCapability>,
}

impl SetMigrationCapabilities {
    /// Turns these on.
    #[must_use]
    pub fn on(names: &[&'static str]) -> Self {
        Self { capabilities: names.iter().map(|capability| MigrationCapability { capability, state: true }).collect() }
    }
}

impl Command for SetMigrationCapabilities {
    const NAME: &'static str = "migrate-set-capabilities";
    type Answer = Empty;
}

/// How a guest's state is sent; what is not set stays as it is.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct SetMigrationParameters {
    /// Bytes per second; zero is without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bandwidth: Option<u64>,
    /// The longest pause at the switch, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downtime_limit: Option<u64>,
}

impl Command for SetMigrationParameters {
    const NAME: &'static str = "migrate-set-parameters";
    type Answer = Empty;
}

/// Tells a QEMU that waits for a guest's state where it comes from.
#[derive(Clone, Debug, Serialize)]
pub struct MigrateIncoming {
    /// As in `unix:PATH`.
    pub uri: String,
}

impl Command for MigrateIncoming {
    const NAME: &'static str = "migrate-incoming";
    type Answer = Empty;
}

/// Sends the guest's state away, while it runs.
#[derive(Clone, Debug, Serialize)]
pub struct Migrate {
    /// As in `unix:PATH`.
    pub uri: String,
}

impl Command for Migrate {
    const NAME: &'static str = "migrate";
    type Answer = Empty;
}

/// Asks QEMU to give up sending. Whether it does, its last migration event tells.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MigrateCancel {}

impl Command for MigrateCancel {
    const NAME: &'static str = "migrate_cancel";
    type Answer = Empty;
}

/// Lets a QEMU go on that has paused before the switch.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MigrateContinue {
    /// Where it has paused.
    pub state: &'static str,
}

impl Command for MigrateContinue {
    const NAME: &'static str = "migrate-continue";
    type Answer = Empty;
}

/// Asks how far a migration is.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct QueryMigrate {}

/// How far a migration is. Nothing is set before the first.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct MigrationInfo {
    /// QEMU's word for it, such as `active`.
    pub status: String,
    /// The guest's memory.
    pub ram: Option<MigrationRam>,
    /// Why it failed.
    pub error_desc: Option<String>,
}

/// How far a guest's memory is.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct MigrationRam {
    /// Bytes that were sent.
    pub transferred: u64,
    /// Bytes that are still to be sent.
    pub remaining: u64,
    /// All of it.
    pub total: u64,
}

impl Command for QueryMigrate {
    const NAME: &'static str = "query-migrate";
    type Answer = MigrationInfo;
}

/// Asks for all named block nodes, without what is below them.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct QueryNamedBlockNodes {
    pub flat: bool,
}

/// A named block node.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct BlockNode {
    #[serde(default)]
    pub node_name: Option<String>,
    pub image: BlockImage,
}

/// What is in a block node.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct BlockImage {
    /// How large it is for the guest, in bytes.
    pub virtual_size: u64,
}

impl Command for QueryNamedBlockNodes {
    const NAME: &'static str = "query-named-block-nodes";
    type Answer = Vec<BlockNode>;
}

/// Serves block nodes to another QEMU.
#[derive(Clone, Debug, Serialize)]
pub struct NbdServerStart {
    pub addr: Value,
}

impl NbdServerStart {
    /// On a socket of this path.
    #[must_use]
    pub fn unix(path: &str) -> Self {
        Self { addr: serde_json::json!({ "type": "unix", "data": { "path": path } }) }
    }
}

impl Command for NbdServerStart {
    const NAME: &'static str = "nbd-server-start";
    type Answer = Empty;
}

/// Ends all that is served.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct NbdServerStop {}

impl Command for NbdServerStop {
    const NAME: &'static str = "nbd-server-stop";
    type Answer = Empty;
}

/// Serves one block node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct BlockExportAdd {
    /// `nbd`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub id: String,
    pub node_name: String,
    /// What clients call it.
    pub name: String,
    pub writable: bool,
}

impl Command for BlockExportAdd {
    const NAME: &'static str = "block-export-add";
    type Answer = Empty;
}

/// Adds a block node.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct BlockdevAdd(pub Value);

impl Command for BlockdevAdd {
    const NAME: &'static str = "blockdev-add";
    type Answer = Empty;

    /// The other side of a network may have to answer.
    fn deadline(&self) -> Duration {
        Duration::from_secs(60)
    }
}

/// Removes a block node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct BlockdevDel {
    pub node_name: String,
}

impl Command for BlockdevDel {
    const NAME: &'static str = "blockdev-del";
    type Answer = Empty;
}

/// Copies a block node, and everything that is written to it meanwhile, to another.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct BlockdevMirror {
    pub job_id: String,
    pub device: String,
    pub target: String,
    /// `top` for what the uppermost image has, `full` for everything.
    pub sync: &'static str,
    /// Bytes per second; zero is without a limit.
    pub speed: u64,
    /// What is done when the target cannot be written to.
    pub on_target_error: &'static str,
    /// What is done when the source cannot be read.
    pub on_source_error: &'static str,
}

impl Command for BlockdevMirror {
    const NAME: &'static str = "blockdev-mirror";
    type Answer = Empty;
}

/// Asks how far copies are.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct QueryBlockJobs {}

/// A copy of a block node.
#[derive(Clone, Debug, Deserialize)]
pub struct BlockJob {
    /// Its job.
    pub device: String,
    /// What was copied, in bytes.
    pub offset: u64,
    /// That, and what is still to be copied. Zero before it has begun.
    pub len: u64,
    /// Both sides are equal, and stay so.
    pub ready: bool,
}

impl Command for QueryBlockJobs {
    const NAME: &'static str = "query-block-jobs";
    type Answer = Vec<BlockJob>;
}

/// Ends a copy: one that is ready ends with both sides equal, unless it is forced.
#[derive(Clone, Debug, Serialize)]
pub struct BlockJobCancel {
    pub device: String,
    pub force: bool,
}

impl Command for BlockJobCancel {
    const NAME: &'static str = "block-job-cancel";
    type Answer = Empty;
}
