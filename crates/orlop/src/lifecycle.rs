//! `orlop start`, `stop` and `restart`: what virtctl's verbs of these names do.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context as _, bail};
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use kube::api::{Patch, PatchParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use virt_api::lifecycle::{self, Change, Refusal};

use crate::target::{Target, machine};
use crate::waiting::{self, Which, until_running};

/// A change that met another one is tried again so often; a VM's own controllers write no more than that at once.
const ATTEMPTS: usize = 5;
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// Which VM.
#[derive(clap::Args)]
#[group(id = "lifecycle")]
pub(crate) struct Arguments {
    /// The VM.
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

impl Verb {
    fn change(self, vm: &VirtualMachine, vmi: Option<&VirtualMachineInstance>) -> Result<Change, Refusal> {
        match self {
            Self::Start => lifecycle::start(vm, vmi),
            Self::Stop => lifecycle::stop(vm, vmi),
            Self::Restart => lifecycle::restart(vm, vmi),
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Restart => "restart",
        }
    }
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
        writeln!(out, "VM {name} was asked to {}", verb.words()).context("write to standard output")?;
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
    waited.with_context(|| format!("{name} still runs"))?.map(drop).context("wait for the VM")
}

async fn ask(client: &Client, name: &str, verb: Verb) -> anyhow::Result<()> {
    let api: Api<VirtualMachine> = Api::default_namespaced(client.clone());
    for _ in 0..ATTEMPTS {
        let (vm, vmi) = machine(client, name).await?;
        let Some(vm) = vm else { bail!("{name} is an instance without a VM; delete it to stop it") };
        let change = verb.change(&vm, vmi.as_ref()).with_context(|| format!("{} {name}", verb.words()))?;
        let parameters = PatchParams::default();
        let written = match &change {
            Change::Object(patch) => api.patch(name, &parameters, &Patch::Merge(patch)).await,
            Change::Status(patch) => api.patch_status(name, &parameters, &Patch::Merge(patch)).await,
        };
        match written {
            Err(kube::Error::Api(status)) if status.code == 409 => tokio::time::sleep(PAUSE).await,
            written => return written.map(drop).with_context(|| format!("{} {name}", verb.words())),
        }
    }
    bail!("{name} is changed by others all the time; try again")
}
