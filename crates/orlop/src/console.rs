//! `orlop console`: the serial console of a VM of this machine.
//!
//! It goes straight to the guest's socket: it needs no server, and survives that of `orlop up`.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use device_plugin::Short;
use hypervisor::render::SERIAL_SOCKET;
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt as _};
use tokio::net::UnixStream;

use crate::target::{Target, machine};
use crate::terminal::{self, Left, Signals, Terminal, say};

/// Open the serial console of a VM of this machine. Ctrl-] leaves it.
#[derive(clap::Args)]
#[group(id = "console")]
pub(crate) struct Arguments {
    /// The VM, or the instance.
    vm: String,
    /// How long to wait for a VM that does not run yet, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, env = "ORLOP_CONSOLE_TIMEOUT")]
    timeout: u64,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    let result = runtime.block_on(open(arguments));
    // A read of standard input cannot be cancelled; nobody waits for it.
    runtime.shutdown_background();
    result
}

async fn open(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { vm: name, timeout, target } = arguments;
    let client = target.client().await?;
    machine(&client, name).await?;
    let api: Api<VirtualMachineInstance> = Api::default_namespaced(client);
    let running = await_condition(api, name, |vmi: Option<&VirtualMachineInstance>| {
        vmi.is_some_and(|vmi| *vmi.phase() == Phase::Running)
    });
    let patience = Duration::from_secs(*timeout);
    let found = tokio::time::timeout(patience, running).await;
    let found = found.with_context(|| format!("{name} does not run; `orlop start {name}` starts it"))?;
    let vmi = found.context("wait for the VM")?.context("the VM is gone")?;
    let serial = connect(&target.data(), &vmi).await.with_context(|| format!("open the console of {name}"))?;
    say(&format!("connected to {name}; Ctrl-] leaves"));
    let _terminal = Terminal::take(Signals::Guests)?;
    let left = terminal::attach(serial, &mut std::io::stdout(), Signals::Guests).await?;
    say(match left {
        Left::User => "left the console; the guest goes on",
        Left::Guest => "the guest hung up",
    });
    Ok(())
}

/// The socket is in the launcher's private folder.
async fn connect(data: &Path, vmi: &VirtualMachineInstance) -> anyhow::Result<UnixStream> {
    let pods = vmi.status.as_ref().and_then(|status| status.active_pods.as_ref());
    let pod = pods.and_then(|pods| pods.keys().next()).context("the VM has no pod")?;
    let private = format!("kubelet/pods/{pod}/volumes/kubernetes.io~empty-dir/private");
    let folder = data.join(private).join(vmi.uid().unwrap_or_default());
    let opened = match Short::of(&folder.join(SERIAL_SOCKET)) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("{} is not here; does the VM run on another machine?", folder.display())
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            bail!("only root reaches consoles on this machine, for now: use sudo")
        }
        opened => opened.with_context(|| format!("open {}", folder.display()))?,
    };
    UnixStream::connect(opened.path()).await.context("connect to its serial port; does it have one?")
}
