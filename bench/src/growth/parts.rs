//! The programs of a control plane, each a process.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use e2e::embedded::Embedded;
use http::Method;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use tempfile::TempDir;

use crate::controllers::load::send;
use crate::controllers::process::{Running, Usage};
use crate::controllers::requests::Requests;

/// Where KubeVirt is installed.
const INSTALLED: &str = "kubevirt";

/// A program of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// `orlop apiserver`, with its store.
    ApiServer,
    /// Ours, or KubeVirt's.
    VirtController,
    /// `orlop controller-manager`.
    ControllerManager,
    /// `orlop scheduler`.
    Scheduler,
    /// `orlop node --hollow`.
    Node,
    /// `orlop virt-handler --hollow`.
    Handler,
}

impl Part {
    /// As the table has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ApiServer => "apiserver",
            Self::VirtController => "virt-controller",
            Self::ControllerManager => "controller-manager",
            Self::Scheduler => "scheduler",
            Self::Node => "node",
            Self::Handler => "virt-handler",
        }
    }

    fn arguments(self, nodes: usize) -> Vec<String> {
        let is_node = matches!(self, Self::Node | Self::Handler);
        let more = if is_node { vec!["--hollow".to_owned(), format!("--count={nodes}")] } else { Vec::new() };
        std::iter::once(self.name().to_owned()).chain(more).collect()
    }
}

/// Whose virt-controller it is.
pub enum Controllers {
    /// Ours.
    Ours,
    /// KubeVirt's, by its program.
    Theirs(PathBuf),
}

/// A part as it is at one moment.
pub(super) struct Look {
    pub(super) part: Part,
    pub(super) usage: Usage,
    pub(super) requests: Option<Requests>,
}

struct Process {
    part: Part,
    running: Running,
    /// Where it shows what it counts, if it does.
    port: Option<u16>,
}

/// A whole control plane; it ends when dropped.
pub(super) struct Plane {
    // Dropped in this order: those who ask before the one who answers.
    processes: Vec<Process>,
    server: Embedded,
    _folder: TempDir,
}

impl Plane {
    pub(super) async fn start(orlop: &Path, controllers: &Controllers, nodes: usize) -> Result<Self> {
        let server = Embedded::with_virtual_machines(orlop).await?;
        if let Controllers::Theirs(_) = controllers {
            prepare(&server.kubeconfig()).await.context("prepare for KubeVirt's virt-controller")?;
        }
        let folder = tempfile::Builder::new().prefix("orlop-growth-").tempdir()?;
        let kubeconfig = format!("--kubeconfig={}", server.kubeconfig().display());
        let mut processes = Vec::new();
        for part in [Part::Node, Part::ControllerManager, Part::Scheduler, Part::VirtController, Part::Handler] {
            let log = folder.path().join(part.name());
            let (program, arguments, port) = match (part, controllers) {
                (Part::VirtController, Controllers::Theirs(program)) => {
                    let port = testkit::ports::free();
                    (Path::new("/usr/bin/env"), theirs(program, port), Some(port))
                }
                (Part::Node | Part::Handler, _) => (orlop, part.arguments(nodes), None),
                _ => {
                    let port = testkit::ports::free();
                    (orlop, [part.arguments(nodes), pages(port)].concat(), Some(port))
                }
            };
            let arguments = [arguments, vec![kubeconfig.clone()]].concat();
            let running = Running::start(program, &arguments, &log)?;
            processes.push(Process { part, running, port });
        }
        Ok(Self { processes, server, _folder: folder })
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.server.kubeconfig()
    }

    /// How each is now.
    pub(super) async fn look(&self) -> Result<Vec<Look>> {
        let usage = Usage::of(self.server.process());
        let mut all = vec![Look { part: Part::ApiServer, usage, requests: None }];
        for Process { part, running, port } in &self.processes {
            let requests = match port {
                Some(port) => Some(asked(*port).await.with_context(|| format!("ask the {}", part.name()))?),
                None => None,
            };
            all.push(Look { part: *part, usage: running.usage(), requests });
        }
        Ok(all)
    }
}

/// Flags of a program that leads at once, and shows everybody on this machine what it counts.
fn pages(port: u16) -> Vec<String> {
    let flags = ["--leader-elect=false", "--bind-address=127.0.0.1", "--authorization-always-allow-paths=/metrics"];
    flags.iter().map(|flag| (*flag).to_owned()).chain([format!("--secure-port={port}")]).collect()
}

/// The same of KubeVirt's, which is told its namespace by its environment. It elects a leader, and its limit of requests is its own.
fn theirs(program: &Path, port: u16) -> Vec<String> {
    let flags = ["--launcher-image=orlop", "--exporter-image=orlop", "--listen=127.0.0.1"];
    let program = [format!("NAMESPACE={INSTALLED}"), program.display().to_string(), format!("--port={port}")];
    program.into_iter().chain(flags.map(str::to_owned)).collect()
}

/// What KubeVirt's waits for: its namespace, the KubeVirt object, and a kind of CDI's that it expects where there are data volumes.
async fn prepare(kubeconfig: &Path) -> Result<()> {
    let client = client(kubeconfig).await?;
    let namespace = json!({ "metadata": { "name": INSTALLED } });
    send(&client, Method::POST, "/api/v1/namespaces", Some(&namespace)).await?;
    let object =
        json!({ "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": { "name": "kubevirt" }, "spec": {} });
    let objects = format!("/apis/kubevirt.io/v1/namespaces/{INSTALLED}/kubevirts");
    send(&client, Method::POST, &objects, Some(&object)).await?;
    let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    let definition = json!({
        "metadata": { "name": "cdis.cdi.kubevirt.io" },
        "spec": {
            "group": "cdi.kubevirt.io",
            "scope": "Cluster",
            "names": { "plural": "cdis", "kind": "CDI" },
            "versions": [{ "name": "v1beta1", "served": true, "storage": true, "schema": schema }],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    send(&client, Method::POST, definitions, Some(&definition)).await
}

pub(super) async fn client(kubeconfig: &Path) -> Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

async fn asked(port: u16) -> Result<Requests> {
    let mut config = Config::new(format!("https://127.0.0.1:{port}").parse()?);
    // Its certificate is made for this run.
    config.accept_invalid_certs = true;
    let request = http::Request::get("/metrics").body(Vec::new())?;
    Ok(Requests::of_program(&Client::try_from(config)?.request_text(request).await?))
}
