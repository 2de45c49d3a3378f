//! The launcher that a guest comes to.

use std::path::Path;

use hypervisor::qmp::commands::{BlockExportAdd, MigrateIncoming, NbdServerStart, SetMigrationCapabilities};
use hypervisor::qmp::{Qmp, QmpError};
use hypervisor::render;
use launcher_api::names::{DISKS_SOCKET, MEMORY_SOCKET};

/// What both sides of a migration turn on: QEMU tells what happens, the target confirms that it has everything, the source waits
/// before the switch, and the target leaves its images alone until its guest is to run.
pub(super) const CAPABILITIES: [&str; 4] = ["events", "return-path", "pause-before-switchover", "late-block-activate"];

/// A disk that is filled while the guest still runs elsewhere.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Export {
    /// The disk's device.
    pub device: String,
}

/// Lets QEMU listen for a guest's state and for its disks.
pub(crate) async fn listen(qmp: &Qmp, runtime: &Path, exports: &[Export]) -> Result<(), QmpError> {
    qmp.execute(SetMigrationCapabilities::on(&CAPABILITIES)).await?;
    if !exports.is_empty() {
        qmp.execute(NbdServerStart::unix(&runtime.join(DISKS_SOCKET).to_string_lossy())).await?;
    }
    for Export { device } in exports {
        let node_name = render::node_of(device);
        let (id, name) = (format!("export-{device}"), device.clone());
        qmp.execute(BlockExportAdd { kind: "nbd", id, node_name, name, writable: true }).await?;
    }
    let uri = format!("unix:{}", runtime.join(MEMORY_SOCKET).display());
    qmp.execute(MigrateIncoming { uri }).await.map(drop)
}
