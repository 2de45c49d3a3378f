//! Replica sets of instances and pools of VMs: scaled by kubectl, and refused where they could never be kept.

use anyhow::Result;
use serde_json::{Value, json};

use super::machines::{apply, guest, machine};
use super::{Check, Cluster, WAIT};
use crate::clients::kubectl::{Kubectl, has};

/// On a server that checks virtual machines.
pub(super) const CHECKS: &[(&str, Check)] = &[
    ("sets_and_pools_are_scaled_by_kubectl", scaled),
    ("sets_and_pools_that_could_not_be_kept_are_refused_by_field", refused),
];

fn set(labels: &Value) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": { "name": "set" },
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": { "app": "set" } }, "spec": guest() },
        },
    })
}

fn pool(labels: &Value) -> Value {
    let template = json!({ "metadata": { "labels": { "app": "farm" } }, "spec": machine("farm", "Always")["spec"] });
    json!({
        "apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool",
        "metadata": { "name": "farm" },
        "spec": { "replicas": 1, "selector": { "matchLabels": labels }, "virtualMachineTemplate": template },
    })
}

fn scaled(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    apply(kubectl, &set(&json!({ "app": "set" })))?;
    apply(kubectl, &pool(&json!({ "app": "farm" })))?;
    for (what, instances) in [("vmirs/set", "app=set"), ("vmpool/farm", "app=farm")] {
        ready(kubectl, what, 1)?;
        kubectl.ok(&["scale", what, "--replicas=3"])?;
        ready(kubectl, what, 3)?;
        let changed = kubectl.refused(&["scale", what, "--current-replicas=1", "--replicas=2"], "")?;
        has(&changed, "Expected replicas to be 1, was 3")?;
        kubectl.ok(&["scale", what, "--current-replicas=3", "--replicas=1"])?;
        ready(kubectl, what, 1)?;
        let negative = "{\"spec\":{\"replicas\":-1}}";
        let refused = kubectl.refused(&["patch", what, "--subresource=scale", "--type=merge", "-p", negative], "")?;
        has(&refused, "spec.replicas")?;
        kubectl.ok(&["scale", what, "--replicas=0"])?;
        let kind = if what.starts_with("vmirs") { "vmi" } else { "vm" };
        kubectl.until(&["get", kind, "-l", instances, "-o", "name"], str::is_empty)?;
        kubectl.ok(&["delete", what])?;
    }
    Ok(())
}

fn ready(kubectl: &Kubectl, what: &str, count: usize) -> Result<()> {
    kubectl.ok(&["wait", &format!("--for=jsonpath={{.status.readyReplicas}}={count}"), what, WAIT]).map(drop)
}

fn refused(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    let mut bad_set = set(&json!({ "app": "set" }));
    bad_set["spec"]["template"]["spec"]["volumes"][0]["name"] = json!("other");
    let mut bad_pool = pool(&json!({ "app": "farm" }));
    bad_pool["spec"]["virtualMachineTemplate"]["spec"]["runStrategy"] = json!("Sometimes");
    let negative = |mut object: Value| {
        object["spec"]["replicas"] = json!(-1);
        object
    };
    // The path, and what to do.
    for (object, path, remedy) in [
        (set(&json!({})), "spec.selector", "select labels of the template"),
        (pool(&json!({})), "spec.selector", "select labels of the template"),
        (set(&json!({ "app": "other" })), "spec.selector", "use the same labels in both"),
        (pool(&json!({ "app": "other" })), "spec.selector", "use the same labels in both"),
        (negative(set(&json!({ "app": "set" }))), "spec.replicas", "use 0 or more"),
        (negative(pool(&json!({ "app": "farm" }))), "spec.replicas", "use 0 or more"),
        (bad_set, "spec.template.spec.domain.devices.disks[0].name", "root"),
        (bad_pool, "spec.virtualMachineTemplate.spec.runStrategy", "use one of"),
    ] {
        let told = kubectl.refused(&["create", "-f", "-"], &object.to_string())?;
        has(&told, path)?;
        has(&told, remedy)?;
    }
    Ok(())
}
