//! How the programs of a node run beside a control plane: with a client of their own, until a signal asks for their end.

use std::time::Duration;

use anyhow::{Context as _, bail};
use manager::caches::Caches;
use manager::clients::Clients;
use manager::context::{Chance, Context};
use manager::events::Recorder;
use manager::queue::QueueMetrics;
use manager::rate::Limit;
use manager::stopping::Stopping;
use tokio::time::timeout;

use crate::cluster::{Cluster, clock};
use crate::controller_program::stop_signal;
use crate::process_memory;

/// How long a program may take to end, once it is asked to.
const FAREWELL: Duration = Duration::from_secs(5);

/// Runs a program, which is made from its context; its events are a component's.
pub(crate) fn run<R: Future<Output = ()>>(
    cluster: &Cluster,
    name: &str,
    component: &str,
    program: impl FnOnce(&Context) -> R,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(async {
        let unlimited = Limit { qps: 0.0, burst: 0 };
        let clients = Clients::of_server(cluster.config().await?, name, unlimited, false);
        let client = clients.privileged(component).context("make a client")?;
        let (recorder, writer) = Recorder::new(client.clone(), component, clock());
        let chance = Chance::of_the_machine();
        let caches = Caches::new(client.clone(), chance.clone());
        let (queues, stopping) = (QueueMetrics::default(), Stopping::default());
        let asked = stopping.clone();
        let context = Context { client, caches: caches.clone(), recorder, now: clock(), queues, chance, stopping };
        let signal = stop_signal()?;
        let mut program = std::pin::pin!(program(&context));
        let forgotten = caches.clone();
        let run = process_memory::during(&forgotten, async {
            tokio::select! {
                biased;
                () = signal => {}
                () = &mut program => bail!("{name} has ended"),
            }
            asked.ask();
            // Who waits for a server that is gone is ended all the same.
            drop(timeout(FAREWELL, &mut program).await);
            Ok(())
        });
        tokio::select! {
            biased;
            ended = run => ended,
            () = caches.run() => bail!("the watches have ended"),
            () = writer => bail!("the writer of events has ended"),
        }
    })
}
