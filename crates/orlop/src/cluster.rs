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
            Some(path) => from_file(path, None).await,
            None => Config::infer().await.context("find an API server"),
        }
    }
}

/// A server as a kubeconfig names it: that of a context, or of the current one.
pub(crate) async fn from_file(path: &Path, context: Option<&str>) -> anyhow::Result<Config> {
    let file = Kubeconfig::read_from(path).with_context(|| format!("read {}", path.display()))?;
    of_kubeconfig(file, context).await
}

/// A server where kubectl looks for contexts: the files of $KUBECONFIG, or ~/.kube/config. Nowhere else.
pub(crate) async fn from_usual_files(context: &str) -> anyhow::Result<Config> {
    let file = Kubeconfig::read().context("read the kubeconfigs for --context")?;
    of_kubeconfig(file, Some(context)).await
}

async fn of_kubeconfig(file: Kubeconfig, context: Option<&str>) -> anyhow::Result<Config> {
    if let Some(context) = context {
        let known: Vec<&str> = file.contexts.iter().map(|one| one.name.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let is_there = file.contexts.iter().any(|one| one.name == context);
        anyhow::ensure!(is_there, "the kubeconfig has no context {context:?}; its contexts: {known}");
    }
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    Config::from_custom_kubeconfig(file, &options).await.context("use the kubeconfig")
}

/// The machine's clock.
#[expect(clippy::disallowed_methods, reason = "a binary is where the machine's clock comes in")]
pub(crate) fn clock() -> Now {
    Arc::new(Timestamp::now)
}
