//! `orlop virt-launcher`: one VM, controlled by virt-handler over a socket.

mod console;
mod network;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use hypervisor::accelerator::Choice;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use virt_launcher::boot::Workbench;
use virt_launcher::reaper;
use virt_launcher::server::{Attach, Service};

use crate::logging::Sink;
use crate::process_memory;
use crate::workbench::{self, NamedPath, Port};

/// How long the launcher stays after its guest has ended on a SIGTERM, for the node's agent to fetch how.
const FAREWELL: Duration = Duration::from_secs(5);

/// Run one VM, controlled by virt-handler over a socket.
#[derive(clap::Args)]
#[group(id = "virt_launcher")]
pub(crate) struct Arguments {
    /// Socket to listen on; it appears when the launcher is ready.
    #[arg(long, value_name = "PATH", env = "ORLOP_LAUNCHER_SOCKET")]
    socket: PathBuf,
    /// Socket on which virt-handler hands over the pod's network. By default, the guest uses QEMU's user-mode network.
    #[arg(long, value_name = "PATH", env = "ORLOP_NETWORK_SOCKET")]
    network_socket: Option<PathBuf>,
    #[command(flatten)]
    instance: Instance,
    /// Directory for the guest's sockets. It is created if missing, and removed together with the pod.
    #[arg(long, value_name = "DIR", env = "ORLOP_RUNTIME_DIR")]
    runtime_dir: PathBuf,
    /// Directory for disks that are deleted with the guest. The default is the directory of its sockets.
    #[arg(long, value_name = "DIR", env = "ORLOP_EPHEMERAL_DISK_DIR")]
    ephemeral_disk_dir: Option<PathBuf>,
    /// Time after a SIGTERM when a guest that has not powered off is killed.
    #[arg(long, value_name = "SECONDS", default_value_t = 45, env = "ORLOP_GRACE_PERIOD_SECONDS")]
    grace_period_seconds: u64,
    /// Mounted image of a container disk, or the disk file in it: VOLUME=PATH.
    #[arg(long = "container-disk", value_name = "VOLUME=PATH", env = "ORLOP_CONTAINER_DISK", value_delimiter = ',')]
    container_disks: Vec<NamedPath>,
    /// Directory of a host disk: VOLUME=PATH.
    #[arg(long = "host-disk", value_name = "VOLUME=PATH", env = "ORLOP_HOST_DISK", value_delimiter = ',')]
    host_disks: Vec<NamedPath>,
    /// Mounted image with the guest's kernel.
    #[arg(long, value_name = "DIR", env = "ORLOP_KERNEL_BOOT")]
    kernel_boot: Option<PathBuf>,
    /// Directory of the EFI firmware, if it is not where distributions put it.
    #[arg(long, value_name = "DIR", env = "ORLOP_OVMF_PATH")]
    ovmf_path: Option<PathBuf>,
    /// Emulate the guest unless --accelerator is set, because its pod has no KVM.
    #[arg(long, env = "ORLOP_USE_EMULATION")]
    use_emulation: bool,
    /// Copy the guest's serial console output to standard output.
    #[arg(long, env = "ORLOP_LOG_SERIAL_CONSOLE")]
    log_serial_console: bool,
    /// Forward a port of this machine to the guest: HOST:GUEST or ADDRESS:HOST:GUEST.
    #[arg(short = 'p', long = "port", value_name = "FORWARD", env = "ORLOP_PORT", value_delimiter = ',')]
    ports: Vec<Port>,
    #[command(flatten)]
    workbench: workbench::Arguments,
}

/// Which instance this launcher is for.
#[derive(clap::Args)]
#[group(id = "instance")]
struct Instance {
    /// Name of the instance, for the log.
    #[arg(long, default_value = "", env = "ORLOP_INSTANCE_NAME")]
    name: String,
    /// Namespace of the instance, for the log.
    #[arg(long, default_value = "", env = "ORLOP_INSTANCE_NAMESPACE")]
    namespace: String,
    /// UID of the instance; instances with another UID are refused.
    #[arg(long, env = "ORLOP_INSTANCE_UID")]
    uid: Option<String>,
}

/// Runs on one thread, which lives as long as the process: QEMU is killed with the thread that started it.
pub(crate) fn run(arguments: Arguments, log: &Sink) -> anyhow::Result<()> {
    let Instance { name, namespace, uid } = &arguments.instance;
    log.always([("namespace", namespace.as_str()), ("name", name), ("uid", uid.as_deref().unwrap_or_default())]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(serve(arguments))
}

async fn serve(arguments: Arguments) -> anyhow::Result<()> {
    let grace = Duration::from_secs(arguments.grace_period_seconds);
    let workbench = prepare(&arguments)?;
    let Arguments { socket, network_socket, instance, log_serial_console, ports, .. } = arguments;
    let console = if log_serial_console { Some(console::Copy::prepare(&workbench.folder)?) } else { None };
    let network: Box<Attach> = match network_socket {
        Some(path) => network::from_pod(&path)?,
        None => Box::new(move |vmi| Ok(workbench::user_network(vmi, &ports))),
    };
    // Without somebody who reads it, a log would only fill the disk.
    let logs = console.is_some();
    let attach: Box<Attach> = Box::new(move |vmi| {
        vmi.spec.domain.devices.log_serial_console = Some(logs);
        network(vmi)
    });
    let service = Service::new(workbench, instance.uid, attach);
    tokio::spawn(async {
        if let Err(error) = reaper::bury_orphans().await {
            tracing::warn!(%error, "cannot reap orphaned processes");
        }
    });
    tokio::spawn(process_memory::forget_start());
    let listener = listen(&socket)?;
    tracing::info!("ready");
    let serving = service.clone().serve(listener);
    let terminated = terminated(service, grace);
    tokio::select! {
        biased;
        // Deleted by the node's agent, which is the usual end; or told to end by the node.
        served = serving => served.context("serve")?,
        stopped = terminated => stopped?,
    }
    if let Some(console) = console {
        console.finish().await;
    }
    let _ = std::fs::remove_file(&socket);
    Ok(())
}

/// Makes the guest's directories, and looks for everything that it needs.
fn prepare(arguments: &Arguments) -> anyhow::Result<Workbench> {
    let folder = &arguments.runtime_dir;
    std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    owner_only(folder, 0o700)?;
    let mut workbench = arguments.workbench.build(folder, Box::new(()))?;
    if arguments.use_emulation && workbench.choice == Choice::Auto {
        workbench.choice = Choice::Tcg;
    }
    if let Some(disks) = &arguments.ephemeral_disk_dir {
        std::fs::create_dir_all(disks).with_context(|| format!("create {}", disks.display()))?;
        workbench.disks.clone_from(disks);
    }
    workbench.firmware.clone_from(&arguments.ovmf_path);
    workbench.places.container_disks = NamedPath::collect(&arguments.container_disks);
    workbench.places.host_disks = NamedPath::collect(&arguments.host_disks);
    workbench.places.kernel.clone_from(&arguments.kernel_boot);
    Ok(workbench)
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
async fn terminated(service: Service, grace: Duration) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    terminate.recv().await;
    if service.terminate(grace).await && service.is_watched() {
        tokio::time::sleep(FAREWELL).await;
    }
    Ok(())
}
