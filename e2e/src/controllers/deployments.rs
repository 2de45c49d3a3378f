//! What users do with deployments.

use anyhow::{Result, ensure};

use super::{Check, Cluster, WAIT};
use crate::clients::kubectl::{Kubectl, has};

/// The checks in the order they run; most go on where the one before ended.
pub(super) const CHECKS: &[(&str, Check)] = &[
    ("create_brings_up_the_replicas", create),
    ("set_image_rolls_out_and_undo_goes_back", image),
    ("pause_holds_a_change_back_until_resume", pause),
    ("scale_up_and_down", scale),
    ("restart_replaces_the_pods", restart),
    ("describe_shows_the_events_that_users_know", describe),
    ("delete_in_the_background_takes_all", background),
    ("delete_in_the_foreground_waits_for_all", foreground),
    ("delete_may_leave_orphans", orphan),
];

fn rolled_out(kubectl: &Kubectl, name: &str) -> Result<()> {
    kubectl.ok(&["rollout", "status", &format!("deployment/{name}"), WAIT]).map(drop)
}

/// What a path holds in objects of a label.
fn labelled(kubectl: &Kubectl, kind: &str, app: &str, path: &str) -> Result<String> {
    let path = format!("jsonpath={{.items[*]{path}}}");
    kubectl.ok(&["get", kind, "-l", &format!("app={app}"), "-o", &path])
}

/// The images of the pods that are not ending.
fn images(kubectl: &Kubectl, app: &str) -> Result<Vec<String>> {
    let printed = labelled(kubectl, "pods", app, ".spec.containers[0].image")?;
    Ok(printed.split_whitespace().map(str::to_owned).collect())
}

/// Waits until so many pods are there: those that end may take a moment longer than the rollout.
fn pods(kubectl: &Kubectl, app: &str, count: i32) -> Result<()> {
    let path = format!("--for=jsonpath={{.status.replicas}}={count}");
    kubectl.ok(&["wait", &path, "deployment", app, WAIT])?;
    kubectl.ok(&["wait", &format!("--for=jsonpath={{.status.readyReplicas}}={count}"), "deployment", app, WAIT])?;
    let count = usize::try_from(count)?;
    let names = ["get", "pods", "-l", &format!("app={app}"), "-o", "name"];
    kubectl.until(&names, |names| names.lines().count() == count).map(drop)
}

fn make(kubectl: &Kubectl, name: &str, replicas: i32) -> Result<()> {
    kubectl.ok(&["create", "deployment", name, "--image=i:1", &format!("--replicas={replicas}")])?;
    rolled_out(kubectl, name)
}

fn create(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    make(kubectl, "web", 3)?;
    pods(kubectl, "web", 3)?;
    let mut nodes: Vec<String> =
        labelled(kubectl, "pods", "web", ".spec.nodeName")?.split_whitespace().map(str::to_owned).collect();
    nodes.sort_unstable();
    nodes.dedup();
    ensure!(nodes.len() > 1, "all are on {nodes:?}");
    has(&kubectl.ok(&["get", "deployment", "web"])?, "3/3     3            3")
}

fn image(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    kubectl.ok(&["set", "image", "deployment/web", "i=i:2"])?;
    rolled_out(kubectl, "web")?;
    pods(kubectl, "web", 3)?;
    ensure!(images(kubectl, "web")? == ["i:2"; 3], "the new image is not everywhere");
    let history = kubectl.ok(&["rollout", "history", "deployment/web"])?;
    let revisions: Vec<&str> = history.lines().skip(2).filter_map(|line| line.split_whitespace().next()).collect();
    ensure!(revisions == ["1", "2"], "{history}");
    has(&kubectl.ok(&["rollout", "history", "deployment/web", "--revision=1"])?, "i:1")?;
    kubectl.ok(&["rollout", "undo", "deployment/web"])?;
    rolled_out(kubectl, "web")?;
    pods(kubectl, "web", 3)?;
    ensure!(images(kubectl, "web")? == ["i:1"; 3], "the first image is not back");
    let history = kubectl.ok(&["rollout", "history", "deployment/web"])?;
    let revisions: Vec<&str> = history.lines().skip(2).filter_map(|line| line.split_whitespace().next()).collect();
    ensure!(revisions == ["2", "3"], "{history}");
    Ok(())
}

