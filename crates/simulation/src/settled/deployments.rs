//! What deployments must have come to.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};

use super::Wrong;
use crate::About;

pub(super) async fn check(client: &Client, wrong: &mut Wrong) -> Result<(), kube::Error> {
    deployments(client, wrong).await?;
    pods(client, wrong).await
}

/// Every deployment has what it asks for, and says so.
async fn deployments(client: &Client, wrong: &mut Wrong) -> Result<(), kube::Error> {
    for deployment in Api::<Deployment>::all(client.clone()).list(&ListParams::default()).await? {
        let name = deployment.name_any();
        if deployment.metadata.deletion_timestamp.is_some() {
            // It is told of below.
            continue;
        }
        let about = About::of(&deployment.metadata);
        let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        let status = deployment.status.unwrap_or_default();
        let counts = [status.replicas, status.updated_replicas, status.ready_replicas, status.available_replicas];
        if counts.iter().any(|count| count.unwrap_or(0) != wanted) {
            let what = format!("deployment {name} asks for {wanted} and has {counts:?} in the end");
            wrong.add(Some(about.clone()), what);
        }
        if status.observed_generation != deployment.metadata.generation {
            wrong.add(Some(about), format!("deployment {name} does not tell of its last change"));
        }
    }
    Ok(())
}

/// Every replica set has its pods, and they run.
async fn pods(client: &Client, wrong: &mut Wrong) -> Result<(), kube::Error> {
    let mut of_set: BTreeMap<String, i32> = BTreeMap::new();
    for pod in Api::<Pod>::all(client.clone()).list(&ListParams::default()).await? {
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        if phase != "Running" {
            wrong.add(Some(About::of(&pod.metadata)), format!("pod {} is {phase} in the end", pod.name_any()));
        }
        for owner in pod.owner_references().iter().filter(|owner| owner.controller == Some(true)) {
            *of_set.entry(owner.uid.clone()).or_default() += 1;
        }
    }
    for set in Api::<ReplicaSet>::all(client.clone()).list(&ListParams::default()).await? {
        let wanted = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        let has = set.uid().and_then(|uid| of_set.get(&uid).copied()).unwrap_or(0);
        let told = set.status.as_ref().map_or(0, |status| status.replicas);
        if has != wanted || told != wanted {
            let name = set.name_any();
            let what = format!("replica set {name} asks for {wanted}, has {has} and tells {told} in the end");
            wrong.add(Some(About::of(&set.metadata)), what);
        }
    }
    Ok(())
}
