//! Programs of controllers, as `orlop` starts them, and Kubernetes' own.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use kube_controllers::garbage;
use kube_controllers::scheduler::run::{DEFAULT_SCHEDULER, Scheduler};
use kube_controllers::table;
use manager::clients::Clients;
use manager::context::{Chance, Now, Started};
use manager::descriptor::{Descriptor, Selection};
use manager::frame::Program;
use manager::gates::Gates;
use manager::serving::Pages;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::plane::{LIMIT, Plane};
use super::process::{Running, Usage};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Subject {
    /// The scheduler.
    Scheduler,
    /// The garbage collector.
    Garbage,
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
    /// In this process.
    Inside(JoinHandle<Result<()>>),
    /// As a process, with its folder.
    Apart(Running, TempDir),
}

impl Under {
    /// What it has taken; in this process, with all that is in it.
    #[must_use]
    pub fn usage(&self) -> Usage {
        match self {
            Self::Inside(_) => Usage::own(),
            Self::Apart(running, _) => running.usage(),
        }
    }
}

impl Drop for Under {
    fn drop(&mut self) {
        if let Self::Inside(task) = self {
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
        }
    }

    /// Starts a program on a server.
    ///
    /// # Errors
    /// When it cannot be started, or is to be a process on a server that is not.
    pub async fn start(self, whose: Whose, plane: &Plane) -> Result<Under> {
        if whose == Whose::Inside {
            let clients = plane.clients(self.peer()).await?;
            return Ok(Under::Inside(tokio::spawn(self.run(clients))));
        }
        let kubeconfig = plane.kubeconfig().context("a process needs a server with a kubeconfig")?;
        let folder = tempfile::Builder::new().prefix("orlop-bench-").tempdir()?;
        let running = match whose {
            Whose::Theirs => self.start_peer(&kubeconfig, folder.path())?,
            _ => Self::start_ours(&kubeconfig, folder.path())?,
        };
        Ok(Under::Apart(running, folder))
    }

    /// Runs ours for ever.
    ///
    /// # Errors
    /// When it ends.
    pub async fn run(self, clients: Clients) -> Result<()> {
        match self {
            Self::Scheduler => run("kube-scheduler", SCHEDULER, (), Selection::all(), clients).await,
            Self::Garbage => {
                let selection = Selection::parse([garbage::NAME], table::DESCRIPTORS)?;
                let settings = table::Settings::default();
                run("kube-controller-manager", table::DESCRIPTORS, settings, selection, clients).await
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
            format!("--secure-port={}", e2e::control_plane::free_port()?),
            format!("--cert-dir={}", folder.display()),
            "--authentication-skip-lookup=true".to_owned(),
        ];
        if self == Self::Garbage {
            arguments.push(format!("--controllers={}", garbage::NAME));
        }
        Running::start(&e2e::peer(self.peer())?, &arguments, &folder.join("log"))
    }

    /// This program again, told to serve.
    fn start_ours(kubeconfig: &Path, folder: &Path) -> Result<Running> {
        let program = std::env::current_exe().context("find this program")?;
        let arguments = ["--serve".to_owned(), kubeconfig.display().to_string()];
        Running::start(&program, &arguments, &folder.join("log"))
    }
}

async fn run<S: Send + Sync + 'static>(
    name: &'static str,
    descriptors: &'static [Descriptor<S>],
    settings: S,
    selection: Selection,
    clients: Clients,
) -> Result<()> {
    let program = Program {
        name,
        descriptors,
        settings,
        selection,
        gates: Gates::default(),
        clients,
        leading: None,
        start_interval: Duration::ZERO,
        pages: Pages::new(name),
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
