//! `orlop up`: the whole of it on one machine, in one process. SIGTERM and SIGKILL leave its VMs running; the next
//! `orlop up` finds them again.

pub(crate) mod control;
mod defaults;
mod identity;
mod image;
pub(crate) mod lock;
mod logs;
mod node;
pub(crate) mod nodes;
mod notify;
mod parts;
pub(crate) mod places;
pub(crate) mod preflight;
mod program;
mod reach;
pub(crate) mod report;
mod unheeded;
mod unit;
mod vhost;

use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use apiserver::serve::{Addresses, Listening};
use apiserver::{ApiServer, Place, ServiceAccounts};
use hypervisor::accelerator::Finding;
use kube_controllers::scheduler::run::DEFAULT_SCHEDULER;
use manager::context::Chance;
use tokens::Key;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;
use virt_controller::render::{Launcher, Nodes};

use crate::admission::VirtualMachines;
use crate::audit::Audit;
use crate::logging::Sink;
use crate::target::{Data, kubeconfig};
use crate::{audit, crds, descriptors, memory, quota, roles, scheduler};
pub(crate) use node::runtime;
use parts::Parts;
use report::{Report, Reporter};

/// The image of launchers: this machine's own programs.
pub(crate) const MACHINE_IMAGE: &str = "orlop.dev/machine";
/// Between two looks at what the machine has.
const LOOK: Duration = Duration::from_secs(30);
/// Who our programs are, as KubeVirt names their accounts.
const CONTROLLER: &str = "system:serviceaccount:kubevirt:kubevirt-controller";
const HANDLER: &str = "system:serviceaccount:kubevirt:kubevirt-handler";

/// Run everything on this machine: API server, controllers, scheduler, node and virt-handler.
#[derive(clap::Args)]
#[group(id = "up")]
pub(crate) struct Arguments {
    #[command(flatten)]
    data: Data,
    /// Where the API is served; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6443", env = "ORLOP_LISTEN")]
    listen: SocketAddr,
    #[command(flatten)]
    audit: audit::Arguments,
    #[command(flatten)]
    quota: quota::Arguments,
    #[command(flatten)]
    node: node::Arguments,
    /// Pretend: so many nodes whose pods and guests exist only in the API.
    #[arg(long, value_name = "COUNT", env = "ORLOP_HOLLOW_NODES")]
    hollow_nodes: Option<u32>,
    /// Print a unit for systemd that starts this with the same flags, and end.
    #[arg(long)]
    print_unit: bool,
}

pub(crate) fn run(arguments: Arguments, log: &Sink, out: &mut impl Write) -> anyhow::Result<()> {
    if arguments.print_unit {
        let program = unit::program()?;
        let flags: Vec<String> = std::env::args().skip(1).filter(|flag| flag != "--print-unit").collect();
        let settings = std::env::vars().filter(|(name, _)| name.starts_with("ORLOP_") && name != "ORLOP_DATA_DIR");
        let data = std::path::absolute(arguments.data.folder()?).context("find the data folder")?;
        return write!(out, "{}", unit::unit(&program, &flags, &settings.collect::<Vec<_>>(), &data))
            .context("write to standard output");
    }
    if arguments.hollow_nodes.is_none()
        && let Some(missing) = preflight::missing(&arguments.node.qemu)
    {
        bail!("{missing}");
    }
    descriptors::raise();
    let data = arguments.data.folder()?;
    apiserver::make_folder(&data).with_context(|| format!("create {}", data.display()))?;
    // Pods' tokens and secrets are below it; a folder that others could read is put right.
    let own = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(&data, own).with_context(|| format!("keep others out of {}", data.display()))?;
    let _lock = lock::take(&data)?;
    log.keep(&places::own_log(&data))?;
    // Dropped after the runtime has ended.
    let audit = arguments.audit.open()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the runtime")?;
    let result = runtime.block_on(serve(arguments, &data, &audit, out));
    runtime.shutdown_background();
    result
}

