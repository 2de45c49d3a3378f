//! One of several nodes on this machine: a process of its own with a node agent and a virt-handler, which `orlop up --nodes`
//! starts. SIGTERM and SIGKILL leave its pods running; the next one finds them again.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::Path;

use anyhow::Context as _;
use apiserver::Identity;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use virt_handler::NodeGuests;
use virt_server::Component;

use super::agents::{self, Origin};
use super::components::Components;
use super::home::Role;
use super::nodes::Nodes;
use super::report::Reporter;
use super::{control, lock, node, paths};
use crate::logging::Sink;
use crate::process_memory;

/// Threads of an agent: what waits for disks keeps nothing else waiting.
const THREADS: usize = 2;

/// What `orlop up` tells the agents that it starts.
#[derive(clap::Args)]
#[group(id = "up_agent")]
pub(crate) struct Arguments {
    /// Be this node, and nothing else.
    #[arg(long = "agent", value_name = "INDEX", hide = true, requires_all = ["server", "api_port", "nodes"])]
    index: Option<u32>,
    /// Where the agent reaches the API server.
    #[arg(long = "agent-server", value_name = "ADDRESS", hide = true)]
    server: Option<SocketAddr>,
    /// Where pods reach the API server, at their gateway.
    #[arg(long = "agent-api-port", value_name = "PORT", hide = true)]
    api_port: Option<u16>,
}

/// Which node to be, and where the API server is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    index: u32,
    server: SocketAddr,
    api_port: u16,
}

impl Arguments {
    /// What this process is to be, if it is an agent.
    pub(super) fn task(&self) -> Option<Task> {
        Some(Task { index: self.index?, server: self.server?, api_port: self.api_port? })
    }
}

pub(super) fn run(task: Task, nodes: NonZeroU32, node: node::Arguments, data: &Path, log: &Sink) -> anyhow::Result<()> {
    let home = node.home(Role::Agent { index: task.index, nodes }, data);
    apiserver::make_directory(&home.root).with_context(|| format!("create {}", home.root.display()))?;
    let _lock = lock::take(&home.root)?;
    log.keep(&paths::agent_log(data, &home.node))?;
    Origin::own()?.write(&home.root)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .context("start the runtime")?;
    let result = runtime.block_on(serve(task, home, node, data));
    runtime.shutdown_background();
    result
}

async fn serve(task: Task, home: super::home::Home, node: node::Arguments, data: &Path) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let control = control::listen(&home.root)?;
    let components = [Component::Node(home.node.clone()), Component::VirtHandler];
    let mut ways = Vec::new();
    for component in components {
        let way = way(data, task.server, &component.identity()).await?;
        ways.push((component, way));
    }
    let mut components = Components::remote(ways);
    let found = node.find(data, home).await?;
    let (facts, less, findings) = (found.facts(), found.less(), Some(found.findings()));
    // Whoever asks about guests asks `orlop up`, which finds them in this node's directory.
    found.start(&mut components, task.api_port, NodeGuests::default())?;
    let nodes = watch::channel(Nodes::default()).1;
    let agents = agents::Agents::default();
    let reporter = Reporter {
        address: task.server,
        server: None,
        pages: components.pages(),
        facts,
        less,
        findings,
        storage: None,
        nodes,
        agents,
    };
    tokio::select! {
        biased;
        error = components.ended() => return Err(error),
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        () = control::serve(control, || reporter.report()) => anyhow::bail!("the control socket failed"),
        never = process_memory::give_back(|| {}) => match never {},
    }
    components.stop().await;
    Ok(())
}

/// A way to the API server for one of the agent's programs. The authority that vouches for it is in the directory of `orlop up`,
/// which only root can read; what it signs holds longer than any agent runs without being replaced.
async fn way(data: &Path, server: SocketAddr, identity: &Identity) -> anyhow::Result<Config> {
    let group = identity.groups.first().map_or("", String::as_str);
    let text = apiserver::serve::kubeconfig_for(data, server, &identity.user, group).context("sign a certificate")?;
    let file = Kubeconfig::from_yaml(&text).context("read the way to the API server")?;
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.context("use the way to the API server")
}
