//! Controllers, schedulers and hollow nodes as processes beside an API server, and what kubectl's users see of them.
//!
//! ```text
//! orlop apiserver, or kube-apiserver + etcd
//!   └─ our controller manager, scheduler and nodes, or Kubernetes' own with our nodes
//!        ├─ deployments, namespaces, nodes: what each command of kubectl brings about
//!        ├─ rights: each controller as its own service account
//!        └─ compare: the same commands on both, and every object afterwards
//! ```

mod compare;
mod deployments;
mod machines;
mod namespaces;
mod nodes;
mod replicas;
mod rest;
mod rights;
mod snapshot;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::clients::kubectl::Kubectl;
use crate::clients::{Outcome, all};
use crate::control_plane::{ControlPlane, Ended, background};
use crate::embedded::Embedded;

/// How long kubectl waits for what must come: longer than it takes on any machine.
const WAIT: &str = "--timeout=300s";
/// How much of a program's log is told when a check fails.
const LOG_LINES: usize = 20;
const LINE_LENGTH: usize = 500;

type Check = fn(&mut Cluster) -> Result<()>;

/// kubectl's commands for deployments, on our own server.
///
/// # Errors
/// With each check that failed.
pub async fn deployments(orlop: &Path) -> Result<()> {
    let mut cluster = Cluster::embedded(orlop).await?;
    cluster.ours(&[], 3)?;
    cluster.run(deployments::CHECKS)
}

/// Namespaces: what is in each from its start, and that nothing is left at its end.
///
/// # Errors
/// With each check that failed.
pub async fn namespaces(orlop: &Path) -> Result<()> {
    let mut cluster = Cluster::embedded(orlop).await?;
    let key = namespaces::make_key(cluster.folder.path())?;
    let ca = format!("--root-ca-file={}", cluster.authority()?.display());
    cluster.ours(&[&ca, &format!("--service-account-private-key-file={}", key.display())], 1)?;
    cluster.run(namespaces::CHECKS)
}

/// Nodes: kept free, emptied, tainted, lost.
///
/// # Errors
/// With each check that failed.
pub async fn nodes(orlop: &Path) -> Result<()> {
    let mut cluster = Cluster::embedded(orlop).await?;
    cluster.ours(&[], 2)?;
    cluster.run(nodes::CHECKS)
}

/// Virtual machines on simulated nodes and domains, on our own server, which fills them in and checks them.
///
/// # Errors
/// With each check that failed.
pub async fn machines(orlop: &Path) -> Result<()> {
    let mut cluster = Cluster::beside(Server::Embedded(Embedded::with_virtual_machines(orlop).await?), orlop)?;
    cluster.machines()?;
    cluster.run(&[machines::CHECKS, machines::ADMITTED, replicas::CHECKS].concat())
}

/// The samples that come with KubeVirt, on our own server.
///
/// # Errors
/// With each check that failed.
pub async fn samples(orlop: &Path) -> Result<()> {
    let mut cluster = Cluster::beside(Server::Embedded(Embedded::with_virtual_machines(orlop).await?), orlop)?;
    cluster.machines()?;
    cluster.run(machines::SAMPLES)
}

/// The same on a real server, which only keeps them.
///
/// # Errors
/// With each check that failed.
pub fn machines_on_kubernetes(orlop: &Path) -> Result<()> {
    let mut cluster = Cluster::beside(Server::Real(ControlPlane::start()?), orlop)?;
    let definitions = crate::output(std::process::Command::new(orlop).arg("crds"))?;
    cluster.kubectl.given(&["apply", "--server-side", "-f", "-"], &definitions)?;
    cluster.kubectl.ok(&["wait", "--for=condition=Established", "crd", "--all", WAIT])?;
    cluster.machines()?;
    cluster.run(machines::CHECKS)
}

/// The same commands to our programs and to Kubernetes' own: the same objects and events afterwards.
///
/// # Errors
/// With every difference that is not a known one.
pub fn compare(orlop: &Path) -> Result<()> {
    compare::run(orlop, &compare::DEPLOYMENTS)
}

/// The same with replication controllers, services and disruption budgets.
///
/// # Errors
/// As for [`compare`].
pub fn compare_services(orlop: &Path) -> Result<()> {
    compare::run(orlop, &compare::SERVICES)
}

/// Each controller with the rights of its own service account and no others, on a real API server; and who sees what
/// their program shows.
///
/// # Errors
/// With each check that failed.
pub fn rights(orlop: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut cluster = Cluster::beside(Server::Real(rights::audited(folder.path())?), orlop)?;
    cluster.flags = rights::flags(cluster.folder.path(), &cluster.authority()?)?;
    cluster.ours(&[], 2)?;
    cluster.audit = Some(folder.path().join(rights::LOG));
    cluster.run(rights::CHECKS)
}

enum Server {
    Embedded(Embedded),
    Real(ControlPlane),
}

