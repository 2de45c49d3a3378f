//! `orlop start`, `stop`, `restart`, `pause`, `unpause`, `reset` and `soft-reboot`: what virtctl's verbs of these names do, through
//! the same API.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context as _, bail};
use api::subresources::{RestartOptions, StartOptions, StopOptions};
use api::vmi::VirtualMachineInstance;
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::subresource::{self, Of};
use crate::target::{Target, machine};
use crate::waiting::{self, Which, until_running};

/// Which VM.
#[derive(clap::Args)]
#[group(id = "lifecycle")]
struct Arguments {
    /// Name of the VM.
    vm: String,
    /// Only ask whether that would be allowed.
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,
    #[command(flatten)]
    waiting: waiting::Arguments,
    #[command(flatten)]
    target: Target,
}

/// How to start it.
#[derive(clap::Args)]
#[group(id = "start")]
pub(crate) struct StartArguments {
    #[command(flatten)]
    vm: Arguments,
    /// Hold the guest before its first instruction, until `orlop unpause`.
    #[arg(long, conflicts_with = "wait")]
    paused: bool,
}

/// How to stop it.
#[derive(clap::Args)]
#[group(id = "stop")]
pub(crate) struct StopArguments {
    #[command(flatten)]
    vm: Arguments,
    /// Kill the guest at once. Its disks are left as after a power cut.
    #[arg(long)]
    force: bool,
    /// How long the guest may take to power off, in seconds, instead of what the VM says.
    #[arg(long, value_name = "SECONDS")]
    grace_period: Option<u32>,
}

/// How to restart it.
#[derive(clap::Args)]
#[group(id = "restart")]
pub(crate) struct RestartArguments {
    #[command(flatten)]
    vm: Arguments,
    /// Kill the guest at once. Its disks are left as after a power cut.
    #[arg(long)]
    force: bool,
    /// How long the guest may take to power off, in seconds; the API allows only 0, which is --force.
    #[arg(long, value_name = "SECONDS")]
    grace_period: Option<u32>,
}

/// What to do with it.
#[derive(Clone, Copy)]
enum Verb {
    Start,
    Stop,
    Restart,
}

pub(crate) fn start(arguments: &StartArguments, out: &mut impl Write) -> anyhow::Result<()> {
    let StartArguments { vm, paused } = arguments;
    run(vm, Verb::Start, &start_body(*paused, vm.dry_run), out)
}

pub(crate) fn stop(arguments: &StopArguments, out: &mut impl Write) -> anyhow::Result<()> {
    let StopArguments { vm, force, grace_period } = arguments;
    run(vm, Verb::Stop, &stop_body(grace(*force, *grace_period), vm.dry_run), out)
}

pub(crate) fn restart(arguments: &RestartArguments, out: &mut impl Write) -> anyhow::Result<()> {
    let RestartArguments { vm, force, grace_period } = arguments;
    run(vm, Verb::Restart, &restart_body(grace(*force, *grace_period), vm.dry_run), out)
}

/// The grace period that is asked for, if one is. virtctl's users name both.
fn grace(force: bool, seconds: Option<u32>) -> Option<i64> {
    seconds.or(force.then_some(0)).map(i64::from)
}

fn start_body(paused: bool, dry_run: bool) -> Value {
    json!(StartOptions { paused: paused.then_some(true), dry_run: all(dry_run), ..StartOptions::default() })
}

fn stop_body(grace_period: Option<i64>, dry_run: bool) -> Value {
    json!(StopOptions { grace_period, dry_run: all(dry_run), ..StopOptions::default() })
}

fn restart_body(grace_period_seconds: Option<i64>, dry_run: bool) -> Value {
    json!(RestartOptions { grace_period_seconds, dry_run: all(dry_run), ..RestartOptions::default() })
}

/// How the API is told that nothing is to be stored.
fn all(dry_run: bool) -> Option<Vec<String>> {
    dry_run.then(|| vec!["All".to_owned()])
}

/// What to do with its guest.
#[derive(Clone, Copy)]
pub(crate) enum GuestVerb {
    Pause,
    Unpause,
    Reset,
    SoftReboot,
}

