//! vhost-net: the kernel carries the guests' packets, if it can.

use std::path::Path;
use std::process::{Command, Stdio};

use hypervisor::programs;

const DEVICE: &str = "/dev/vhost-net";
const MODULE: &str = "vhost_net";

/// Whether it is there.
pub(super) fn is_there() -> bool {
    Path::new(DEVICE).exists()
}

/// Has it loaded, where that is all that it takes. Without it, guests' packets go through QEMU.
pub(super) fn load() {
    if is_there() {
        return;
    }
    let Some(modprobe) = programs::find(Path::new("modprobe")) else { return };
    let mut command = Command::new(modprobe);
    command.args(["--quiet", MODULE]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.status() {
        Ok(status) if status.success() => tracing::info!(module = MODULE, "loaded"),
        Ok(_) => tracing::debug!(module = MODULE, "the kernel does not have it"),
        Err(error) => tracing::debug!(%error, module = MODULE, "not loaded"),
    }
}
