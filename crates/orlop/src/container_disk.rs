//! `orlop container-disk`: offers an image's files to virt-handler from inside the image's container.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use virt_handler::container_disk;

/// Offer the files of this container's image to virt-handler.
#[derive(clap::Args)]
#[group(id = "container_disk")]
pub(crate) struct Arguments {
    /// Copy this program to a path, where containers of other images can run it, and end.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["no_op", "copy_path"])]
    install: Option<PathBuf>,
    /// End at once: the image is here, which is all that was asked for.
    #[arg(long, conflicts_with = "copy_path")]
    no_op: bool,
    /// Where to be found, without the ending of the socket.
    #[arg(long, value_name = "PATH")]
    copy_path: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { install, no_op, copy_path } = arguments;
    match (install, no_op, copy_path) {
        (Some(path), ..) => {
            let program = std::env::current_exe().context("find this program")?;
            container_disk::install(&program, path).context("install")
        }
        (None, true, _) => Ok(()),
        (None, false, Some(path)) => {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
            runtime.block_on(container_disk::run(path)).context("offer the image")
        }
        (None, false, None) => bail!("say --copy-path, --no-op or --install"),
    }
}
