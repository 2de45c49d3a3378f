//! `orlop shim`: the process that owns a pod; see `node::shim`.

use std::path::PathBuf;

use anyhow::Context as _;

use crate::logging::Sink;
use crate::process_memory;

/// Hold a pod: its namespaces, its containers' output and exit codes.
#[derive(clap::Args)]
#[group(id = "shim")]
pub(crate) struct Arguments {
    /// Directory of the pod.
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
}

pub(crate) fn run(arguments: &Arguments, log: &Sink) -> anyhow::Result<()> {
    // The directory has the pod's UID for its name.
    log.always([("uid", &*arguments.state.file_name().unwrap_or_default().to_string_lossy())]);
    node::shim::run(&arguments.state, process_memory::forget_start()).context("hold the pod")
}
