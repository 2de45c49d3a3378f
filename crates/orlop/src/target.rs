//! What the client's verbs share: which server, which namespace.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use kube::{Api, Client, Config};

use crate::cluster::from_file;

/// Where `orlop up` keeps everything, unless it is told otherwise.
pub(crate) const DATA_DIR: &str = "/var/lib/orlop";

/// The folder of `orlop up`.
#[derive(clap::Args)]
#[group(id = "data")]
pub(crate) struct Data {
    /// Where everything of this machine is kept: objects, certificates, images, volumes, pods.
    #[arg(long, value_name = "DIR", default_value = DATA_DIR, env = "ORLOP_DATA_DIR")]
    pub(crate) data_dir: PathBuf,
}

impl Data {
    /// The folder, as a path that holds wherever a child of this process runs.
    pub(crate) fn folder(&self) -> anyhow::Result<PathBuf> {
        std::path::absolute(&self.data_dir).with_context(|| format!("--data-dir {}", self.data_dir.display()))
    }
}

/// The admin's kubeconfig in the folder of `orlop up`.
pub(crate) fn kubeconfig(data: &Path) -> PathBuf {
    data.join("kubeconfig")
}

/// The server and the namespace that a verb is for.
#[derive(clap::Args)]
#[group(id = "target")]
pub(crate) struct Target {
    #[command(flatten)]
    pub(crate) data: Data,
    /// The kubeconfig to use; without it $KUBECONFIG, then the one of `orlop up`, then the usual places.
    #[arg(long, value_name = "FILE", env = "ORLOP_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// The namespace; by default the one of the kubeconfig's context.
    #[arg(short, long, value_name = "NAME", env = "ORLOP_NAMESPACE")]
    namespace: Option<String>,
}

impl Target {
    /// A client of the server, with the namespace as its default.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        let own = kubeconfig(&self.data.data_dir);
        let file = match &self.kubeconfig {
            Some(path) => Some(path.clone()),
            None if std::env::var_os("KUBECONFIG").is_none() && own.exists() => Some(own),
            None => None,
        };
        let mut config = match file {
            Some(path) => from_file(&path).await?,
            None => Config::infer().await.context("find an API server; does `orlop up` run?")?,
        };
        if let Some(namespace) = &self.namespace {
            config.default_namespace.clone_from(namespace);
        }
        Client::try_from(config).context("make a client")
    }
}

/// A VM and its instance, as they are now.
pub(crate) async fn machine(
    client: &Client,
    name: &str,
) -> anyhow::Result<(Option<VirtualMachine>, Option<VirtualMachineInstance>)> {
    let vms: Api<VirtualMachine> = Api::default_namespaced(client.clone());
    let vmis: Api<VirtualMachineInstance> = Api::default_namespaced(client.clone());
    let vm = vms.get_opt(name).await.context("ask the API server")?;
    let vmi = vmis.get_opt(name).await.context("ask the API server")?;
    anyhow::ensure!(
        vm.is_some() || vmi.is_some(),
        "there is no VM {name:?} in namespace {}",
        client.default_namespace()
    );
    Ok((vm, vmi))
}
