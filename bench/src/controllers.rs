//! What the benchmarks of controllers share: an API server, a program of ours or of Kubernetes on it, and what both take.
//!
//! On our own server all is in one process and speaks in process, as in `orlop up`. Each such run is a process of its own,
//! so that CPU and peak memory are those of one run. On a real server the program is a process of its own, and the load
//! comes from the benchmark.

pub mod hollow;
pub mod load;
pub mod plane;
pub mod process;
pub mod program;
pub mod requests;
pub mod table;

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Without any progress for so long, a run has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Requests that the load has under way at the same time.
pub const CLIENTS: usize = 32;
/// Where the load puts its objects.
pub const NAMESPACE: &str = "bench";

/// Runs one measurement in a process of its own: this program again, with these arguments.
///
/// # Errors
/// When it fails, or prints what is not a measurement.
pub fn apart<T: DeserializeOwned>(arguments: &[String]) -> Result<T> {
    let program = std::env::current_exe().context("find this program")?;
    let output = std::process::Command::new(program).args(arguments).stderr(std::process::Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("a run ended: {}", output.status);
    }
    serde_json::from_slice(&output.stdout).context("read the figures of a run")
}

/// What [`apart`] reads.
///
/// # Errors
/// When it cannot be told.
pub fn told<T: Serialize>(measured: &T) -> Result<String> {
    Ok(serde_json::to_string(measured)?)
}