async fn serve(arguments: Arguments, data: &Path, audit: &Audit, out: &mut impl Write) -> anyhow::Result<()> {
    let begun = Instant::now();
    let Arguments { listen, quota, node, hollow_nodes, .. } = arguments;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let control = control::listen(data)?;
    // What is found out about the machine takes as long as the server's start; both at once.
    let found = async {
        match hollow_nodes {
            Some(_) => Ok(None),
            None => node.find(data).await.map(Some),
        }
    };
    let (server, found) = tokio::try_join!(start_server(data, audit), found)?;
    let admin = parts::client(&server, "orlop-up");
    defaults::install(&admin, ::node::provisioner::NAME).await.context("write the defaults")?;
    server.limit_store(quota.store_quota);
    let gateways = found.as_ref().map(node::Found::gateways).unwrap_or_default();
    let public = network::host::addresses().await.context("find the machine's addresses")?;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let addresses = Addresses { own: listen, further: gateways, public, host: Some(host) };
    let listening = Listening::on(addresses, data, &server).await.context("serve the API")?;
    let address = listening.address();
    if let Some(found) = &found {
        found.let_pods_reach(address.port()).await?;
    }
    let facts = found.as_ref().map(node::Found::facts).unwrap_or_default();
    let less = found.as_ref().map(node::Found::less).unwrap_or_default();
    let mut parts = Parts::new(server.clone());
    let findings = found.as_ref().map(node::Found::findings);
    let qemu = found.as_ref().and_then(node::Found::own_qemu);
    start_controllers(&mut parts, data, launcher(qemu, findings.clone()))?;
    match (found, hollow_nodes) {
        (Some(found), _) => found.start(&mut parts, address.port()),
        (None, count) => node::start_hollow(&mut parts, count.unwrap_or(1)),
    }
    let nodes = nodes::follow(admin);
    let reporter = Reporter { address, server: None, pages: parts.pages(), facts, less, findings, nodes };
    let asked = reporter.clone();
    let reporter = Reporter { server: Some(server.clone()), ..reporter };
    server.ready_when(move || asked.report().checks());
    tell(&reporter.report(), data, begun.elapsed(), out)?;
    let failed = server.failed();
    let stop = async {
        tokio::select! {
            biased;
            why = failed => Some(anyhow::anyhow!("the store failed: {why}")),
            error = parts.ended() => Some(error),
            _ = interrupt.recv() => None,
            _ = terminate.recv() => None,
        }
    };
    let mut reason = None;
    let stopping = async { reason = stop.await };
    tokio::select! {
        biased;
        () = listening.run(server.clone(), stopping) => {}
        () = control::serve(control, || reporter.report()) => bail!("the control socket failed"),
        never = notify::systemd(&reporter) => match never {},
        never = memory::give_back() => match never {},
    }
    parts.stop().await;
    match reason {
        Some(reason) => Err(reason),
        None => Ok(()),
    }
}

/// The first lines: whoever started it learns where it is, and what it does without.
fn tell(report: &Report, data: &Path, took: Duration, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(out, "orlop is up after {} ms: {}", took.as_millis(), report.server)?;
    writeln!(out, "  export KUBECONFIG={}", kubeconfig(data).display())?;
    for less in &report.less {
        writeln!(out, "  {}: {}\n    -> {}", less.what, less.why, less.remedy)?;
    }
    out.flush()
}

async fn start_server(data: &Path, audit: &Audit) -> anyhow::Result<ApiServer> {
    let logs = logs::Logs::new(places::logs(data));
    let components = [CONTROLLER, HANDLER].map(str::to_owned);
    let admission = VirtualMachines::new(components, Chance::of_the_machine());
    let only = image::OnlyFor { image: MACHINE_IMAGE, user: CONTROLLER };
    let accounts = ServiceAccounts::new(None);
    let builder = ApiServer::builder(Place::Folder(data.to_owned()))
        .admission(admission)
        .admission(only)
        .admission(unheeded::Unheeded)
        .admission(accounts)
        .logs(logs.clone());
    let server = audit.of(builder).start().await.context("open the store")?;
    logs.watch_with(parts::client(&server, "orlop-logs"));
    crds::install(&server).await.context("define the kinds of virtual machines")?;
    roles::install(&server).await.context("make the roles of their users")?;
    Ok(server)
}

fn start_controllers(parts: &mut Parts, data: &Path, launcher: watch::Receiver<Launcher>) -> anyhow::Result<()> {
    let read =
        |file: &str| std::fs::read_to_string(data.join("pki").join(file)).with_context(|| format!("read {file}"));
    let key = Key::from_pem(&read("sa.key")?).context("sa.key")?;
    let settings = kube_controllers::table::Settings {
        root_ca: Some(read("ca.crt")?),
        signer: Some(Arc::new(key)),
        ..Default::default()
    };
    parts.start("kube-controllers", "system:kube-controller-manager", kube_controllers::table::DESCRIPTORS, settings);
    parts.start("scheduler", "system:kube-scheduler", scheduler::DESCRIPTORS, DEFAULT_SCHEDULER.to_owned());
    let mut settings = virt_controller::table::Settings::following(launcher);
    settings.image_volumes = Some(true);
    parts.start("virt-controller", CONTROLLER, virt_controller::table::DESCRIPTORS, settings);
    Ok(())
}

/// Launchers of this machine. What they ask for follows what guests run with, which may change; where they only pretend,
/// guests have all that they like.
fn launcher(qemu: Option<String>, findings: Option<watch::Receiver<Option<Finding>>>) -> watch::Receiver<Launcher> {
    let rendered = move |nodes: Nodes| Launcher { nodes, qemu: qemu.clone(), ..Launcher::new(MACHINE_IMAGE) };
    let Some(mut findings) = findings else { return watch::channel(rendered(Nodes::default())).1 };
    let nodes = |finding: &Option<Finding>| Nodes {
        kvm: finding.as_ref().is_some_and(|finding| !finding.is_emulated()),
        vhost_net: vhost::is_there(),
    };
    let (launchers, launcher) = watch::channel(rendered(nodes(&findings.borrow_and_update())));
    tokio::spawn(async move {
        // Nobody tells when a module is loaded or taken away; it is looked for now and then.
        while !matches!(tokio::time::timeout(LOOK, findings.changed()).await, Ok(Err(_))) {
            let now = rendered(nodes(&findings.borrow_and_update()));
            launchers.send_if_modified(|known| {
                let differs = *known != now;
                *known = now;
                differs
            });
        }
    });
    launcher
}
