//! The nodes and pods of the load.

use anyhow::Result;
use http::Method;
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::controllers::hollow;
use crate::controllers::load::send;
use crate::controllers::plane::Plane;

use super::Load;

/// What pods ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Shape {
    /// Some CPU and memory.
    Plain,
    /// Better not on a node with any other of them: each pod cares for all others.
    Preferred,
    /// Not on a node with another of its group; a group is half as large as the cluster.
    Required,
    /// Every second node is tainted, and every second pod tolerates that.
    Taints,
}

impl Shape {
    /// As the table has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Preferred => "preferred",
            Self::Required => "required",
            Self::Taints => "taints",
        }
    }
}

const HOST: &str = "kubernetes.io/hostname";
const TAINT: &str = "bench";

/// Registers hollow nodes. What is returned keeps them running; without pods to run it is empty.
pub(super) async fn nodes(plane: &Plane, client: &Client, load: Load) -> Result<JoinSet<()>> {
    let mut tasks = hollow::nodes(plane, client, load.nodes).await?;
    if load.shape == Shape::Taints {
        let patch = json!({ "spec": { "taints": [{ "key": TAINT, "value": "x", "effect": "NoSchedule" }] } });
        for number in (0..load.nodes).step_by(2) {
            send(client, Method::PATCH, &format!("/api/v1/nodes/{}", hollow::name(number)), Some(&patch)).await?;
        }
    }
    if !load.running {
        tasks.shutdown().await;
    }
    Ok(tasks)
}

pub(super) fn pod(name: &str, number: usize, load: Load) -> Value {
    let group = match load.shape {
        Shape::Required => format!("g{}", number / (load.nodes / 2).max(1)),
        _ => "all".to_owned(),
    };
    let others = json!({ "topologyKey": HOST, "labelSelector": { "matchLabels": { "app": group } } });
    let affinity = match load.shape {
        Shape::Plain | Shape::Taints => Value::Null,
        Shape::Preferred => json!({ "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
            { "weight": 100, "podAffinityTerm": others },
        ] } }),
        Shape::Required => json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [others] } }),
    };
    let tolerates = load.shape == Shape::Taints && number.is_multiple_of(2);
    let tolerations = tolerates.then(|| json!([{ "key": TAINT, "operator": "Exists" }]));
    json!({
        "metadata": { "name": name, "labels": { "app": group } },
        "spec": {
            "affinity": affinity,
            "tolerations": tolerations,
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main",
                "image": "registry.k8s.io/pause:3.10",
                "resources": { "requests": { "cpu": "10m", "memory": "32Mi" } },
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_must_be_apart_has_room() {
        let load = Load { pods: 100, nodes: 10, shape: Shape::Required, backlog: false, rate: 0, running: false };
        let groups: Vec<_> =
            (0..10).map(|number| pod("p", number, load)["metadata"]["labels"]["app"].clone()).collect();
        assert!(groups[..5].iter().all(|group| *group == "g0") && groups[5..].iter().all(|group| *group == "g1"));
    }
}
