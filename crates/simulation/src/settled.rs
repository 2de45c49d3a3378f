//! What must hold in the end, when nothing goes wrong any more and nobody writes.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ListParams;
use kube::core::DynamicObject;
use kube::discovery::{Discovery, verbs};
use kube::{Api, Client, ResourceExt as _};

use crate::ledger::Book;
use crate::process::ROOT_CA;
use crate::{About, Scene};

mod deployments;
mod pools;
mod services;
mod sets;
mod virtual_machines;

/// What is wrong, and with which object.
#[derive(Default)]
pub(crate) struct Wrong(pub(crate) Vec<(Option<About>, String)>);

impl Wrong {
    pub(crate) fn add(&mut self, about: Option<About>, what: String) {
        self.0.push((about, what));
    }
}

pub(crate) async fn check(scene: Scene, client: &Client, ledger: &Book) -> Result<Wrong, kube::Error> {
    let mut wrong = Wrong::default();
    namespaces(client, &mut wrong).await?;
    match scene {
        Scene::Deployments => deployments::check(client, &mut wrong).await?,
        Scene::Services => services::check(client, &mut wrong).await?,
        Scene::VirtualMachines(_) => {
            virtual_machines::check(client, ledger, &mut wrong).await?;
            sets::check(client, &mut wrong).await?;
        }
        Scene::Pools(_) => {
            virtual_machines::check(client, ledger, &mut wrong).await?;
            pools::check(client, &mut wrong).await?;
        }
    }
    garbage(client, &mut wrong).await?;
    Ok(wrong)
}

/// Every namespace has its account and its authority, and every secret that asks for a token has one.
async fn namespaces(client: &Client, wrong: &mut Wrong) -> Result<(), kube::Error> {
    for namespace in Api::<Namespace>::all(client.clone()).list(&ListParams::default()).await? {
        let name = namespace.name_any();
        let about = || Some(About::of(&namespace.metadata));
        let account = Api::<ServiceAccount>::namespaced(client.clone(), &name).get_opt("default").await?;
        if account.is_none() {
            wrong.add(about(), format!("namespace {name} has no account in the end"));
        }
        let map = Api::<ConfigMap>::namespaced(client.clone(), &name).get_opt("kube-root-ca.crt").await?;
        let authority = map.and_then(|map| map.data?.get("ca.crt").cloned()).unwrap_or_default();
        if authority != ROOT_CA {
            wrong.add(about(), format!("namespace {name} trusts {authority:?} in the end"));
        }
        for secret in Api::<Secret>::namespaced(client.clone(), &name).list(&ListParams::default()).await? {
            let is_token = secret.type_.as_deref() == Some("kubernetes.io/service-account-token");
            if is_token && !secret.data.iter().flatten().any(|(key, value)| key == "token" && !value.0.is_empty()) {
                let about = Some(About::of(&secret.metadata));
                wrong.add(about, format!("secret {name}/{} has no token in the end", secret.name_any()));
            }
        }
    }
    Ok(())
}

/// Everything whose owners are gone is gone, and nothing is stuck on its way out.
async fn garbage(client: &Client, wrong: &mut Wrong) -> Result<(), kube::Error> {
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
        let about = || Some(About::of(metadata));
        let owners = metadata.owner_references.as_deref().unwrap_or_default();
        // Of a kind that nobody serves any more nothing is known, and what is not known is not garbage.
        let is_gone = |owner: &OwnerReference| {
            served.contains(&(owner.api_version.clone(), owner.kind.clone())) && !found.contains_key(&owner.uid)
        };
        if !owners.is_empty() && owners.iter().all(is_gone) {
            wrong.add(about(), format!("{name} is garbage in the end: its owners are gone"));
        }
        if metadata.deletion_timestamp.is_some() {
            let held = metadata.finalizers.as_deref().unwrap_or_default();
            let what = format!("{name} was deleted and is still there in the end, held by {held:?}");
            wrong.add(about(), what);
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
            wrong.add(Some(About::of(metadata)), format!("{name} is in a namespace that is gone"));
        }
    }
    Ok(())
}
