//! The Python client, by a script in an environment that is made once.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{output, root};

/// Runs `e2e/clients/client.py`.
///
/// # Errors
/// With what it said when an assertion failed.
pub fn run(kubeconfig: &Path) -> Result<()> {
    let folder = root().join("e2e/clients");
    let python = output(&mut Command::new(folder.join("setup"))).context("set the Python client up")?;
    let mut command = Command::new("timeout");
    command.arg("120").arg(python.trim()).arg(folder.join("client.py")).arg(kubeconfig);
    output(&mut command).map(|_| ())
}