/// An API server and what runs beside it.
pub(crate) struct Cluster {
    pub(crate) kubectl: Kubectl,
    pub(crate) folder: TempDir,
    orlop: PathBuf,
    /// What our controllers are always started with.
    flags: Vec<String>,
    /// Where a real server writes who asked it for what.
    audit: Option<PathBuf>,
    // Dropped in this order: the server last.
    programs: Vec<(String, Ended)>,
    server: Server,
}

impl Cluster {
    pub(crate) async fn embedded(orlop: &Path) -> Result<Self> {
        Self::beside(Server::Embedded(Embedded::start(orlop).await?), orlop)
    }

    fn beside(server: Server, orlop: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("orlop-programs-").tempdir()?;
        let kubectl = Kubectl::new(&server.kubeconfig())?;
        let flags = vec!["--secure-port=0".to_owned()];
        Ok(Self { kubectl, folder, orlop: orlop.to_owned(), flags, audit: None, programs: Vec::new(), server })
    }

    /// The authority behind the server's certificate.
    fn authority(&self) -> Result<PathBuf> {
        match &self.server {
            Server::Embedded(server) => Ok(server.authority()),
            Server::Real(plane) => Ok(plane.authority()),
        }
    }

    /// Starts our programs, with more flags for the controllers, and waits for the nodes.
    pub(crate) fn ours(&mut self, more: &[&str], count: usize) -> Result<()> {
        self.controllers(more)?;
        self.start("scheduler", &["scheduler", "--leader-elect=false", "--secure-port=0"])?;
        self.hollow_nodes(count)
    }

    /// Starts all our programs, those of virtual machines as well.
    fn machines(&mut self) -> Result<()> {
        self.ours(&[], 2)?;
        self.start("virt-handler", &["virt-handler", "--hollow", "--count", "2"])?;
        self.virt_controller()?;
        let schedulable = "--for=jsonpath={.metadata.labels.kubevirt\\.io/schedulable}=true";
        self.kubectl.ok(&["wait", schedulable, "node/hollow-0", "node/hollow-1", WAIT]).map(drop)
    }

    /// Starts the controllers of virtual machines, anew if they run.
    pub(crate) fn virt_controller(&mut self) -> Result<()> {
        self.end("virt-controller");
        self.start("virt-controller", &["virt-controller", "--leader-elect=false", "--secure-port=0"])
    }

    /// Starts our controllers anew, with more flags.
    pub(crate) fn controllers(&mut self, more: &[&str]) -> Result<()> {
        self.end("controller-manager");
        let known = self.flags.clone();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        self.start("controller-manager", &[&["controller-manager", "--leader-elect=false"], &known[..], more].concat())
    }

    /// Starts hollow nodes and waits until pods may run there.
    pub(crate) fn hollow_nodes(&mut self, count: usize) -> Result<()> {
        self.start("node", &["node", "--hollow", "--count", &count.to_string()])?;
        for index in 0..count {
            let node = format!("node/hollow-{index}");
            self.kubectl.ok(&["wait", "--for=create", &node, WAIT])?;
            self.kubectl.ok(&["wait", "--for=condition=Ready", &node, WAIT])?;
        }
        Ok(())
    }

    /// Starts a program of ours.
    pub(crate) fn start(&mut self, name: &str, arguments: &[&str]) -> Result<()> {
        let program = self.orlop.clone();
        self.start_program(name, &program, arguments)
    }

    /// Starts a program beside the server; it gets the kubeconfig.
    pub(crate) fn start_program(&mut self, name: &str, program: &Path, arguments: &[&str]) -> Result<()> {
        let mut command = background(program, self.folder.path(), name)?;
        command.args(arguments).arg("--kubeconfig").arg(self.server.kubeconfig());
        let process = command.spawn().with_context(|| format!("start {}", program.display()))?;
        self.programs.push((name.to_owned(), Ended(process)));
        Ok(())
    }

    /// Kills a program, if it runs.
    pub(crate) fn end(&mut self, name: &str) {
        self.programs.retain(|(known, _)| known != name);
    }

    fn run(&mut self, checks: &[(&'static str, Check)]) -> Result<()> {
        let outcomes: Vec<Outcome> = checks.iter().map(|(name, check)| (*name, check(self))).collect();
        all(outcomes).with_context(|| self.logs())
    }

    /// The ends of all logs.
    pub(crate) fn logs(&self) -> String {
        let mut text = String::new();
        for (name, _) in &self.programs {
            let log = std::fs::read_to_string(self.folder.path().join(format!("{name}.log"))).unwrap_or_default();
            let lines: Vec<String> = log.lines().map(|line| line.chars().take(LINE_LENGTH).collect()).collect();
            let end = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
            text.push_str(&format!("the log of {name} ends with\n{end}\n"));
        }
        text
    }
}

impl Server {
    fn kubeconfig(&self) -> PathBuf {
        match self {
            Self::Embedded(server) => server.kubeconfig(),
            Self::Real(plane) => plane.kubeconfig(),
        }
    }
}
