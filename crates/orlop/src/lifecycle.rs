//! `orlop start`, `stop` and `restart`: what virtctl's verbs of these names do.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context as _, bail};
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use kube::Api;
use kube::api::{Patch, PatchParams};
use virt_api::lifecycle::{self, Change, Refusal};

use crate::target::{Target, machine};

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
    runtime.block_on(ask(arguments, verb))?;
    writeln!(out, "VM {} was asked to {}", arguments.vm, verb.words()).context("write to standard output")
}

async fn ask(arguments: &Arguments, verb: Verb) -> anyhow::Result<()> {
    let Arguments { vm: name, target } = arguments;
    let client = target.client().await?;
    let api: Api<VirtualMachine> = Api::default_namespaced(client.clone());
    for _ in 0..ATTEMPTS {
        let (vm, vmi) = machine(&client, name).await?;
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
