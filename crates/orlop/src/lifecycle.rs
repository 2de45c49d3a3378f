//! `orlop start`, `stop`, `restart`, `pause`, `unpause`, `reset` and `soft-reboot`: what virtctl's verbs of these names do, through
//! the same API.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context as _, bail};
use api::vmi::VirtualMachineInstance;
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde_json::json;

use crate::subresource::{self, Of};
use crate::target::{Target, machine};
use crate::waiting::{self, Which, until_running};

/// Which VM.
#[derive(clap::Args)]
#[group(id = "lifecycle")]
pub(crate) struct Arguments {
    /// Name of the VM.
    vm: String,
    #[command(flatten)]
    waiting: waiting::Arguments,
    #[command(flatten)]
    target: Target,
}

/// What to do with it.
#[derive(Clone, Copy)]
pub(crate) enum Verb {
    Start,
    Stop,
    Restart,
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

pub(crate) fn run(arguments: &Arguments, verb: Verb, out: &mut impl Write) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(async {
        let Arguments { vm: name, waiting, target } = arguments;
        let client = target.client().await?;
        // What is restarted runs until it has gone.
        let old = match verb {
            Verb::Restart if waiting.wait => machine(&client, name).await?.1.and_then(|vmi| vmi.metadata.uid),
            _ => None,
        };
        ask(&client, name, verb).await?;
        writeln!(out, "asked VM {name} to {}", verb.words()).context("write to standard output")?;
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

async fn ask(client: &Client, name: &str, verb: Verb) -> anyhow::Result<()> {
    let (vm, _) = machine(client, name).await?;
    if vm.is_none() {
        bail!("{name} is an instance without a VM; delete it to stop it");
    }
    subresource::put(client, (Of::Vm, name), verb.words(), &json!({}))
        .await
        .with_context(|| format!("{} {name}", verb.words()))
}
