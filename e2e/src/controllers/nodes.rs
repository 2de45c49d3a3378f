//! Nodes: kept free, emptied, tainted, lost.

use anyhow::{Context, Result, ensure};

use super::{Check, Cluster, WAIT};
use crate::clients::kubectl::{Kubectl, has};

/// The checks in the order they run, on two nodes; the last one loses them.
pub(super) const CHECKS: &[(&str, Check)] = &[
    ("cordon_keeps_new_pods_away", cordon),
    ("drain_moves_pods", drain),
    ("a_taint_without_execution_evicts", taint),
    ("drain_takes_no_more_than_a_budget_allows", budget),
    ("nodes_whose_process_ended_are_lost", lost),
];

/// The nodes of the pods of the deployment, once all run.
fn places(kubectl: &Kubectl) -> Result<Vec<String>> {
    kubectl.ok(&["rollout", "status", "deployment/web", WAIT])?;
    let printed = kubectl.ok(&["get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].spec.nodeName}"])?;
    let mut nodes: Vec<String> = printed.split_whitespace().map(str::to_owned).collect();
    nodes.sort_unstable();
    Ok(nodes)
}

/// Waits until no pod of an application is on a node. Not by `kubectl wait`, which asks for pods by their names: those of
/// our replica sets come again.
pub(super) fn empty(kubectl: &Kubectl, app: &str, node: &str) -> Result<()> {
    let there = format!("--field-selector=spec.nodeName={node}");
    kubectl.until(&["get", "pods", "-l", &format!("app={app}"), &there, "-o", "name"], str::is_empty).map(drop)
}

fn cordon(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    kubectl.ok(&["cordon", "hollow-0"])?;
    kubectl.ok(&["create", "deployment", "web", "--image=i:1", "--replicas=2"])?;
    let nodes = places(kubectl)?;
    ensure!(nodes == ["hollow-1", "hollow-1"], "they run on {nodes:?}");
    kubectl.ok(&["uncordon", "hollow-0"])?;
    kubectl.ok(&["scale", "deployment/web", "--replicas=4"])?;
    let nodes = places(kubectl)?;
    ensure!(nodes.contains(&"hollow-0".to_owned()), "they run on {nodes:?}");
    Ok(())
}

fn drain(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    // One that nobody owns goes as well: that is what --force is for.
    kubectl.ok(&["run", "lone", "--image=i:1", "--overrides={\"spec\": {\"nodeName\": \"hollow-0\"}}"])?;
    kubectl.ok(&["drain", "hollow-0", "--force", "--ignore-daemonsets", WAIT])?;
    empty(kubectl, "web", "hollow-0")?;
    let nodes = places(kubectl)?;
    ensure!(nodes == ["hollow-1"; 4], "they run on {nodes:?}");
    let left = kubectl.ok(&["get", "pod", "lone", "--ignore-not-found", "-o", "name"])?;
    ensure!(left.is_empty(), "{left} is still there");
    kubectl.ok(&["uncordon", "hollow-0"]).map(drop)
}

fn taint(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    kubectl.ok(&["taint", "nodes", "hollow-1", "k=v:NoExecute"])?;
    empty(kubectl, "web", "hollow-1")?;
    let nodes = places(kubectl)?;
    ensure!(nodes == ["hollow-0"; 4], "they run on {nodes:?}");
    kubectl.ok(&["taint", "nodes", "hollow-1", "k:NoExecute-"]).map(drop)
}

/// Nobody goes whom a budget protects, and kubectl says why; once the budget allows one at a time, all move.
fn budget(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    kubectl.ok(&["create", "poddisruptionbudget", "web", "--selector=app=web", "--min-available=100%"])?;
    kubectl.ok(&["wait", "--for=jsonpath={.status.expectedPods}=4", "pdb/web", WAIT])?;
    let refused = kubectl.refused(&["drain", "hollow-0", "--ignore-daemonsets", "--timeout=2s"], "")?;
    has(&refused, "would violate the pod's disruption budget")?;
    let nodes = places(kubectl)?;
    ensure!(nodes == ["hollow-0"; 4], "they run on {nodes:?}");
    kubectl.ok(&["patch", "pdb", "web", "--type=merge", "-p", "{\"spec\":{\"minAvailable\":3}}"])?;
    kubectl.ok(&["drain", "hollow-0", "--ignore-daemonsets", WAIT])?;
    empty(kubectl, "web", "hollow-0")?;
    let nodes = places(kubectl)?;
    ensure!(nodes == ["hollow-1"; 4], "they run on {nodes:?}");
    kubectl.ok(&["delete", "pdb", "web"])?;
    kubectl.ok(&["uncordon", "hollow-0"]).map(drop)
}

/// A node that is there says so every ten seconds, so that a shorter patience is only for where none is left.
pub(super) fn lost(cluster: &mut Cluster) -> Result<()> {
    cluster.start("doomed", &["node", "--hollow", "--prefix=doomed"])?;
    cluster.controllers(&["--node-monitor-grace-period=12s", "--node-monitor-period=1s"])?;
    cluster.kubectl.ok(&["wait", "--for=create", "node/doomed-0", WAIT])?;
    cluster.kubectl.ok(&["wait", "--for=condition=Ready", "node/doomed-0", WAIT])?;
    cluster.end("doomed");
    unreachable(&cluster.kubectl, "node/doomed-0", &["NoSchedule", "NoExecute"])?;
    let ready = cluster.kubectl.ok(&["wait", "--for=condition=Ready", "node/hollow-0", "node/hollow-1", WAIT]);
    ready.context("the others are still there")?;
    // Where all nodes are lost, it may be the controllers that are: then no pod is evicted.
    cluster.end("node");
    cluster.controllers(&["--node-monitor-grace-period=4s", "--node-monitor-period=1s"])?;
    for node in ["node/hollow-0", "node/hollow-1"] {
        unreachable(&cluster.kubectl, node, &["NoSchedule"])?;
        // The one that is found lost first is not the last for a moment.
        cluster.kubectl.until(&["get", node, "-o", "jsonpath={.spec.taints[*].effect}"], |now| now == "NoSchedule")?;
    }
    Ok(())
}

/// Waits until a node is lost, and tainted so.
fn unreachable(kubectl: &Kubectl, node: &str, effects: &[&str]) -> Result<()> {
    kubectl.ok(&["wait", "--for=condition=Ready=Unknown", node, WAIT])?;
    for effect in effects {
        let filter = format!("?(@.effect==\"{effect}\")");
        let path = format!("--for=jsonpath={{.spec.taints[{filter}].key}}=node.kubernetes.io/unreachable");
        kubectl.ok(&["wait", &path, node, WAIT])?;
    }
    Ok(())
}
