//! Programs of controllers, as `orlop` starts them, and Kubernetes' own.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use jiff::Timestamp;
use kube::{Client, Config};
use kube_controllers::garbage;
use kube_controllers::scheduler::run::{DEFAULT_SCHEDULER, Scheduler};
use kube_controllers::table;
use manager::clients::{Clients, RequestMetrics};
use manager::context::{Chance, Now, Started};
use manager::descriptor::{Descriptor, Selection};
use manager::frame::Program;
use manager::gates::Gates;
use manager::serving::{CertificateSource, Pages, Serving};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use virt_controller::Launcher;

use super::plane::{LIMIT, Plane};
use super::process::{Running, Usage};
use super::requests::Requests;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Subject {
    /// The scheduler.
    Scheduler,
    /// The garbage collector.
    Garbage,
    /// The controllers of virtual machines.
    VirtController,
}

/// Whose program is measured, and where it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Ours, in this process.
    Inside,
    /// Ours, as a process.
    Ours,
    /// Kubernetes' own.
    Theirs,
}

/// A program that runs; it ends when dropped.
pub enum Under {
    /// In this process, with what it asks for.
    Inside(JoinHandle<Result<()>>, RequestMetrics),
    /// As a process, with its directory and the port of its pages, if it has any.
    Apart(Running, TempDir, Option<u16>),
}

impl Under {
    /// What it has taken; in this process, with all that is in it.
    #[must_use]
    pub fn usage(&self) -> Usage {
        match self {
            Self::Inside(..) => Usage::own(),
            Self::Apart(running, ..) => running.usage(),
        }
    }

    /// What it has asked for, by its own count.
    ///
    /// # Errors
    /// When it does not tell.
    pub async fn requests(&self) -> Result<Requests> {
        let text = match self {
            Self::Inside(_, requests) => {
                let (mut registry, mut text) = (Registry::default(), String::new());
                requests.register(&mut registry);
                encode(&mut text, &registry)?;
                text
            }
            Self::Apart(_, _, port) => {
                let port = port.context("it has no pages")?;
                let mut config = Config::new(format!("https://127.0.0.1:{port}").parse()?);
                // Its certificate is made for this run.
                config.accept_invalid_certs = true;
                Client::try_from(config)?.request_text(http::Request::get("/metrics").body(Vec::new())?).await?
            }
        };
        Ok(Requests::of_program(&text))
    }
}

impl Drop for Under {
    fn drop(&mut self) {
        if let Self::Inside(task, _) = self {
            task.abort();
        }
    }
}

const SCHEDULER: &[Descriptor<()>] = &[Descriptor::new("scheduler", &[], |context, ()| {
    let scheduler = Scheduler::new(context, DEFAULT_SCHEDULER);
    Ok(Started::new(scheduler.run()))
})];

impl Subject {
    /// Kubernetes' own program.
    #[must_use]
    pub fn peer(self) -> &'static str {
        match self {
            Self::Scheduler => "kube-scheduler",
            Self::Garbage => "kube-controller-manager",
            Self::VirtController => "virt-controller",
        }
    }

    /// Starts a program on a server.
    ///
    /// # Errors
    /// When it cannot be started, or is to be a process on a server that is not.
    pub async fn start(self, whose: Whose, plane: &Plane) -> Result<Under> {
        if whose == Whose::Inside {
            let clients = plane.clients(self.peer()).await?;
            let requests = clients.requests().clone();
            return Ok(Under::Inside(tokio::spawn(self.run(clients)), requests));
        }
        let kubeconfig = plane.kubeconfig().context("a process needs a server with a kubeconfig")?;
        let folder = tempfile::Builder::new().prefix("orlop-bench-").tempdir()?;
        let port = (self == Self::VirtController).then(testkit::ports::free);
        let running = match whose {
            Whose::Theirs => self.start_peer(&kubeconfig, folder.path())?,
            _ => Self::start_ours(&kubeconfig, folder.path(), port)?,
        };
        Ok(Under::Apart(running, folder, port))
    }

    /// Runs ours for ever.
    ///
    /// # Errors
    /// When it ends.
    pub async fn run(self, clients: Clients) -> Result<()> {
        self.run_with(clients, Pages::new(self.peer())).await
    }

    /// Runs ours for ever, and shows everybody on this machine what it counts.
    ///
    /// # Errors
    /// When it ends, or the port is taken.
    pub async fn serve(self, clients: Clients, port: u16) -> Result<()> {
        let pages = Pages::new(self.peer());
        let serving = Serving {
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            certificate: CertificateSource::Memory,
            client_ca: None,
            always_allow_paths: vec!["/metrics".to_owned()],
            reviews: None,
            now: clock(),
        };
        let listening = serving.bind(pages.clone()).await?;
        tokio::select! {
            biased;
            ended = self.run_with(clients, pages) => ended,
            () = listening.run(std::future::pending()) => bail!("the pages have ended"),
        }
    }

    async fn run_with(self, clients: Clients, pages: Pages) -> Result<()> {
        match self {
            Self::Scheduler => run("kube-scheduler", SCHEDULER, (), Selection::all(), clients, pages).await,
            Self::Garbage => {
                let selection = Selection::parse([garbage::NAME], table::DESCRIPTORS, &[])?;
                let settings = table::Settings::default();
                run("kube-controller-manager", table::DESCRIPTORS, settings, selection, clients, pages).await
            }
            Self::VirtController => {
                let settings = virt_controller::Settings::new(Launcher::new("orlop"));
                let descriptors = virt_controller::DESCRIPTORS;
                run("virt-controller", descriptors, settings, Selection::all(), clients, pages).await
            }
        }
    }

    fn start_peer(self, kubeconfig: &Path, folder: &Path) -> Result<Running> {
        let mut arguments = vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            "--leader-elect=false".to_owned(),
            format!("--kube-api-qps={LIMIT}"),
            format!("--kube-api-burst={LIMIT}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", testkit::ports::free()),
            format!("--cert-dir={}", folder.display()),
            "--authentication-skip-lookup=true".to_owned(),
        ];
        if self == Self::Garbage {
            arguments.push(format!("--controllers={}", garbage::NAME));
        }
        Running::start(&e2e::peer(self.peer())?, &arguments, &folder.join("log"))
    }

    /// This program again, told to serve.
    fn start_ours(kubeconfig: &Path, folder: &Path, port: Option<u16>) -> Result<Running> {
        let program = std::env::current_exe().context("find this program")?;
        let mut arguments = vec!["--serve".to_owned(), kubeconfig.display().to_string()];
        arguments.extend(port.map(|port| format!("--port={port}")));
        Running::start(&program, &arguments, &folder.join("log"))
    }
}

async fn run<S: Send + Sync + 'static>(
    name: &'static str,
    descriptors: &'static [Descriptor<S>],
    settings: S,
    selection: Selection,
    clients: Clients,
    pages: Pages,
) -> Result<()> {
    let program = Program {
        name,
        descriptors,
        settings,
        selection,
        gates: Gates::default(),
        clients,
        caches: None,
        leading: None,
        start_interval: Duration::ZERO,
        pages,
        now: clock(),
        chance: Chance::of_the_machine(),
    };
    program.run(std::future::pending()).await.context(name)
}

/// The machine's clock.
#[expect(clippy::disallowed_methods, reason = "a benchmark runs in real time")]
#[must_use]
pub fn clock() -> Now {
    Arc::new(Timestamp::now)
}
