//! vhost-net: the kernel carries the guests' packets, if it can.

use std::path::Path;
use std::process::Stdio;

use hypervisor::programs;
use tokio::process::Command;

const DEVICE: &str = "/dev/vhost-net";
const MODULE: &str = "vhost_net";

/// Whether it is there.
pub(super) fn is_there() -> bool {
    Path::new(DEVICE).exists()
}

/// Has it loaded, where that is all that it takes. Without it, guests' packets go through QEMU.
pub(super) async fn load() {
    if let Some(modprobe) = programs::find(Path::new("modprobe")) {
        load_by(&modprobe, Path::new(DEVICE)).await;
    }
}

async fn load_by(modprobe: &Path, device: &Path) {
    if device.exists() {
        return;
    }
    let mut command = Command::new(modprobe);
    command.args(["--quiet", MODULE]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.status().await {
        Ok(status) if status.success() => tracing::info!(module = MODULE, "loaded"),
        Ok(_) => tracing::debug!(module = MODULE, "the kernel does not have it"),
        Err(error) => tracing::debug!(%error, module = MODULE, "not loaded"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_module_is_loaded_once_if_its_device_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let (modprobe, device, asked) = (path("modprobe"), path("vhost-net"), path("asked"));
        let script = format!("#!/bin/sh\necho \"$@\" >> {}\n: > {}\n", asked.display(), device.display());
        testkit::scripts::program(&modprobe, &script);
        load_by(&modprobe, &device).await;
        assert!(device.exists());
        // It is there by now.
        load_by(&modprobe, &device).await;
        assert_eq!(std::fs::read_to_string(asked).unwrap(), "--quiet vhost_net\n");
    }

    #[tokio::test]
    async fn a_kernel_without_the_module_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        load_by(Path::new("/bin/false"), &folder.path().join("vhost-net")).await;
        load_by(Path::new("/no/such/program"), &folder.path().join("vhost-net")).await;
    }
}
