use json_patch::merge;
use k8s_openapi::api::apps::v1::DeploymentCondition;
use serde_json::Value;

use super::*;

mod conditions;
mod properties;
mod rules;
mod world;

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn template(image: &str) -> Value {
    json!({
        "metadata": { "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "web", "image": image }] },
    })
}

/// A deployment with a surge of 3, 2 missing at most and a deadline of ten minutes, with `changes` merged in.
#[expect(clippy::needless_pass_by_value, reason = "what is written where it is used needs no borrow")]
fn deployment(replicas: i32, image: &str, changes: Value) -> Deployment {
    let mut deployment = json!({
        "metadata": { "name": "web", "namespace": "shop", "uid": "u-web", "generation": 1 },
        "spec": {
            "replicas": replicas, "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10,
            "selector": { "matchLabels": { "app": "web" } },
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 3, "maxUnavailable": 2 } },
            "template": template(image),
        },
    });
    merge(&mut deployment, &changes);
    serde_json::from_value(deployment).unwrap()
}

/// A replica set of the deployment, all of whose pods but `missing` are available, with `changes` merged in.
#[expect(clippy::needless_pass_by_value, reason = "what is written where it is used needs no borrow")]
fn set(image: &str, revision: u32, size: i32, missing: i32, changes: Value) -> ReplicaSet {
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u-web", "controller": true,
    });
    let available = size - missing;
    let mut set = json!({
        "metadata": {
            "name": format!("web-{image}"), "namespace": "shop", "uid": format!("u-{image}"),
            "labels": { "app": "web" },
            "creationTimestamp": format!("2026-01-01T10:00:{revision:02}Z"), "ownerReferences": [owner],
            "annotations": { "deployment.kubernetes.io/revision": revision.to_string() },
        },
        "spec": {
            "replicas": size, "selector": { "matchLabels": { "app": "web" } }, "template": template(image),
        },
        "status": { "replicas": size, "readyReplicas": available, "availableReplicas": available },
    });
    merge(&mut set, &changes);
    serde_json::from_value(set).unwrap()
}

fn sized_for(desired: i32, most: i32) -> Value {
    json!({ "metadata": { "annotations": {
        "deployment.kubernetes.io/desired-replicas": desired.to_string(),
        "deployment.kubernetes.io/max-replicas": most.to_string(),
    } } })
}

/// As many pods as the status of `set` says it has.
fn pods_of(set: &ReplicaSet) -> Vec<Pod> {
    let status = set.status.clone().unwrap_or_default();
    let pod = |index: i32| {
        let ready = if index < status.ready_replicas.unwrap_or(0) { "True" } else { "False" };
        serde_json::from_value(json!({
            "metadata": { "name": format!("p{index}"), "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set.metadata.name, "uid": set.metadata.uid,
                "controller": true }] },
            "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": ready }] },
        }))
        .unwrap()
    };
    (0..status.replicas).map(pod).collect()
}

fn plan(deployment: &Deployment, sets: &[ReplicaSet]) -> Plan {
    plan_at(now(), deployment, sets)
}

fn plan_at(now: Timestamp, deployment: &Deployment, sets: &[ReplicaSet]) -> Plan {
    let pods: Vec<Pod> = sets.iter().flat_map(pods_of).collect();
    let seen = Observed {
        deployment,
        replica_sets: sets.iter().collect(),
        pods: pods.iter().collect(),
        taken_names: BTreeSet::new(),
    };
    decide(&seen, now).unwrap()
}

fn sizes(plan: &Plan) -> Vec<(&str, i32, i32)> {
    let resized = plan.update.iter().filter_map(|update| Some((update.target.name.as_str(), update.resize?)));
    resized.map(|(name, resize)| (name, resize.from, resize.to)).collect()
}

fn created_size(plan: &Plan) -> Option<i32> {
    plan.create.as_ref()?.spec.as_ref()?.replicas
}

fn condition(status: &DeploymentStatus, type_: &str) -> Option<DeploymentCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == type_).cloned()
}

fn progressing(plan: &Plan) -> (String, String) {
    let condition = plan.status.as_ref().and_then(|status| condition(status, "Progressing")).unwrap();
    (condition.status, condition.reason.unwrap_or_default())
}
