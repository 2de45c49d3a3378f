//! `orlop kubeconfig`: a way to the API of this machine for somebody who is not root on it.

use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, bail};

use crate::cluster::from_file;
use crate::target::{Data, kubeconfig};

/// The group whose members run VMs on this machine; what they may do is in `roles.rs`.
pub(crate) const OPERATORS: &str = "orlop.dev:operators";

/// Print a kubeconfig for a user of this machine: full rights over VMs, and none over the machine itself.
///
/// It needs root, and an `orlop up` that has run before: `sudo orlop kubeconfig --for $USER > ~/.kube/orlop`.
#[derive(clap::Args)]
#[group(id = "kubeconfig")]
pub(crate) struct Arguments {
    /// The user's name, as the API server and its logs will know it.
    #[arg(long = "for", value_name = "NAME", env = "ORLOP_KUBECONFIG_FOR")]
    user: String,
    #[command(flatten)]
    data: Data,
}

pub(crate) fn run(arguments: &Arguments, out: &mut impl Write) -> anyhow::Result<()> {
    let Arguments { user, data } = arguments;
    // What Kubernetes' own users are called, and what would break the file.
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._@-".contains(letter);
    if user.is_empty() || user.starts_with('-') || !user.chars().all(plain) {
        bail!("--for {user:?}: letters, digits and . _ @ - make a name");
    }
    let data = data.folder()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    let address = runtime.block_on(address(&data))?;
    let text = apiserver::serve::kubeconfig_for(&data, address, user, OPERATORS).context("sign a certificate")?;
    write!(out, "{text}").context("write to standard output")
}

/// Where the server of this folder is reached, as its own kubeconfig says.
async fn address(data: &Path) -> anyhow::Result<std::net::SocketAddr> {
    let path = kubeconfig(data);
    let config = from_file(&path).await.context("`orlop up` must have run here before, and only root may ask")?;
    let authority = config.cluster_url.authority().context("the kubeconfig names no server")?;
    authority.as_str().parse().with_context(|| format!("{}: {authority}", path.display()))
}
