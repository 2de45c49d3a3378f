//! What must hold in the end, when nothing goes wrong any more and nobody writes.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ListParams;
use kube::core::DynamicObject;
use kube::discovery::{Discovery, verbs};
use kube::{Api, Client, ResourceExt as _};

use crate::Scene;
use crate::process::ROOT_CA;
use crate::world::World;

mod deployments;
mod virtual_machines;

pub(crate) async fn check(scene: Scene, client: &Client, world: &World) -> Result<(), kube::Error> {
    namespaces(client, world).await?;
    match scene {
        Scene::Deployments => deployments::check(client, world).await?,
        Scene::VirtualMachines(_) => virtual_machines::check(client, world).await?,
    }
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
