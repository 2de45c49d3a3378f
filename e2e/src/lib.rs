//! What tests against real programs share: where the programs are, and a control plane made of them.
//!
//! Tests that need the programs are ignored by `cargo test` and run by `make test-peers`, which fetches them first.

pub mod audit;
pub mod clients;
pub mod console;
pub mod control_plane;
pub mod controllers;
pub mod differential;
pub mod embedded;
pub mod guest;
pub mod http;
pub mod kubeconfig;
pub mod recorded;
pub mod registry;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The directory of the workspace.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A program that Orlop is compared with, from `KUBEBUILDER_ASSETS` or the directory that `make peers` filled.
///
/// # Errors
/// When it is in neither: a test that needs it must fail, not pass unseen.
pub fn peer(name: &str) -> Result<PathBuf> {
    let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
    let built = std::env::var_os("ORLOP_PEERS").map(PathBuf::from);
    for folder in assets.into_iter().chain(built) {
        let program = folder.join(name);
        if program.exists() {
            return Ok(program);
        }
    }
    bail!("{name} is neither in KUBEBUILDER_ASSETS nor in ORLOP_PEERS; run this by `make test-peers`")
}

/// Runs a program to its end and returns what it printed.
///
/// # Errors
/// When it cannot be run, or fails: then with what it said.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("output of {command:?}"))
}
