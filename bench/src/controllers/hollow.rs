//! Hollow nodes and their handlers beside a load.

use std::time::Duration;

use anyhow::{Context as _, Result};
use http::Method;
use kube::Client;
use manager::caches::Caches;
use manager::context::{Chance, Context};
use manager::events::Recorder;
use manager::queue::QueueMetrics;
use manager::stopping::Stopping;
use node::hollow::HollowNodes;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use virt_handler::hollow::HollowHandlers;

use super::PATIENCE;
use super::load::ask;
use super::plane::Plane;
use super::program::clock;

/// Between two looks at a node that is about to come.
const LOOK: Duration = Duration::from_millis(20);

/// The name of a node.
#[must_use]
pub fn name(number: usize) -> String {
    format!("hollow-{number}")
}

/// Registers so many hollow nodes. What is returned keeps them running.
///
/// # Errors
/// When they do not come.
pub async fn nodes(plane: &Plane, client: &Client, count: usize) -> Result<JoinSet<()>> {
    let (context, mut tasks) = simulation(plane, "bench-nodes", "kubelet").await?;
    let nodes = HollowNodes::new(&context, (0..count).map(name), node::hollow::Behaviour::default());
    run(&mut tasks, context, async move { nodes.run().await });
    until(client, count, "metadata").await.context("the nodes are not registered")?;
    Ok(tasks)
}

/// Starts the handlers of so many hollow nodes. What is returned keeps them running.
///
/// # Errors
/// When the nodes do not get their devices.
pub async fn handlers(plane: &Plane, client: &Client, count: usize) -> Result<JoinSet<()>> {
    let (context, mut tasks) = simulation(plane, "bench-handlers", "virt-handler").await?;
    let handlers = HollowHandlers::new(&context, (0..count).map(name), virt_handler::hollow::Behaviour::default());
    run(&mut tasks, context, async move { handlers.run().await });
    until(client, count, "devices.kubevirt.io/kvm").await.context("the nodes have no devices")?;
    Ok(tasks)
}

async fn simulation(plane: &Plane, program: &str, component: &str) -> Result<(Context, JoinSet<()>)> {
    let client = plane.clients(program).await?.privileged("hollow")?;
    let (recorder, writer) = Recorder::new(client.clone(), component, clock());
    let chance = Chance::of_the_machine();
    let caches = Caches::new(client.clone(), chance.clone());
    let (queues, stopping) = (QueueMetrics::default(), Stopping::default());
    let mut tasks = JoinSet::new();
    tasks.spawn(writer);
    Ok((Context { client, caches, recorder, now: clock(), queues, chance, stopping }, tasks))
}

/// Runs a simulation, which has said what it reads, and then its watches.
fn run(tasks: &mut JoinSet<()>, context: Context, simulation: impl Future<Output = ()> + Send + 'static) {
    tasks.spawn(simulation);
    tasks.spawn(async move { context.caches.run().await });
}

/// Until each node has a word in it.
async fn until(client: &Client, count: usize, word: &str) -> Result<()> {
    let all = async {
        for number in 0..count {
            let path = format!("/api/v1/nodes/{}", name(number));
            while !ask(client, Method::GET, &path, None).await.is_ok_and(|node| node.contains(word)) {
                sleep(LOOK).await;
            }
        }
    };
    Ok(timeout(PATIENCE, all).await?)
}
