//! The API server that a run is on.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use apiserver::{ApiServer, Identity, Place};
use e2e::control_plane::ControlPlane;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use manager::clients::{Clients, RequestMetrics};
use manager::rate::Limit;
use tempfile::TempDir;
use tower::Layer as _;

use super::process::Usage;

/// What no program reaches: the limit is not what is measured.
pub const LIMIT: u32 = 5000;

/// Where our own server keeps its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Store {
    /// Nowhere else.
    Memory,
    /// In a directory, each write on disk before it is answered.
    Folder,
}

/// An API server.
pub enum Plane {
    /// Ours, in this process.
    Embedded {
        /// The server.
        server: ApiServer,
        /// Where it keeps its objects, if not in memory.
        folder: Option<TempDir>,
    },
    /// A real kube-apiserver with its etcd.
    Real(Box<ControlPlane>),
    /// Somebody else's, by its kubeconfig.
    Given(PathBuf),
}

impl Plane {
    /// Ours.
    ///
    /// # Errors
    /// When its store cannot be opened.
    pub async fn embedded(store: Store) -> Result<Self> {
        let folder = match store {
            Store::Memory => None,
            Store::Folder => Some(tempfile::Builder::new().prefix("orlop-bench-").tempdir()?),
        };
        let place = folder.as_ref().map_or(Place::Memory, |folder| Place::Folder(folder.path().to_owned()));
        let server = ApiServer::builder(place).start().await.context("open the store")?;
        Ok(Self::Embedded { server, folder })
    }

    /// A real one, without the admission plugins that need controllers.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn real() -> Result<Self> {
        Ok(Self::Real(Box::new(ControlPlane::start_plain()?)))
    }

    /// Clients for a program in this process.
    ///
    /// # Errors
    /// When the server's kubeconfig is bad.
    pub async fn clients(&self, program: &str) -> Result<Clients> {
        match self {
            Self::Embedded { server, .. } => {
                let (server, requests) = (server.clone(), RequestMetrics::default());
                let counting = requests.clone();
                let make = move |_: manager::clients::Asker<'_>, fence: &manager::fence::Fence| {
                    let counted = counting.layer(server.for_identity(Identity::admin()));
                    Client::new(fence.layer(counted), "default")
                };
                Ok(Clients::given(make).counted(requests))
            }
            Self::Real(plane) => clients(&plane.kubeconfig(), program).await,
            Self::Given(kubeconfig) => clients(kubeconfig, program).await,
        }
    }

    /// The client of the load.
    ///
    /// # Errors
    /// As for [`Self::clients`].
    pub async fn client(&self) -> Result<Client> {
        match self {
            Self::Embedded { server, .. } => Ok(Client::new(server.for_identity(Identity::admin()), "default")),
            Self::Real(plane) => Ok(Client::try_from(config(&plane.kubeconfig()).await?)?),
            Self::Given(kubeconfig) => Ok(Client::try_from(config(kubeconfig).await?)?),
        }
    }

    /// The kubeconfig of one that is not in this process.
    #[must_use]
    pub fn kubeconfig(&self) -> Option<PathBuf> {
        match self {
            Self::Embedded { .. } => None,
            Self::Real(plane) => Some(plane.kubeconfig()),
            Self::Given(kubeconfig) => Some(kubeconfig.clone()),
        }
    }

    /// CPU that a real one has taken, with its store; ours is part of this process, and of somebody else's nothing is known.
    #[must_use]
    pub fn cpu_seconds(&self) -> f64 {
        match self {
            Self::Embedded { .. } | Self::Given(_) => 0.0,
            Self::Real(plane) => plane.processes().iter().map(|pid| Usage::of(*pid).cpu_seconds).sum(),
        }
    }
}

/// Clients of a server on the network, for one program.
///
/// # Errors
/// When the kubeconfig is bad.
pub async fn clients(kubeconfig: &std::path::Path, program: &str) -> Result<Clients> {
    let limit = Limit { qps: f64::from(LIMIT), burst: LIMIT };
    Ok(Clients::of_server(config(kubeconfig).await?, program, limit, false))
}

async fn config(kubeconfig: &std::path::Path) -> Result<Config> {
    let file = Kubeconfig::read_from(kubeconfig).with_context(|| format!("read {}", kubeconfig.display()))?;
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.context("use the kubeconfig")
}
