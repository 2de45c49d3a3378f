//! Virtual machines as kubectl's users see them: our controllers on our own API server and on a real one, with nodes and
//! domains that are simulated.

use std::path::Path;

use anyhow::Result;
use e2e::controllers;
use testkit::{Harness, Need, tests};

fn main() -> std::process::ExitCode {
    let samples = tests![async the_samples_of_kubevirt_run_or_are_refused];
    let samples = samples.into_iter().map(|test| test.needing(&[Need::Shared("manifests")]));
    let others = tests![async kubectl_runs_virtual_machines, kubectl_runs_virtual_machines_on_kubernetes];
    Harness::default().needing(&[Need::Peers]).run(others.into_iter().chain(samples).collect())
}

fn orlop() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_orlop"))
}

async fn kubectl_runs_virtual_machines() -> Result<()> {
    controllers::machines(orlop()).await
}

async fn the_samples_of_kubevirt_run_or_are_refused() -> Result<()> {
    controllers::samples(orlop()).await
}

fn kubectl_runs_virtual_machines_on_kubernetes() -> Result<()> {
    controllers::machines_on_kubernetes(orlop())
}