fn pause(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    kubectl.ok(&["rollout", "pause", "deployment/web"])?;
    let paused = "--for=jsonpath={.status.conditions[?(@.type==\"Progressing\")].reason}=DeploymentPaused";
    kubectl.ok(&["wait", paused, "deployment", "web", WAIT])?;
    kubectl.ok(&["set", "image", "deployment/web", "i=i:3"])?;
    let generation = kubectl.ok(&["get", "deployment", "web", "-o", "jsonpath={.metadata.generation}"])?;
    let seen = format!("--for=jsonpath={{.status.observedGeneration}}={generation}");
    kubectl.ok(&["wait", &seen, "deployment", "web", WAIT])?;
    ensure!(images(kubectl, "web")? == ["i:1"; 3], "it goes on though it is paused");
    kubectl.ok(&["rollout", "resume", "deployment/web"])?;
    rolled_out(kubectl, "web")?;
    pods(kubectl, "web", 3)?;
    ensure!(images(kubectl, "web")? == ["i:3"; 3], "it does not go on");
    Ok(())
}

fn scale(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    for count in [5, 1] {
        kubectl.ok(&["scale", "deployment/web", &format!("--replicas={count}")])?;
        rolled_out(kubectl, "web")?;
        pods(kubectl, "web", count)?;
    }
    Ok(())
}

fn restart(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    let before = labelled(kubectl, "pods", "web", ".metadata.name")?;
    kubectl.ok(&["rollout", "restart", "deployment/web"])?;
    rolled_out(kubectl, "web")?;
    pods(kubectl, "web", 1)?;
    let after = labelled(kubectl, "pods", "web", ".metadata.name")?;
    ensure!(before != after, "{before} is still there");
    Ok(())
}

/// Waits for an event: it is written a moment after what it tells of.
fn happened(kubectl: &Kubectl, kind: &str, reason: &str) -> Result<()> {
    let selector = format!("--field-selector=involvedObject.kind={kind},reason={reason}");
    kubectl.until(&["get", "events", &selector, "-o", "name"], |names| !names.is_empty()).map(drop)
}

fn describe(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    for (kind, reason) in
        [("Deployment", "ScalingReplicaSet"), ("ReplicaSet", "SuccessfulCreate"), ("Pod", "Scheduled")]
    {
        happened(kubectl, kind, reason)?;
    }
    let shown = kubectl.ok(&["describe", "deployment", "web"])?;
    has(&shown, "ScalingReplicaSet")?;
    has(&shown, "deployment-controller")?;
    has(&shown, "NewReplicaSetAvailable")?;
    // Several objects at once are described without events.
    let pod = labelled(kubectl, "pods", "web", ".metadata.name")?;
    let set = labelled(kubectl, "pods", "web", ".metadata.ownerReferences[0].name")?;
    let shown = kubectl.ok(&["describe", "rs", set.trim()])?;
    has(&shown, "SuccessfulCreate")?;
    has(&shown, "Controlled By:  Deployment/web")?;
    let shown = kubectl.ok(&["describe", "pod", pod.trim()])?;
    has(&shown, "Successfully assigned default/web-")?;
    has(&shown, "Controlled By:  ReplicaSet/web-")
}

/// Waits until nothing of a label is left.
fn gone(kubectl: &Kubectl, app: &str) -> Result<()> {
    kubectl.ok(&["wait", "--for=delete", "rs,pods", "-l", &format!("app={app}"), WAIT]).map(drop)
}

fn background(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    kubectl.ok(&["delete", "deployment", "web", "--cascade=background"])?;
    gone(kubectl, "web")
}

fn foreground(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    make(kubectl, "front", 3)?;
    kubectl.ok(&["delete", "deployment", "front", "--cascade=foreground", "--wait", WAIT])?;
    // No waiting here: that is what the foreground means.
    let left = labelled(kubectl, "rs,pods", "front", ".metadata.name")?;
    ensure!(left.is_empty(), "left after its owner: {left}");
    Ok(())
}

fn orphan(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    make(kubectl, "left", 2)?;
    kubectl.ok(&["delete", "deployment", "left", "--cascade=orphan", WAIT])?;
    let owners = labelled(kubectl, "rs", "left", ".metadata.ownerReferences")?;
    let sets = labelled(kubectl, "rs", "left", ".metadata.name")?;
    ensure!(owners.is_empty() && sets.split_whitespace().count() == 1, "{sets} {owners}");
    kubectl.ok(&["delete", "rs", "-l", "app=left", "--cascade=orphan", WAIT])?;
    let owners = labelled(kubectl, "pods", "left", ".metadata.ownerReferences")?;
    let pods = labelled(kubectl, "pods", "left", ".metadata.name")?;
    ensure!(owners.is_empty() && pods.split_whitespace().count() == 2, "{pods} {owners}");
    kubectl.ok(&["delete", "pods", "-l", "app=left", WAIT]).map(drop)
}
