//! `orlop node`: nodes for a control plane; so far hollow ones, which only pretend to run pods.

use std::time::Duration;

use anyhow::{Context as _, bail};
use manager::caches::Caches;
use manager::queue::{Backoff, Queue, QueueMetrics};
use node::hollow::{Behaviour, HollowNodes};

use crate::cluster::{Cluster, clock};

/// Be a node, or many.
#[derive(clap::Args)]
#[group(id = "node")]
pub(crate) struct Arguments {
    #[command(flatten)]
    cluster: Cluster,
    /// Pretend to run pods. Nodes that really run them do not exist yet.
    #[arg(long, env = "ORLOP_NODE_HOLLOW")]
    hollow: bool,
    /// How many nodes.
    #[arg(long, default_value_t = 1, env = "ORLOP_NODE_COUNT")]
    count: u32,
    /// What the nodes are called, before their number.
    #[arg(long, default_value = "hollow", env = "ORLOP_NODE_PREFIX")]
    prefix: String,
    /// Milliseconds from the binding of a pod until it runs.
    #[arg(long, default_value_t = 0, env = "ORLOP_NODE_START_DELAY_MS")]
    start_delay_ms: u64,
    /// Milliseconds from the deletion of a pod to its end, if its grace period is not shorter.
    #[arg(long, default_value_t = 0, env = "ORLOP_NODE_STOP_DELAY_MS")]
    stop_delay_ms: u64,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { cluster, hollow, count, prefix, start_delay_ms, stop_delay_ms } = arguments;
    if !hollow {
        bail!("only hollow nodes exist yet; use --hollow");
    }
    let behaviour = Behaviour {
        start_delay: Duration::from_millis(*start_delay_ms),
        stop_delay: Duration::from_millis(*stop_delay_ms),
        ..Behaviour::default()
    };
    let names: Vec<String> = (0..*count).map(|index| format!("{prefix}-{index}")).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(async {
        let client = cluster.client("node").await?;
        let caches = Caches::new(client.clone());
        let queue = Queue::new("hollow-nodes", Backoff::default(), &QueueMetrics::default());
        let nodes = HollowNodes::new(client, names, behaviour, caches.of(&[]), queue, clock());
        tokio::select! {
            biased;
            result = nodes.run() => result.context("register the nodes"),
            () = caches.run() => bail!("the watch of pods has ended"),
        }
    })
}
