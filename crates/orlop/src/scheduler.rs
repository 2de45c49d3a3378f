//! `orlop scheduler`: binds pods to nodes.

use anyhow::{Context as _, bail};
use kube_controllers::replicaset::controller::POD_INDEXES;
use kube_controllers::scheduler::run::{DEFAULT_SCHEDULER, Scheduler};
use manager::caches::Caches;
use manager::events::Recorder;

use crate::cluster::{Cluster, clock};

/// Bind pods to nodes.
#[derive(clap::Args)]
#[group(id = "scheduler")]
pub(crate) struct Arguments {
    #[command(flatten)]
    cluster: Cluster,
    /// The name by which pods ask for this scheduler.
    #[arg(long, default_value = DEFAULT_SCHEDULER, env = "ORLOP_SCHEDULER_NAME")]
    scheduler_name: String,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { cluster, scheduler_name } = arguments;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(async {
        let client = cluster.client("scheduler").await?;
        let caches = Caches::new(client.clone());
        let (recorder, writer) = Recorder::new(client.clone(), "default-scheduler", clock());
        let (pods, nodes, namespaces) = (caches.of(&POD_INDEXES), caches.of(&[]), caches.of(&[]));
        let scheduler = Scheduler::new(client, scheduler_name, pods, nodes, namespaces, recorder, clock());
        tokio::select! {
            biased;
            () = scheduler.run() => Ok(()),
            () = writer => bail!("the writer of events has ended"),
            () = caches.run() => bail!("the watches have ended"),
        }
    })
}
