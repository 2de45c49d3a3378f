//! What simulations of nodes share: their names, and how they run beside a control plane.

use anyhow::{Context as _, bail};
use manager::caches::Caches;
use manager::clients::Clients;
use manager::context::{Chance, Context};
use manager::events::Recorder;
use manager::queue::QueueMetrics;
use manager::rate::Limit;
use manager::stopping::Stopping;

use crate::cluster::{Cluster, clock};

/// The names of so many nodes: those of one prefix are the same in every simulation.
pub(crate) fn names(prefix: &str, count: u32) -> Vec<String> {
    (0..count).map(|index| format!("{prefix}-{index}")).collect()
}

/// Runs a simulation, which is made from its context, for ever; its events are a component's.
pub(crate) fn run<R: Future<Output = ()>>(
    cluster: &Cluster,
    program: &str,
    component: &str,
    simulation: impl FnOnce(&Context) -> R,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(async {
        let unlimited = Limit { qps: 0.0, burst: 0 };
        let clients = Clients::of_server(cluster.config().await?, program, unlimited, false);
        let client = clients.privileged("hollow").context("make a client")?;
        let (recorder, writer) = Recorder::new(client.clone(), component, clock());
        let chance = Chance::of_the_machine();
        let caches = Caches::new(client.clone(), chance.clone());
        let (queues, stopping) = (QueueMetrics::default(), Stopping::default());
        let context = Context { client, caches: caches.clone(), recorder, now: clock(), queues, chance, stopping };
        let simulation = simulation(&context);
        tokio::select! {
            biased;
            () = simulation => bail!("the simulation has ended"),
            () = caches.run() => bail!("the watches have ended"),
            () = writer => bail!("the writer of events has ended"),
        }
    })
}
