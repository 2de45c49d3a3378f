//! `orlop container-disk`: shares an image's files with virt-handler from inside the image's container.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use virt_handler::container_disk;

/// Share the files of this container's image with virt-handler.
#[derive(clap::Args)]
#[group(id = "container_disk")]
pub(crate) struct Arguments {
    /// Copy this program to PATH, so that containers of other images can run it, and exit.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["no_op", "copy_path"])]
    install: Option<PathBuf>,
    /// Exit at once. Used to pull the image.
    #[arg(long, conflicts_with = "copy_path")]
    no_op: bool,
    /// Path of the socket to listen on, without its suffix.
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
            runtime.block_on(container_disk::run(path)).context("share the image")
        }
        (None, false, None) => bail!("one of --copy-path, --no-op or --install is required"),
    }
}
