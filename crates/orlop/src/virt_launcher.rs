//! `orlop virt-launcher`: one VM, steered over a socket by its node's agent.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use virt_launcher::rpc;
use virt_launcher::server::Service;
use virt_launcher::{notify, reaper};

use crate::workbench::{self, Port};

/// How long the launcher stays after its guest has ended on a SIGTERM, for the node's agent to fetch how.
const FAREWELL: Duration = Duration::from_secs(5);

/// Run one VM, as virt-handler says over a socket.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The socket to serve on; it appears when the launcher is ready.
    #[arg(long, value_name = "PATH", env = "ORLOP_LAUNCHER_SOCKET")]
    socket: PathBuf,
    /// The socket where the node's agent listens for events.
    #[arg(long, value_name = "PATH", env = "ORLOP_NOTIFY_SOCKET")]
    notify_socket: Option<PathBuf>,
    /// The UID of the instance, for the events.
    #[arg(long, default_value = "", env = "ORLOP_INSTANCE_UID")]
    uid: String,
    /// A folder for the guest's sockets and disks; it is created, and emptied by whoever removes the pod.
    #[arg(long, value_name = "FOLDER", env = "ORLOP_RUNTIME_DIR")]
    runtime_dir: PathBuf,
    /// Forward a port of this machine into the guest: HOST:GUEST or ADDRESS:HOST:GUEST.
    #[arg(short = 'p', long = "port", value_name = "FORWARD", env = "ORLOP_PORT", value_delimiter = ',')]
    ports: Vec<Port>,
    #[command(flatten)]
    workbench: workbench::Arguments,
}

/// Runs on one thread, which lives as long as the process: QEMU is killed with the thread that started it.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(serve(arguments))
}

async fn serve(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments { socket, notify_socket, uid, runtime_dir, ports, workbench } = arguments;
    std::fs::create_dir_all(&runtime_dir).with_context(|| format!("create {}", runtime_dir.display()))?;
    owner_only(&runtime_dir, 0o700)?;
    let workbench = workbench.build(&runtime_dir, Box::new(())).await?;
    let service = Service::new(workbench, Box::new(move |vmi| workbench::user_network(vmi, &ports)));
    tokio::spawn(async {
        if let Err(error) = reaper::bury_orphans().await {
            tracing::warn!(%error, "orphans stay unburied");
        }
    });
    if let Some(notify_socket) = notify_socket {
        tokio::spawn(notify::notify(notify_socket, uid, service.domain()));
    }
    let listener = listen(&socket)?;
    let serving = service.clone().serve(listener);
    let terminated = terminated(service);
    tokio::select! {
        biased;
        // Deleted by the node's agent, which is the usual end; or told to end by the node.
        served = serving => served.context("serve")?,
        stopped = terminated => stopped?,
    }
    let _ = std::fs::remove_file(&socket);
    Ok(())
}

/// A socket that has its name only when it accepts: who finds it can connect.
fn listen(socket: &Path) -> anyhow::Result<UnixListener> {
    let hidden = socket.with_extension("starting");
    let _ = std::fs::remove_file(&hidden);
    let listener = UnixListener::bind(&hidden).with_context(|| format!("listen on {}", hidden.display()))?;
    owner_only(&hidden, 0o600)?;
    std::fs::rename(&hidden, socket).with_context(|| format!("listen on {}", socket.display()))?;
    Ok(listener)
}

fn owner_only(path: &Path, mode: u32) -> anyhow::Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        .with_context(|| format!("set the mode of {}", path.display()))
}

/// SIGTERM shuts the guest down; when it has ended, the launcher may.
async fn terminated(service: Service) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    terminate.recv().await;
    if !service.shut_down().await {
        return Ok(());
    }
    let ended =
        |domain: &Option<rpc::Domain>| domain.as_ref().is_some_and(|domain| domain.state() == rpc::State::Ended);
    // The sender is in the service and outlives this.
    let _ = service.domain().wait_for(ended).await;
    tokio::time::sleep(FAREWELL).await;
    Ok(())
}
