//! What many virtual machines cost the control plane: they are created one after the other, on hollow nodes with hollow
//! handlers, and watches tell when each runs.

mod objects;
mod times;

use std::time::Duration;

use anyhow::{Context as _, Result};
use http::Method;
use kube::Client;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, sleep_until};

use crate::controllers::hollow;
use crate::controllers::load::{each, namespace, send};
use crate::controllers::plane::Plane;
use crate::controllers::process::Usage;
use crate::controllers::program::{Subject, Whose};
use crate::controllers::requests::Requests;

pub use objects::Kind;
pub(crate) use times::Times;

/// What comes.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Virtual machines.
    pub vms: usize,
    /// Hollow nodes.
    pub nodes: usize,
    /// Between two creations.
    pub gap: Duration,
    /// What is created.
    pub kind: Kind,
    /// How long the control plane is looked at in the end, when there is nothing to do.
    pub rest: Duration,
}

/// What came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// From the first creation until all run and are ready.
    pub seconds: f64,
    /// From an instance's creation to its phase Running.
    pub vmi: Waits,
    /// From a VM's creation until it says that it runs and is ready; none if there are only instances.
    pub vm: Option<Waits>,
    /// What virt-controller took, with all that is in its process.
    pub usage: Usage,
    /// CPU of a server that is a process of its own, with its store.
    pub server_cpu_seconds: f64,
    /// Of all programs, without the creations of the load.
    pub requests: Requests,
    /// Of virt-controller alone.
    pub own_requests: Requests,
    /// Of all programs while there was nothing to do, signs of life included.
    pub requests_at_rest: Requests,
}

/// How long something took, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waits {
    /// Of one in two.
    pub p50_ms: f64,
    /// Of the slowest in twenty.
    pub p95_ms: f64,
}

/// Nobody writes for so long: then all is done.
const QUIET: Duration = Duration::from_secs(3);
/// Runs before the load comes: then all programs do.
const CANARY: &str = "canary";

/// Runs one load on a server that has had none.
///
/// # Errors
/// When something does not start, or virtual machines do not run.
pub async fn measure(plane: &Plane, load: Load, whose: Whose) -> Result<Measured> {
    let client = plane.client().await?;
    objects::definitions(&client).await?;
    namespace(&client).await?;
    // They stay as long as the load.
    let _nodes = hollow::nodes(plane, &client, load.nodes).await?;
    let _handlers = hollow::handlers(plane, &client, load.nodes).await?;
    let _scheduler = Subject::Scheduler.start(Whose::Inside, plane).await?;
    let controller = Subject::VirtController.start(whose, plane).await?;
    let mut times = Times::start(&client);
    send(&client, Method::POST, load.kind.path(), Some(&load.kind.object(CANARY))).await?;
    times.all(1, load.kind).await.context("the controllers do not start")?;
    times.forget();

    let before = Requests::at_rest(&client, QUIET).await?;
    let own_before = controller.requests().await?;
    let (usage, server, start) = (controller.usage(), plane.cpu_seconds(), Instant::now());
    tokio::try_join!(create(&client, load), times.all(load.vms, load.kind))?;
    let seconds = start.elapsed().as_secs_f64();
    // What follows the last change is part of it.
    let after = Requests::at_rest(&client, QUIET).await?;
    let (taken, own_after) = (controller.usage() - usage, controller.requests().await?);
    let server_cpu_seconds = plane.cpu_seconds() - server;
    sleep(load.rest).await;
    let requests_at_rest = Requests::so_far(&client).await?.since(&after);
    Ok(Measured {
        seconds,
        vmi: times.instances(),
        vm: (load.kind == Kind::Vm).then(|| times.machines()),
        usage: taken,
        server_cpu_seconds,
        requests: after.since(&before).of_work().without(load.kind.creation(), load.vms),
        own_requests: own_after.since(&own_before).of_work(),
        requests_at_rest,
    })
}

pub(crate) async fn create(client: &Client, load: Load) -> Result<()> {
    let client = client.clone();
    let start = Instant::now();
    each(load.vms, move |number| {
        let client = client.clone();
        async move {
            sleep_until(start + load.gap * u32::try_from(number)?).await;
            let object = load.kind.object(&format!("vm{number}"));
            send(&client, Method::POST, load.kind.path(), Some(&object)).await
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::NAMESPACE;

    #[test]
    fn the_namespace_is_the_one_of_the_load() {
        for kind in [Kind::Vm, Kind::Vmi] {
            assert!(kind.path().contains(&format!("/{NAMESPACE}/")));
        }
    }
}
