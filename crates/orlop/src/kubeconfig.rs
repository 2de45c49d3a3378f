//! `orlop kubeconfig`: access to the API of this machine for a user who is not root.

use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, bail};
use virt_server::OPERATORS;

use crate::cluster::from_file;
use crate::target::{Data, kubeconfig};

/// Print a kubeconfig that gives a user full rights over VMs and none over the machine itself.
///
/// Needs root, and `orlop up` must have run before: `sudo orlop kubeconfig --for $USER > ~/.kube/orlop`.
#[derive(clap::Args)]
#[group(id = "kubeconfig")]
pub(crate) struct Arguments {
    /// Name of the user, for the API server and its logs.
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
        bail!("--for {user:?}: a user name may only contain letters, digits and . _ @ -");
    }
    let data = data.folder()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    let address = runtime.block_on(address(&data))?;
    let text = apiserver::serve::kubeconfig_for(&data, address, user, OPERATORS).context("sign a certificate")?;
    write!(out, "{text}").context("write to standard output")
}

/// Where the server of this directory is reached, as its own kubeconfig says.
async fn address(data: &Path) -> anyhow::Result<std::net::SocketAddr> {
    let path = kubeconfig(data);
    let config = from_file(&path, None).await.context("this needs root, and `orlop up` must have run here before")?;
    let authority = config.cluster_url.authority().context("the kubeconfig has no server")?;
    authority.as_str().parse().with_context(|| format!("{}: {authority}", path.display()))
}
