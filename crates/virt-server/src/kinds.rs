//! The kinds of virtual machines on a server.

use std::collections::BTreeSet;

use futures_util::TryStreamExt as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use crate::StartError;

/// Defines kinds on a server, and brings those up to date that an earlier release defined. Returns when they are served.
pub(crate) async fn install(client: &Client, kinds: &[CustomResourceDefinition]) -> Result<(), StartError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in kinds {
        let name = definition.name_any();
        define(&api, definition).await.map_err(|source| StartError::Kind { name, source: Box::new(source) })?;
    }
    let mut waiting: BTreeSet<String> = kinds.iter().map(kube::ResourceExt::name_any).collect();
    let mut changes = std::pin::pin!(watcher(api, watcher::Config::default()).touched_objects());
    while !waiting.is_empty() {
        let changed = changes.try_next().await.map_err(|error| StartError::Watch(Some(Box::new(error))))?;
        let definition = changed.ok_or(StartError::Watch(None))?;
        if is_established(&definition) {
            waiting.remove(&definition.name_any());
        }
    }
    Ok(())
}

async fn define(api: &Api<CustomResourceDefinition>, definition: &CustomResourceDefinition) -> Result<(), kube::Error> {
    let name = definition.name_any();
    let Some(known) = api.get_opt(&name).await? else {
        return api.create(&PostParams::default(), definition).await.map(drop);
    };
    let patch = json!({ "spec": definition.spec });
    let is_same = serde_json::to_value(&known.spec).is_ok_and(|spec| spec == patch["spec"]);
    if !is_same {
        api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    }
    Ok(())
}

fn is_established(definition: &CustomResourceDefinition) -> bool {
    let conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
}
