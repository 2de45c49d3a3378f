//! What deployments must have come to.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};

use crate::world::World;

pub(super) async fn check(client: &Client, world: &World) -> Result<(), kube::Error> {
    deployments(client, world).await?;
    pods(client, world).await
}

/// Every deployment has what it asks for, and says so.
async fn deployments(client: &Client, world: &World) -> Result<(), kube::Error> {
    for deployment in Api::<Deployment>::all(client.clone()).list(&ListParams::default()).await? {
        let name = deployment.name_any();
        if deployment.metadata.deletion_timestamp.is_some() {
            // It is told of below.
            continue;
        }
        let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        let status = deployment.status.unwrap_or_default();
        let counts = [status.replicas, status.updated_replicas, status.ready_replicas, status.available_replicas];
        if counts.iter().any(|count| count.unwrap_or(0) != wanted) {
            world.violated(format!("deployment {name} asks for {wanted} and has {counts:?} in the end"));
        }
        if status.observed_generation != deployment.metadata.generation {
            world.violated(format!("deployment {name} does not tell of its last change"));
        }
    }
    Ok(())
}

/// Every replica set has its pods, and they run.
async fn pods(client: &Client, world: &World) -> Result<(), kube::Error> {
    let mut of_set: BTreeMap<String, i32> = BTreeMap::new();
    for pod in Api::<Pod>::all(client.clone()).list(&ListParams::default()).await? {
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        if phase != "Running" {
            world.violated(format!("pod {} is {phase} in the end", pod.name_any()));
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
            world.violated(format!("replica set {name} asks for {wanted}, has {has} and tells {told} in the end"));
        }
    }
    Ok(())
}
