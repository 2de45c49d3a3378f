//! `orlop apiserver`: the embedded API server on its own.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use apiserver::serve::Listening;
use apiserver::{ApiServer, Place};
use clap::Subcommand;
use manager::context::Chance;
use tokio::signal::unix::{SignalKind, signal};

use crate::audit::{self, Audit};
use crate::{descriptors, process_memory, quota};

/// Serve the Kubernetes API, with its data in a directory on this machine.
#[derive(clap::Args)]
#[group(id = "apiserver")]
#[command(args_conflicts_with_subcommands = false)]
pub(crate) struct Arguments {
    /// Directory for objects, certificates and the administrator's kubeconfig.
    #[arg(long, value_name = "DIR", env = "ORLOP_DATA_DIR")]
    data_dir: PathBuf,
    /// Address and port to listen on; port 0 chooses a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6443", env = "ORLOP_LISTEN")]
    listen: SocketAddr,
    /// Serve the kubevirt.io API, with its defaulting and validation.
    #[arg(long, env = "ORLOP_VIRTUAL_MACHINES")]
    virtual_machines: bool,
    #[command(flatten)]
    audit: audit::Arguments,
    #[command(flatten)]
    quota: quota::Arguments,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Copy all objects to a new file. The server may keep running. To restore the copy, put it into an empty data
    /// directory as `objects.sqlite`.
    Backup {
        /// Path of the copy; the file must not exist.
        file: PathBuf,
    },
}

pub(crate) fn run(arguments: Arguments, out: &mut impl Write) -> anyhow::Result<()> {
    let Arguments { data_dir, listen, virtual_machines, audit, quota, command } = arguments;
    if let Some(Command::Backup { file }) = command {
        return apiserver::backup(&data_dir, &file).context("back up the store");
    }
    descriptors::raise();
    let audit = audit.open()?;
    process_memory::share_arenas();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(serve(data_dir, listen, virtual_machines, quota, &audit, out))
}

async fn serve(
    data_dir: PathBuf,
    listen: SocketAddr,
    virtual_machines: bool,
    quota: quota::Arguments,
    audit: &Audit,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let builder = audit.of(ApiServer::builder(Place::Folder(data_dir.clone())));
    let server = match virtual_machines {
        true => virt_server::start(builder, virt_server::Settings::new(Chance::of_the_machine())?).await?,
        false => builder.start().await.context("open the store")?,
    };
    server.limit_store(quota.store_quota);
    let listening = Listening::on(listen, &data_dir, &server).await.context("serve the API")?;
    // Whoever started it waits for this line, or for the kubeconfig.
    writeln!(out, "serving on https://{}, kubeconfig {}", listening.address(), listening.kubeconfig().display())?;
    out.flush()?;
    let failed = server.failed();
    let mut reason = None;
    let stop = async {
        tokio::select! {
            biased;
            why = failed => reason = Some(why),
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    listening.run(server.clone(), stop).await;
    match reason {
        // What is on disk is known again only after it was opened again.
        Some(reason) => bail!("the store has failed: {reason}"),
        None => Ok(()),
    }
}
