//! `orlop run`: one instance in the foreground, with no control plane at all.

mod defaults;
mod directory;
mod progress;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use api::vmi::VirtualMachineInstance;
use hypervisor::accelerator;
use hypervisor::render::SERIAL_SOCKET;
use tokio::net::UnixStream;
use tokio::signal::unix::{Signal, SignalKind, signal};
use virt_launcher::boot::{self, BootError, Started, Workbench};
use virt_launcher::domain::End;
use virt_launcher::driver::{Handle, StartError};
use virt_launcher::lifecycle::Request;

use crate::terminal::{self, Signals, Terminal, say};
use crate::workbench::{self, Port};

/// Boot a VirtualMachineInstance in the foreground on this machine, without a cluster.
///
/// The terminal is the guest's serial console. Press Ctrl-C to power the guest off, and again to kill it.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Manifest in YAML or JSON.
    manifest: PathBuf,
    /// Forward a port of this machine to the guest: HOST:GUEST or ADDRESS:HOST:GUEST.
    #[arg(short = 'p', long = "port", value_name = "FORWARD", env = "ORLOP_RUN_PORT", value_delimiter = ',')]
    ports: Vec<Port>,
    #[command(flatten)]
    workbench: workbench::Arguments,
}

/// Runs on one thread, which lives as long as the process: QEMU is killed with the thread that started it.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    let result = runtime.block_on(start(arguments));
    // A read of standard input cannot be cancelled; nobody waits for it.
    runtime.shutdown_background();
    result
}

async fn start(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { manifest, ports, workbench } = arguments;
    let mut vmi = read(manifest)?;
    defaults::complete(&mut vmi);
    // Before there is anything to clear up: whoever is killed by a signal leaves its directory behind.
    let mut stop = Stop::listen()?;
    let folder = directory::create().context("create a directory for the guest")?;
    let bar = progress::Bar::default();
    let workbench = workbench.build(folder.path(), Box::new(bar.clone()))?;
    let booting = boot(&vmi, ports, &workbench);
    let booted = tokio::select! {
        biased;
        () = stop.asked() => bail!("interrupted"),
        booted = booting => booted?,
    };
    bar.finish();
    let guest = booted.map_err(explain)?;
    let end = attend(&guest.handle, folder.path(), guest.grace, &mut stop).await?;
    if matches!(end, End::InternalError { kvm_is_suspect: true, .. }) {
        workbench.probe().forget();
    }
    report(&end)
}

/// Finds out what runs guests here, tells the user about it, and boots.
async fn boot(
    vmi: &VirtualMachineInstance,
    ports: &[Port],
    workbench: &Workbench,
) -> anyhow::Result<Result<Started, BootError>> {
    let found = accelerator::find(workbench.choice, &workbench.probe()).await;
    let finding = found.context("find an accelerator")?;
    if finding.is_emulated() {
        say(&format!("the guest is emulated, which is slow ({})", finding.reason));
        finding.remedy().into_iter().for_each(say);
    }
    let told = Some(finding.accelerator);
    Ok(boot::boot(vmi, workbench::user_network(vmi, ports), told, None, workbench).await)
}

/// What asks for the guest's end: Ctrl-C, SIGTERM, or a terminal that is gone, and with it whoever could ask once more.
struct Stop {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Stop {
    fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).context("listen for Ctrl-C")?,
            terminate: signal(SignalKind::terminate()).context("listen for SIGTERM")?,
            hang_up: signal(SignalKind::hangup()).context("listen for SIGHUP")?,
        })
    }

    async fn asked(&mut self) {
        let Self { interrupt, terminate, hang_up } = self;
        tokio::select! {
            biased;
            // All mean the same; whichever comes first.
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hang_up.recv() => {}
        }
    }
}

/// Reads the manifest; a field that nobody knows is a mistake, not a wish.
fn read(manifest: &Path) -> anyhow::Result<VirtualMachineInstance> {
    let text = std::fs::read_to_string(manifest).with_context(|| format!("read {}", manifest.display()))?;
    let decoded = api::decode::manifest::<VirtualMachineInstance>(&text)
        .with_context(|| format!("{} is not a valid VirtualMachineInstance", manifest.display()))?;
    if let Some(first) = decoded.unknown.first() {
        bail!("{}: unknown field {first}", manifest.display());
    }
    Ok(decoded.object)
}

/// Shows the console until the guest ends; signals ask it to.
async fn attend(handle: &Handle, folder: &Path, grace: Duration, stop: &mut Stop) -> anyhow::Result<End> {
    let _terminal = Terminal::take(Signals::Ours)?;
    let mut out = std::io::stdout();
    let console = async {
        if let Ok(serial) = UnixStream::connect(folder.join(SERIAL_SOCKET)).await {
            terminal::attach(serial, &mut tokio::io::stdin(), &mut out, Signals::Ours).await?;
        }
        anyhow::Ok(())
    };
    let stopping = async {
        let mut asked = false;
        loop {
            stop.asked().await;
            let request = if asked { Request::Kill } else { Request::Shutdown { grace } };
            say(if asked {
                "killing the guest"
            } else {
                "asking the guest to power off; press Ctrl-C again to kill it"
            });
            asked = true;
            if let Err(error) = handle.request(request).await {
                tracing::warn!(%error, "stop the guest");
            }
        }
    };
    tokio::pin!(console, stopping);
    let mut shown = false;
    loop {
        tokio::select! {
            biased;
            // The console before the end: the guest's last words are shown.
            result = &mut console, if !shown => {
                result?;
                shown = true;
            }
            end = handle.ended() => return Ok(end),
            () = &mut stopping => {}
        }
    }
}

/// QEMU's own words, where it said any.
fn explain(error: BootError) -> anyhow::Error {
    match error {
        BootError::Start(StartError::Ended { words, .. }) if !words.is_empty() => {
            anyhow::anyhow!("QEMU did not start\n{words}")
        }
        other => other.into(),
    }
}

/// A guest that was stopped by its user ended well.
fn report(end: &End) -> anyhow::Result<()> {
    match end {
        End::PoweredOff | End::Rebooted | End::Killed => {
            say(&end.to_string());
            Ok(())
        }
        other => bail!("{other}"),
    }
}
