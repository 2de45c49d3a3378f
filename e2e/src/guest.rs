//! The test guest: built once by `guest/build`, from Debian's packages.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::Result;

use crate::{output, root};

/// The directory with `vmlinuz`, `initrd.img`, `disk.qcow2` and the OCI layout `oci`. Building it takes a minute, once.
///
/// # Errors
/// When it cannot be built.
pub fn directory() -> Result<&'static Path> {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    if let Some(folder) = FOLDER.get() {
        return Ok(folder);
    }
    // Tests of one process may come here at once; the script itself is safe against that.
    let printed = output(&mut Command::new(root().join("guest/build")))?;
    Ok(FOLDER.get_or_init(|| PathBuf::from(printed.trim())))
}

/// The reference of an image in the guest's OCI layout: `demo` is a container disk, `kernel` a kernel and its initrd.
///
/// # Errors
/// When the guest cannot be built.
pub fn image(tag: &str) -> Result<String> {
    Ok(format!("oci:{}:{tag}", directory()?.join("oci").display()))
}
