//! What must hold in the end, when nothing goes wrong any more and nobody writes.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ListParams;
use kube::core::DynamicObject;
use kube::discovery::{Discovery, verbs};
use kube::{Api, Client, ResourceExt as _};

use crate::process::ROOT_CA;
use crate::world::World;

pub(crate) async fn check(client: &Client, world: &World) -> Result<(), kube::Error> {
    namespaces(client, world).await?;
    deployments(client, world).await?;
    pods(client, world).await?;
    garbage(client, world).await
}

/// Every namespace has its account and its authority, and every secret that asks for a token has one.
async fn namespaces(client: &Client, world: &World) -> Result<(), kube::Error> {
    for namespace in Api::<Namespace>::all(client.clone()).list(&ListParams::default()).await? {
        let name = namespace.name_any();
        let account = Api::<ServiceAccount>::namespaced(client.clone(), &name).get_opt("default").await?;
        if account.is_none() {
            world.violated(format!("namespace {name} has no account in the end"));
        }
        let map = Api::<ConfigMap>::namespaced(client.clone(), &name).get_opt("kube-root-ca.crt").await?;
        let authority = map.and_then(|map| map.data?.get("ca.crt").cloned()).unwrap_or_default();
        if authority != ROOT_CA {
            world.violated(format!("namespace {name} trusts {authority:?} in the end"));
        }
        for secret in Api::<Secret>::namespaced(client.clone(), &name).list(&ListParams::default()).await? {
            let is_token = secret.type_.as_deref() == Some("kubernetes.io/service-account-token");
            if is_token && !secret.data.iter().flatten().any(|(key, value)| key == "token" && !value.0.is_empty()) {
                world.violated(format!("secret {name}/{} has no token in the end", secret.name_any()));
            }
        }
    }
    Ok(())
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

/// Everything whose owners are gone is gone, and nothing is stuck on its way out.
async fn garbage(client: &Client, world: &World) -> Result<(), kube::Error> {
    let discovery = Discovery::new(client.clone()).run_aggregated().await?;
    let (mut found, mut served) = (BTreeMap::new(), BTreeSet::new());
    for group in discovery.groups_alphabetical() {
        for (resource, capabilities) in group.recommended_resources() {
            if !capabilities.supports_operation(verbs::LIST) {
                continue;
            }
            served.insert((resource.api_version.clone(), resource.kind.clone()));
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            for object in api.list_metadata(&ListParams::default()).await? {
                let name = format!("{} {}", resource.kind, object.name_any());
                found.insert(object.uid().unwrap_or_default(), (name, object.metadata));
            }
        }
    }
    for (name, metadata) in found.values() {
        let owners = metadata.owner_references.as_deref().unwrap_or_default();
        // Of a kind that nobody serves any more nothing is known, and what is not known is not garbage.
        let is_gone = |owner: &OwnerReference| {
            served.contains(&(owner.api_version.clone(), owner.kind.clone())) && !found.contains_key(&owner.uid)
        };
        if !owners.is_empty() && owners.iter().all(is_gone) {
            world.violated(format!("{name} is garbage in the end: its owners are gone"));
        }
        if metadata.deletion_timestamp.is_some() {
            let held = metadata.finalizers.as_deref().unwrap_or_default();
            world.violated(format!("{name} was deleted and is still there in the end, held by {held:?}"));
        }
    }
    // Whoever deletes a namespace deletes all that is in it.
    let namespaces: Vec<String> = Api::<Namespace>::all(client.clone())
        .list(&ListParams::default())
        .await?
        .iter()
        .map(kube::ResourceExt::name_any)
        .collect();
    for (name, metadata) in found.values() {
        if metadata.namespace.as_ref().is_some_and(|namespace| !namespaces.contains(namespace)) {
            world.violated(format!("{name} is in a namespace that is gone"));
        }
    }
    Ok(())
}
