//! `orlop virt-exportserver`: serves the volumes of an export from inside the exporter's pod.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Context as _;
use exporter::{Content, Export, Listening, Volume};
use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};

use crate::cluster::clock;

/// Serve the volumes of an export.
#[derive(clap::Args)]
#[group(id = "virt_exportserver")]
pub(crate) struct Arguments {
    /// Name of the export.
    #[arg(long, value_name = "NAME")]
    name: String,
    /// Address and port to listen on.
    #[arg(long, value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Directory with the certificate and its key: tls.crt and tls.key.
    #[arg(long, value_name = "PATH")]
    certificate: PathBuf,
    /// File with the token.
    #[arg(long, value_name = "PATH")]
    token: PathBuf,
    /// File with the manifests.
    #[arg(long, value_name = "PATH")]
    manifests: Option<PathBuf>,
    /// The disk of a VM: a block device, or a directory with a disk.img.
    #[arg(long, value_name = "NAME=PATH")]
    disk: Vec<Mount>,
    /// A directory with files.
    #[arg(long, value_name = "NAME=PATH")]
    files: Vec<Mount>,
    /// Time at which the server ends.
    #[arg(long, value_name = "TIME")]
    deadline: Timestamp,
}

/// A volume and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    name: String,
    path: PathBuf,
}

impl FromStr for Mount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('=').filter(|(name, path)| !name.is_empty() && !path.is_empty());
        let (name, path) = parts.ok_or_else(|| format!("{text:?} is not a valid volume; use NAME=PATH"))?;
        Ok(Self { name: name.to_owned(), path: path.into() })
    }
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the runtime")?;
    let ended = runtime.block_on(serve(arguments));
    // Whoever still reads is of no use any more.
    runtime.shutdown_background();
    ended
}

async fn serve(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments { name, listen, certificate, token, manifests, disk, files, deadline } = arguments;
    let of = |content| move |Mount { name, path }| Volume { name, path, content };
    let volumes = disk.into_iter().map(of(Content::Disk)).chain(files.into_iter().map(of(Content::Files)));
    let export = Export { name, volumes: volumes.collect(), token, manifests };
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let (chain, key) = (certificate.join("tls.crt"), certificate.join("tls.key"));
    let listening = Listening::on(listen, &chain, &key, export).await?;
    let left = std::time::Duration::try_from(deadline.duration_since((clock())())).unwrap_or_default();
    let stop = async {
        tokio::select! {
            biased;
            _ = terminate.recv() => tracing::info!("asked to end"),
            () = tokio::time::sleep(left) => tracing::info!("the time of the export is over"),
        }
    };
    listening.run(stop).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_read_and_mistakes_are_told() {
        let mount = |text: &str| text.parse::<Mount>();
        assert_eq!(mount("a.b=/c=d"), Ok(Mount { name: "a.b".to_owned(), path: "/c=d".into() }));
        for bad in ["", "a", "a=", "=/b"] {
            assert!(mount(bad).unwrap_err().contains("is not a valid volume"), "{bad}");
        }
    }
}
