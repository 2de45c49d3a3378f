//! The flags of subcommands that use an API server: how to reach it; and the clock.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use jiff::Timestamp;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use manager::context::Now;

/// How to reach the API server.
#[derive(clap::Args)]
#[group(id = "cluster")]
pub(crate) struct Cluster {
    /// Kubeconfig to use. The default is $KUBECONFIG, then ~/.kube/config, then the service account of the pod.
    #[arg(long, value_name = "FILE", env = "ORLOP_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
}

impl Cluster {
    /// How it is reached.
    pub(crate) async fn config(&self) -> anyhow::Result<Config> {
        match &self.kubeconfig {
            Some(path) => from_file(path).await,
            None => Config::infer().await.context("find an API server"),
        }
    }
}

/// A server as a kubeconfig names it.
pub(crate) async fn from_file(path: &Path) -> anyhow::Result<Config> {
    let file = Kubeconfig::read_from(path).with_context(|| format!("read {}", path.display()))?;
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.context("use the kubeconfig")
}

/// The machine's clock.
#[expect(clippy::disallowed_methods, reason = "a binary is where the machine's clock comes in")]
pub(crate) fn clock() -> Now {
    Arc::new(Timestamp::now)
}
