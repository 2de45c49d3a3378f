//! What is asked of the server. Each request names the object by its UID: a namesake is never hit.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::graph::{Identity, Uid};
use super::served::Resource;
use super::watches::Meta;

const NOT_FOUND: u16 = 404;
const CONFLICT: u16 = 409;
const UNSUPPORTED: u16 = 415;

/// An object, or that it is not there.
pub(super) enum Outcome<T> {
    Done(T),
    Gone,
}

/// An object on the server.
pub(super) struct Remote<'a> {
    api: Api<Meta>,
    identity: &'a Identity,
}

impl<'a> Remote<'a> {
    pub(super) fn new(client: &Client, resource: &Resource, identity: &'a Identity) -> Self {
        let client = client.clone();
        let api = if resource.namespaced {
            Api::namespaced_with(client, &identity.namespace, &resource.api)
        } else {
            Api::all_with(client, &resource.api)
        };
        Self { api, identity }
    }

    /// As it is now. Gone is also one that was replaced by a namesake.
    pub(super) async fn get(&self) -> Result<Outcome<ObjectMeta>, kube::Error> {
        match self.api.get(&self.identity.name).await {
            Ok(found) if found.metadata.uid.as_deref() == Some(&*self.identity.uid) => {
                Ok(Outcome::Done(found.metadata))
            }
            Ok(_) => Ok(Outcome::Gone),
            Err(error) if self.says_gone(&error) => Ok(Outcome::Gone),
            Err(error) => Err(error),
        }
    }

    /// Whether it is this object that was not found, and not its kind: a kind that is not served now may be tomorrow, with
    /// all its objects.
    fn says_gone(&self, error: &kube::Error) -> bool {
        let kube::Error::Api(status) = error else { return false };
        let about = status.details.as_ref().map(|details| details.name.as_str());
        status.code == NOT_FOUND && about == Some(&*self.identity.name)
    }

    /// Deletes it as it was when the decision was made. What changed since does not matter as long as its owners are the
    /// same, or one that changes all the time would stay for ever.
    pub(super) async fn delete(
        &self,
        decided_on: &ObjectMeta,
        policy: &PropagationPolicy,
    ) -> Result<Outcome<()>, kube::Error> {
        let refused = match self.delete_version(decided_on.resource_version.clone(), policy).await {
            Err(error) if code(&error) == Some(CONFLICT) => error,
            done => return done,
        };
        match self.get().await? {
            Outcome::Done(now) if now.owner_references == decided_on.owner_references => {
                self.delete_version(None, policy).await
            }
            Outcome::Done(_) => Err(refused),
            Outcome::Gone => Ok(Outcome::Gone),
        }
    }

    async fn delete_version(
        &self,
        resource_version: Option<String>,
        policy: &PropagationPolicy,
    ) -> Result<Outcome<()>, kube::Error> {
        let preconditions = Preconditions { uid: Some(self.identity.uid.to_string()), resource_version };
        let parameters = DeleteParams {
            preconditions: Some(preconditions),
            propagation_policy: Some(policy.clone()),
            ..DeleteParams::default()
        };
        match self.api.delete(&self.identity.name, &parameters).await {
            Ok(_) => {
                self.log("deleted by the garbage collector");
                Ok(Outcome::Done(()))
            }
            Err(error) if self.says_gone(&error) => Ok(Outcome::Gone),
            Err(error) => Err(error),
        }
    }

    /// Removes a finalizer from an object as it was seen.
    pub(super) async fn remove_finalizer(&self, seen: &ObjectMeta, finalizer: &str) -> Result<(), kube::Error> {
        let finalizers: Vec<&String> = seen.finalizers.iter().flatten().filter(|one| *one != finalizer).collect();
        if seen.finalizers.as_ref().is_none_or(|before| before.len() == finalizers.len()) {
            return Ok(());
        }
        self.patch_seen(seen, "finalizers", &json!(finalizers)).await.map(drop)
    }

    /// Removes the references to some owners.
    pub(super) async fn release(&self, owners: &BTreeSet<Uid>) -> Result<Outcome<ObjectMeta>, kube::Error> {
        let list: Vec<Value> = owners.iter().map(|uid| json!({ "$patch": "delete", "uid": &**uid })).collect();
        let keep = |references: &mut Vec<OwnerReference>| references.retain(|one| !owners.contains(one.uid.as_str()));
        self.patch_owners(&list, keep).await
    }

    /// Stops it from holding its owners.
    pub(super) async fn unblock(&self, seen: &ObjectMeta) -> Result<Outcome<ObjectMeta>, kube::Error> {
        let holds = |reference: &OwnerReference| reference.block_owner_deletion == Some(true);
        let held = seen.owner_references.iter().flatten().filter(|one| holds(one));
        let list: Vec<Value> = held.map(|one| json!({ "uid": one.uid, "blockOwnerDeletion": false })).collect();
        if list.is_empty() {
            return Ok(Outcome::Done(seen.clone()));
        }
        let free = |references: &mut Vec<OwnerReference>| {
            references.iter_mut().filter(|one| holds(one)).for_each(|one| one.block_owner_deletion = Some(false));
        };
        self.patch_owners(&list, free).await
    }

    /// Changes references one by one where the server can, which works whatever else changes; else all at once, if
    /// nothing else has changed.
    async fn patch_owners(
        &self,
        one_by_one: &[Value],
        all_at_once: impl Fn(&mut Vec<OwnerReference>),
    ) -> Result<Outcome<ObjectMeta>, kube::Error> {
        let patch = json!({ "metadata": { "uid": &*self.identity.uid, "ownerReferences": one_by_one } });
        match self.api.patch(&self.identity.name, &PatchParams::default(), &Patch::Strategic(&patch)).await {
            Ok(patched) => {
                self.log("changed by the garbage collector");
                return Ok(Outcome::Done(patched.metadata));
            }
            Err(error) if self.says_gone(&error) => return Ok(Outcome::Gone),
            Err(error) if code(&error) == Some(UNSUPPORTED) => {}
            // A namesake refuses the UID, and nobody else does.
            Err(error) => {
                return match self.get().await? {
                    Outcome::Gone => Ok(Outcome::Gone),
                    Outcome::Done(_) => Err(error),
                };
            }
        }
        let Outcome::Done(seen) = self.get().await? else { return Ok(Outcome::Gone) };
        let mut references = seen.owner_references.clone().unwrap_or_default();
        all_at_once(&mut references);
        if Some(&references) == seen.owner_references.as_ref() {
            return Ok(Outcome::Done(seen));
        }
        self.patch_seen(&seen, "ownerReferences", &json!(references)).await.map(Outcome::Done)
    }

    /// Replaces a list of an object, if it is still as it was seen.
    async fn patch_seen(&self, seen: &ObjectMeta, field: &str, list: &Value) -> Result<ObjectMeta, kube::Error> {
        let version = &seen.resource_version;
        let patch = json!({ "metadata": { "uid": &*self.identity.uid, "resourceVersion": version, field: list } });
        let patched = self.api.patch(&self.identity.name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        self.log("changed by the garbage collector");
        Ok(patched.metadata)
    }

    fn log(&self, act: &str) {
        let Identity { kind, namespace, name, uid } = self.identity;
        tracing::info!(kind = kind.kind, namespace = %namespace, name = %name, uid = %uid, "{act}");
    }
}

fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}
