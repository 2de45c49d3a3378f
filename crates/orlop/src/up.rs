//! `orlop up`: the whole of it on one machine, in one process. SIGTERM and SIGKILL leave its VMs running; the next
//! `orlop up` finds them again.

mod agent;
pub(crate) mod agents;
mod components;
pub(crate) mod control;
mod defaults;
mod deployed;
mod exports;
mod handlers;
mod home;
mod identity;
mod install;
pub(crate) mod lock;
mod logs;
mod node;
pub(crate) mod nodes;
mod notify;
pub(crate) mod paths;
mod pod_network;
pub(crate) mod preflight;
mod reach;
mod relay;
pub(crate) mod report;
pub(crate) mod service;
pub(crate) mod storage;
mod unheeded;
mod unit;
mod vhost;

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
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
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;
use virt_controller::export::External;
use virt_controller::{COMPUTE, Launcher, Nodes};
use virt_handler::NodeGuests;
use virt_server::Component;

use crate::audit::Audit;
use crate::logging::Sink;
use crate::target::{Data, kubeconfig};
use crate::{audit, descriptors, process_memory, quota, scheduler};
use agents::Agents;
use components::Components;
use exports::Exports;
use home::{MOST_NODES, Role};
pub(crate) use node::runtime;
use report::{Report, Reporter};

/// The image of launchers: this machine's own programs.
pub(crate) const MACHINE_IMAGE: &str = "orlop.dev/machine";
/// Between two looks at what the machine has.
const LOOK: Duration = Duration::from_secs(30);

/// Run all components on this machine: API server, controllers, scheduler, node agent and virt-handler.
#[derive(clap::Args)]
#[group(id = "up")]
pub(crate) struct Arguments {
    #[command(flatten)]
    data: Data,
    /// Address and port to serve the API on; port 0 chooses a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6443", env = "ORLOP_LISTEN")]
    listen: SocketAddr,
    #[command(flatten)]
    audit: audit::Arguments,
    #[command(flatten)]
    quota: quota::Arguments,
    #[command(flatten)]
    node: node::Arguments,
    #[command(flatten)]
    storage: storage::Arguments,
    /// Run this many nodes on this machine, each a process of its own with its share of the machine, to try out how a
    /// cluster behaves. `orlop node` stops, starts and disconnects them one by one.
    #[arg(long, value_name = "COUNT", env = "ORLOP_NODES", value_parser = count, conflicts_with = "hollow_nodes")]
    nodes: Option<NonZeroU32>,
    #[command(flatten)]
    agent: agent::Arguments,
    /// Simulate this many nodes. Their pods and guests exist only in the API.
    #[arg(long, value_name = "COUNT", env = "ORLOP_HOLLOW_NODES", conflicts_with_all = ["storage_dir", "storage_size"])]
    hollow_nodes: Option<u32>,
    /// Print a systemd unit that starts `orlop up` with the same flags, and exit.
    #[arg(long)]
    print_unit: bool,
}

fn count(text: &str) -> Result<NonZeroU32, String> {
    let count = text.parse().ok().filter(|count: &NonZeroU32| count.get() <= MOST_NODES);
    count.ok_or_else(|| format!("{text:?} must be a number from 1 to {MOST_NODES}"))
}

