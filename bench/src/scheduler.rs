//! How fast pods are bound, from outside: pods are created, and a watch tells when each has its node.

mod objects;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use http::Method;
use kube::Client;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep_until};

use crate::controllers::load::{Versioned, Watch, each, namespace, send};
use crate::controllers::plane::Plane;
use crate::controllers::process::Usage;
use crate::controllers::program::{Subject, Whose};
use crate::controllers::requests::Requests;

pub use objects::Shape;

/// What is to be placed, and where.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub pods: usize,
    /// Hollow nodes.
    pub nodes: usize,
    /// What the pods ask for.
    pub shape: Shape,
    /// Whether all pods are there before the scheduler starts. If not, they come while it runs.
    pub backlog: bool,
    /// Pods that come per second while it runs; as fast as the server takes them if zero.
    pub rate: u32,
    /// Whether the nodes say that the pods run: one more write for each.
    pub running: bool,
}

/// What came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// From the first binding to the last.
    pub bindings_per_second: f64,
    /// From a pod's creation to its binding, in milliseconds.
    pub p50_ms: f64,
    /// The same, of the slowest in twenty.
    pub p95_ms: f64,
    /// What the scheduler took, with all that is in its process.
    pub usage: Usage,
    /// CPU of a server that is a process of its own, with its store.
    pub server_cpu_seconds: f64,
    /// Without the creation of the pods.
    pub requests: Requests,
}

/// A pod, as far as the watch reads it.
#[derive(Clone, Debug, Deserialize)]
struct Pod {
    metadata: Named,
    #[serde(default)]
    spec: Spec,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    name: String,
    resource_version: String,
}

impl Versioned for Pod {
    fn version(&self) -> &str {
        &self.metadata.resource_version
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    node_name: String,
}

const PODS: &str = "/api/v1/namespaces/bench/pods";
/// The request that each pod needs.
const BINDING: &str = "POST pods/binding";
/// Bound before the load comes: then the scheduler runs.
const CANARY: &str = "canary";

/// When each pod was first seen, and first seen with a node.
#[derive(Default)]
struct Times {
    created: BTreeMap<String, Instant>,
    bound: BTreeMap<String, Instant>,
}

/// Runs one load on a server that has had none.
///
/// # Errors
/// When something does not start, or pods stay without a node.
pub async fn measure(plane: &Plane, load: Load, whose: Whose) -> Result<Measured> {
    let client = plane.client().await?;
    namespace(&client).await?;
    // They stay as long as the load if pods are to run.
    let _nodes = objects::nodes(plane, &client, load).await?;
    let mut watch = Watch::start(&client, PODS, "application/json");
    let mut times = Times::default();
    let (before, usage, server);
    let scheduler = if load.backlog {
        create(&client, load).await?;
        (usage, server) = (Usage::own(), plane.cpu_seconds());
        before = Requests::so_far(&client).await?;
        Subject::Scheduler.start(whose, plane).await?
    } else {
        let scheduler = Subject::Scheduler.start(whose, plane).await?;
        let canary = objects::pod(CANARY, 0, Load { shape: Shape::Plain, ..load });
        send(&client, Method::POST, PODS, Some(&canary)).await?;
        times.follow(&mut watch, CANARY).await.context("the scheduler does not start")?;
        times = Times::default();
        before = Requests::answered(&client, &Requests::default(), BINDING, 1).await?;
        (usage, server) = (scheduler.usage(), plane.cpu_seconds());
        tokio::try_join!(create(&client, load), times.all(&mut watch, load.pods))?;
        scheduler
    };
    times.all(&mut watch, load.pods).await?;
    let taken = match whose {
        // A process that was started for this has taken all that it took for this.
        Whose::Ours | Whose::Theirs if load.backlog => scheduler.usage(),
        _ => scheduler.usage() - usage,
    };
    let requests = Requests::answered(&client, &before, BINDING, load.pods).await?;
    Ok(Measured {
        bindings_per_second: times.rate(),
        p50_ms: times.latency(50),
        p95_ms: times.latency(95),
        usage: taken,
        server_cpu_seconds: plane.cpu_seconds() - server,
        requests: if load.backlog { requests } else { requests.without("POST pods", load.pods) },
    })
}

async fn create(client: &Client, load: Load) -> Result<()> {
    let client = client.clone();
    let rate = if load.backlog { 0 } else { load.rate };
    let pause = Duration::from_secs(1).checked_div(rate).unwrap_or_default();
    let start = Instant::now();
    each(load.pods, move |number| {
        let client = client.clone();
        async move {
            sleep_until(start + pause * u32::try_from(number)?).await;
            let pod = objects::pod(&format!("p{number}"), number, load);
            send(&client, Method::POST, PODS, Some(&pod)).await
        }
    })
    .await
}

impl Times {
    /// Until all are bound.
    async fn all(&mut self, watch: &mut Watch<Pod>, pods: usize) -> Result<()> {
        while self.bound.len() < pods {
            self.next(watch).await.with_context(|| format!("{} of {pods} pods are bound", self.bound.len()))?;
        }
        Ok(())
    }

    /// Until this one is bound.
    async fn follow(&mut self, watch: &mut Watch<Pod>, name: &str) -> Result<()> {
        while !self.bound.contains_key(name) {
            self.next(watch).await?;
        }
        Ok(())
    }

    async fn next(&mut self, watch: &mut Watch<Pod>) -> Result<()> {
        let change = watch.next().await?;
        let name = change.object.metadata.name;
        self.created.entry(name.clone()).or_insert(change.at);
        if !change.object.spec.node_name.is_empty() {
            self.bound.entry(name).or_insert(change.at);
        }
        Ok(())
    }

    fn rate(&self) -> f64 {
        let (first, last) = (self.bound.values().min(), self.bound.values().max());
        let (Some(first), Some(last)) = (first, last) else { return 0.0 };
        #[expect(clippy::cast_precision_loss, reason = "counts are small")]
        let rate = self.bound.len() as f64 / (*last - *first).as_secs_f64().max(f64::EPSILON);
        rate
    }

    fn latency(&self, percentile: usize) -> f64 {
        let created = |name: &String| self.created.get(name).copied();
        let waits = self.bound.iter().filter_map(|(name, bound)| Some(bound.duration_since(created(name)?)));
        let mut waits: Vec<Duration> = waits.collect();
        waits.sort();
        let index = (waits.len() * percentile / 100).min(waits.len().saturating_sub(1));
        waits.get(index).copied().unwrap_or_default().as_secs_f64() * 1000.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::NAMESPACE;

    #[test]
    fn the_rate_and_the_waits_are_those_of_bindings() {
        let start = Instant::now();
        let mut times = Times::default();
        for number in 0_u32..=100 {
            let at = start + Duration::from_millis(10) * number;
            times.created.insert(number.to_string(), at);
            times.bound.insert(number.to_string(), at + Duration::from_millis(u64::from(number)));
        }
        assert!((times.latency(50) - 50.0).abs() < 0.1);
        assert!((times.latency(95) - 95.0).abs() < 0.1);
        assert!((times.rate() - 101.0 / 1.1).abs() < 0.1);
    }

    #[test]
    fn the_namespace_is_the_one_of_the_load() {
        assert!(PODS.contains(&format!("/{NAMESPACE}/")));
    }
}