impl Verb {
    fn words(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Restart => "restart",
        }
    }
}

impl GuestVerb {
    /// Its name in the API, and in words.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Pause => ("pause", "paused"),
            Self::Unpause => ("unpause", "unpaused"),
            Self::Reset => ("reset", "reset"),
            Self::SoftReboot => ("softreboot", "asked to reboot"),
        }
    }
}

/// Which VM, or which instance without one.
#[derive(clap::Args)]
#[group(id = "guest")]
pub(crate) struct GuestArguments {
    /// The VM, or the instance.
    vm: String,
    #[command(flatten)]
    target: Target,
}

/// Has something done to a guest that runs.
pub(crate) fn run_guest(arguments: &GuestArguments, verb: GuestVerb, out: &mut impl Write) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(async {
        let GuestArguments { vm: name, target } = arguments;
        let client = target.client().await?;
        machine(&client, name).await?;
        let (what, done) = verb.words();
        let asked = subresource::put(&client, (Of::Instance, name), what, &json!({})).await;
        asked.with_context(|| format!("{what} {name}"))?;
        writeln!(out, "VM {name} was {done}").context("write to standard output")
    })
}

fn run(arguments: &Arguments, verb: Verb, body: &Value, out: &mut impl Write) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(async {
        let Arguments { vm: name, dry_run, waiting, target } = arguments;
        let client = target.client().await?;
        // What is restarted runs until it has gone.
        let old = match verb {
            Verb::Restart if waiting.wait => machine(&client, name).await?.1.and_then(|vmi| vmi.metadata.uid),
            _ => None,
        };
        ask(&client, name, verb, body).await?;
        let note = if *dry_run { " (dry run)" } else { "" };
        writeln!(out, "asked VM {name} to {}{note}", verb.words()).context("write to standard output")?;
        match verb {
            Verb::Start | Verb::Restart if waiting.wait => {
                let namespace = client.default_namespace();
                let which = Which { namespace, name, instead_of: old.as_deref(), is_started: true };
                until_running(&client, &which, waiting.timeout, out).await
            }
            Verb::Stop if waiting.wait => until_stopped(&client, name, waiting.timeout).await,
            _ => Ok(()),
        }
    })
}

/// Waits until a VM's instance is gone.
async fn until_stopped(client: &Client, name: &str, patience: Duration) -> anyhow::Result<()> {
    let api: Api<VirtualMachineInstance> = Api::default_namespaced(client.clone());
    let gone = await_condition(api, name, |vmi: Option<&VirtualMachineInstance>| {
        vmi.is_none_or(VirtualMachineInstance::is_final)
    });
    let waited = tokio::time::timeout(patience, gone).await;
    waited.with_context(|| format!("{name} is still running"))?.map(drop).context("wait for the VM")
}

async fn ask(client: &Client, name: &str, verb: Verb, body: &Value) -> anyhow::Result<()> {
    let (vm, _) = machine(client, name).await?;
    if vm.is_none() {
        bail!("{name} is an instance without a VM; delete it to stop it");
    }
    let asked = subresource::put(client, (Of::Vm, name), verb.words(), body).await;
    asked.with_context(|| format!("{} {name}", verb.words()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_told_as_virtctl_tells_them_and_nothing_else_is() {
        for (body, expected) in [
            (start_body(false, false), json!({})),
            (start_body(true, true), json!({ "paused": true, "dryRun": ["All"] })),
            (stop_body(grace(false, None), false), json!({})),
            (stop_body(grace(true, None), false), json!({ "gracePeriod": 0 })),
            (stop_body(grace(true, Some(0)), true), json!({ "gracePeriod": 0, "dryRun": ["All"] })),
            (stop_body(grace(false, Some(5)), false), json!({ "gracePeriod": 5 })),
            (restart_body(grace(false, None), true), json!({ "dryRun": ["All"] })),
            (restart_body(grace(true, None), false), json!({ "gracePeriodSeconds": 0 })),
        ] {
            assert_eq!(body, expected);
        }
    }
}
