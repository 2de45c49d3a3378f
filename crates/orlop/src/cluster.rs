//! What subcommands that speak to an API server share: how to reach it, and the clock.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use jiff::Timestamp;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// How to reach the API server.
#[derive(clap::Args)]
#[group(id = "cluster")]
pub(crate) struct Cluster {
    /// The kubeconfig to use; without it, the usual places are looked at, then the pod's own account.
    #[arg(long, value_name = "FILE", env = "ORLOP_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
}

impl Cluster {
    /// A client with this name in its requests.
    pub(crate) async fn client(&self, agent: &str) -> anyhow::Result<Client> {
        let mut config = match &self.kubeconfig {
            Some(path) => {
                let file = Kubeconfig::read_from(path).with_context(|| format!("read {}", path.display()))?;
                Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                    .await
                    .context("use the kubeconfig")?
            }
            None => Config::infer().await.context("find an API server")?,
        };
        let agent = format!("orlop/{} ({agent})", env!("CARGO_PKG_VERSION"));
        config.headers.push((http::header::USER_AGENT, agent.parse().context("name the client")?));
        Client::try_from(config).context("make a client")
    }
}

/// The machine's clock.
#[expect(clippy::disallowed_methods, reason = "a binary is where the machine's clock comes in")]
pub(crate) fn clock() -> Arc<dyn Fn() -> Timestamp + Send + Sync> {
    Arc::new(Timestamp::now)
}