pub(crate) fn run(arguments: Arguments, log: &Sink, out: &mut impl Write) -> anyhow::Result<()> {
    if arguments.print_unit {
        let program = unit::program()?;
        let flags: Vec<String> = std::env::args().skip(1).filter(|flag| flag != "--print-unit").collect();
        let settings = std::env::vars().filter(|(name, _)| name.starts_with("ORLOP_") && name != "ORLOP_DATA_DIR");
        let data = std::path::absolute(arguments.data.folder()?).context("find the data directory")?;
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
    if let (Some(task), Some(nodes)) = (arguments.agent.task(), arguments.nodes) {
        return agent::run(task, nodes, arguments.node, &data, log);
    }
    apiserver::make_directory(&data).with_context(|| format!("create {}", data.display()))?;
    // Pods' tokens and secrets are below it; a folder that others could read is put right.
    let own = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(&data, own).with_context(|| format!("set the permissions of {}", data.display()))?;
    let _lock = lock::take(&data)?;
    log.keep(&paths::own_log(&data))?;
    // Dropped after the runtime has ended.
    let audit = arguments.audit.open()?;
    process_memory::share_arenas();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the runtime")?;
    let result = runtime.block_on(serve(arguments, &data, &audit, out));
    runtime.shutdown_background();
    result
}

async fn serve(arguments: Arguments, data: &Path, audit: &Audit, out: &mut impl Write) -> anyhow::Result<()> {
    let begun = Instant::now();
    let Arguments { listen, quota, node, storage, nodes, hollow_nodes, .. } = arguments;
    let mut told_to_end = Signals::listen()?;
    let control = control::listen(data)?;
    let role = nodes.map_or(Role::Sole, |nodes| Role::Control { nodes });
    let home = node.home(role, data);
    agents::check(data, role, &home)?;
    // What is found out about the machine takes as long as the server's start; both at once.
    let found = async {
        match hollow_nodes {
            Some(_) => Ok(None),
            None => node.find(data, home).await?.keep_volumes(storage, data).await.map(Some),
        }
    };
    let guests = NodeGuests::default();
    let (server, found) = tokio::try_join!(start_server(data, audit, guests.clone()), found)?;
    let setup = components::client(&server, &Component::Setup);
    defaults::install(&setup, ::node::provisioner::NAME).await.context("write the defaults")?;
    server.limit_store(quota.store_quota);
    let gateways = found.as_ref().map(node::Found::gateways).unwrap_or_default();
    let listening = listen_on(listen, gateways, data, &server).await?;
    let address = listening.address();
    if let Some(found) = &found {
        found.let_pods_reach(address.port()).await?;
    }
    let seen = found.as_ref();
    let (facts, less) = seen.map(|found| (found.facts(), found.less())).unwrap_or_default();
    let (storage, findings) = (seen.and_then(node::Found::storage), seen.map(node::Found::findings));
    let mut components = Components::new(server.clone());
    let qemu = found.as_ref().and_then(node::Found::own_qemu);
    let host = reached_from_outside(listen, address).await?;
    start_controllers(&mut components, data, launcher(qemu, findings.clone()), host)?;
    let agents = match (found, role) {
        (Some(found), Role::Control { .. }) => {
            handlers::keep(data)?;
            found.start_common(&mut components);
            agents::start(data, &found, reached(address), &guests).await?
        }
        (Some(found), _) => found.start(&mut components, address.port(), guests).map(|()| Agents::default())?,
        (None, _) => node::start_hollow(&mut components, hollow_nodes.unwrap_or(1)),
    };
    let nodes = nodes::follow(components::client(&server, &Component::Status));
    let pages = components.pages();
    let reporter = Reporter { address, server: None, pages, facts, less, findings, storage, nodes, agents };
    deployed::follow(setup, reporter.clone());
    let (asked, reporter) = (reporter.clone(), Reporter { server: Some(server.clone()), ..reporter });
    server.ready_when(move || asked.report().checks());
    tell(&reporter.report(), data, begun.elapsed(), out)?;
    let forget = components.forgetting();
    let failed = server.failed();
    let mut reason = None;
    let stopping = async {
        reason = tokio::select! {
            biased;
            why = failed => Some(anyhow::anyhow!("the store has failed: {why}")),
            error = components.ended() => Some(error),
            () = told_to_end.received() => None,
        };
    };
    tokio::select! {
        biased;
        () = listening.run(server.clone(), stopping) => {}
        () = control::serve(control, || reporter.report()) => bail!("the control socket failed"),
        never = notify::systemd(&reporter) => match never {},
        never = process_memory::give_back(forget) => match never {},
    }
    components.stop().await;
    reason.map_or(Ok(()), Err)
}

/// What a terminal, systemd or a person ends the process with.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).context("listen for Ctrl-C")?,
            terminate: signal(SignalKind::terminate()).context("listen for SIGTERM")?,
        })
    }

    async fn received(&mut self) {
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Serves the API at an address, and to pods at their gateways.
async fn listen_on(
    own: SocketAddr,
    gateways: Vec<IpAddr>,
    data: &Path,
    server: &ApiServer,
) -> anyhow::Result<Listening> {
    let public = network::host::addresses().await.context("find the machine's addresses")?;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let addresses = Addresses { own, further: gateways, public, host: Some(host) };
    Listening::on(addresses, data, server).await.context("serve the API")
}

/// Where others reach what listens: at an address of the machine, if it stands for all of them.
async fn reached_from_outside(listen: SocketAddr, listening: SocketAddr) -> anyhow::Result<SocketAddr> {
    if !listen.ip().is_unspecified() {
        return Ok(listening);
    }
    let public = network::host::addresses().await.context("find the machine's addresses")?;
    let mut public = public.into_iter().filter(|address| !address.is_loopback());
    Ok(public.next().map_or(listening, |address| SocketAddr::new(address, listening.port())))
}

/// Where this machine's own processes reach what listens at an address, which may stand for all.
fn reached(listening: SocketAddr) -> SocketAddr {
    match listening {
        SocketAddr::V4(any) if any.ip().is_unspecified() => (Ipv4Addr::LOCALHOST, any.port()).into(),
        SocketAddr::V6(any) if any.ip().is_unspecified() => (Ipv6Addr::LOCALHOST, any.port()).into(),
        other => other,
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

async fn start_server(data: &Path, audit: &Audit, guests: NodeGuests) -> anyhow::Result<ApiServer> {
    let logs = logs::Logs::new(paths::logs(data));
    let exports = Exports::default();
    let builder = ApiServer::builder(Place::Folder(data.to_owned()))
        .admission(unheeded::Unheeded)
        .admission(ServiceAccounts::new(None))
        .logs(logs.clone())
        // Agents of other nodes come as accounts of it, over the network.
        .trust_namespace(defaults::NAMESPACE);
    let builder = exports.on(builder);
    let mut settings = virt_server::Settings::new(Chance::of_the_machine())?;
    settings.machine_image = Some(MACHINE_IMAGE.to_owned());
    settings.guests = Some(Arc::new(guests));
    let server = virt_server::start(audit.of(builder), settings).await?;
    logs.watch_with(components::client(&server, &Component::Status));
    exports.find_with(components::client(&server, &Component::VirtApi));
    Ok(server)
}

fn start_controllers(
    components: &mut Components,
    data: &Path,
    launcher: watch::Receiver<Launcher>,
    host: SocketAddr,
) -> anyhow::Result<()> {
    let read =
        |file: &str| std::fs::read_to_string(data.join("pki").join(file)).with_context(|| format!("read {file}"));
    let key = Key::from_pem(&read("sa.key")?).context("sa.key")?;
    let settings = kube_controllers::table::Settings {
        root_ca: Some(read("ca.crt")?),
        signer: Some(Arc::new(key)),
        ..Default::default()
    };
    components.start("kube-controllers", Component::ControllerManager, kube_controllers::table::DESCRIPTORS, settings);
    components.start("scheduler", Component::Scheduler, scheduler::DESCRIPTORS, DEFAULT_SCHEDULER.to_owned());
    let external = External { host: host.to_string(), authority: read("ca.crt")? };
    components.start_with("virt-controller", Component::VirtController, virt_controller::DESCRIPTORS, |limiter| {
        let mut settings = virt_controller::Settings::following(launcher);
        settings.image_volumes = Some(true);
        settings.exports = Some(external);
        settings.limiter = Some(limiter);
        settings
    });
    let settings = data_volumes::Settings::new(MACHINE_IMAGE);
    components.start("data-volumes", Component::DataVolumes, data_volumes::DESCRIPTORS, settings);
    Ok(())
}

/// Launchers of this machine. What they ask for follows what guests run with, which may change; where they only pretend,
/// guests have all that they like.
fn launcher(qemu: Option<String>, findings: Option<watch::Receiver<Option<Finding>>>) -> watch::Receiver<Launcher> {
    // The image of the machine's own programs has no tag; what is in it changes with this program.
    let version = Some(env!("CARGO_PKG_VERSION").to_owned());
    let is_real = findings.is_some();
    let rendered = move |nodes: Nodes| Launcher {
        nodes,
        qemu: qemu.clone(),
        version: version.clone(),
        // A launcher's standard output is its guest's console and nothing else. Those that only pretend have none.
        console_log: is_real.then(|| ::node::agent::output::image(COMPUTE)),
        ..Launcher::new(MACHINE_IMAGE)
    };
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
