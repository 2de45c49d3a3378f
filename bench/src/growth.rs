//! What many virtual machines cost each program of the control plane: every part a process of its own on our own API server,
//! nodes and guests hollow, all VMs created at once. Each load has a control plane of its own.

mod parts;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use http::Method;
use kube::Client;
use tokio::time::{Instant, sleep, timeout};

use crate::controllers::load::{ask, namespace, send};
use crate::controllers::process::Usage;
use crate::controllers::requests::Requests;
use crate::controllers::{PATIENCE, hollow};
use crate::density::{Kind, Load, Times, create};
use parts::Plane;

pub use parts::{Controllers, Part};

/// Nobody writes for so long: then all is done.
const QUIET: Duration = Duration::from_secs(3);
/// Between two looks at what is about to come.
const LOOK: Duration = Duration::from_millis(50);
/// Runs before the load comes: then all programs do.
const CANARY: &str = "canary";

/// What one part took.
pub struct Cost {
    /// Which part.
    pub part: Part,
    /// CPU of the load, and its memory: at rest after it, and at most.
    pub usage: Usage,
    /// Resident memory before the load.
    pub empty_mib: f64,
    /// Its own count of requests; none of those that have no pages.
    pub requests: Option<Requests>,
}

/// What one load took.
pub struct Growth {
    /// From the first creation until all run and are ready.
    pub seconds: f64,
    /// Of each part.
    pub costs: Vec<Cost>,
    /// All requests that the server had, without the creations of the load.
    pub requests: Requests,
}

/// Creates so many VMs at once on so many nodes, and looks at every part once all is done and so long after.
///
/// # Errors
/// When a program does not start, or VMs do not run.
pub async fn measure(
    orlop: &Path,
    controllers: &Controllers,
    vms: usize,
    nodes: usize,
    rest: Duration,
) -> Result<Growth> {
    let plane = Plane::start(orlop, controllers, nodes).await?;
    let client = parts::client(&plane.kubeconfig()).await?;
    namespace(&client).await?;
    devices(&client, nodes).await?;
    let mut times = Times::start(&client);
    send(&client, Method::POST, Kind::Vm.path(), Some(&Kind::Vm.object(CANARY))).await?;
    times.all(1, Kind::Vm).await.context("the controllers do not start")?;
    times.forget();

    let before = Requests::at_rest(&client, QUIET).await?;
    let earlier = plane.look().await?;
    let (load, start) = (Load { vms, nodes, gap: Duration::ZERO, kind: Kind::Vm, rest }, Instant::now());
    tokio::try_join!(create(&client, load), times.all(vms, Kind::Vm))?;
    let seconds = start.elapsed().as_secs_f64();
    // What follows the last change is part of it, and what is given back to the machine when all is done.
    let after = Requests::at_rest(&client, QUIET).await?;
    sleep(rest).await;
    let costs = plane.look().await?.into_iter().zip(earlier).map(|(now, then)| Cost {
        part: now.part,
        usage: Usage { resident_mib: now.usage.resident_mib, own_mib: now.usage.own_mib, ..now.usage - then.usage },
        empty_mib: then.usage.resident_mib,
        requests: now.requests.zip(then.requests).map(|(now, then)| now.since(&then).of_work()),
    });
    let requests = after.since(&before).of_work().without(Kind::Vm.creation(), vms);
    Ok(Growth { seconds, costs: costs.collect(), requests })
}

/// Until the handlers have given each node its devices.
async fn devices(client: &Client, nodes: usize) -> Result<()> {
    let all = async {
        for number in 0..nodes {
            let path = format!("/api/v1/nodes/{}", hollow::name(number));
            while !ask(client, Method::GET, &path, None)
                .await
                .is_ok_and(|node| node.contains("devices.kubevirt.io/kvm"))
            {
                sleep(LOOK).await;
            }
        }
    };
    timeout(PATIENCE, all).await.context("the nodes have no devices")
}
