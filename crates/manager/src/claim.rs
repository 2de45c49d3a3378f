//! Who controls what: owner references, and the patches that set and clear them.

use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::selector::Selector;
use crate::writing::{guarded, log_changed};

/// One object, named such that no namesake is hit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    pub name: String,
    /// Its UID, to be sent as a precondition.
    pub uid: String,
}

impl Target {
    /// The object of these metadata.
    #[must_use]
    pub fn of(metadata: &ObjectMeta) -> Self {
        Self { name: metadata.name.clone().unwrap_or_default(), uid: metadata.uid.clone().unwrap_or_default() }
    }
}

/// How owner references are patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patching {
    /// One reference by itself, whatever else there is: for built-in kinds.
    Strategic,
    /// The whole list, of one version of the object: for custom kinds, whose lists have no keys.
    Merge,
}

/// A change of an object's owner references.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnerPatch {
    /// Whose references to change.
    pub target: Target,
    /// The patch; it carries the UID, so that a namesake refuses it.
    pub patch: Value,
    /// Of which type the patch is.
    pub patching: Patching,
}

impl OwnerPatch {
    /// Sends the patch. An object that went meanwhile, or was replaced by a namesake, needs none.
    ///
    /// # Errors
    /// When it is refused for another reason.
    pub async fn send<T>(&self, api: &Api<T>) -> Result<(), kube::Error>
    where
        T: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let patch = match self.patching {
            Patching::Strategic => Patch::Strategic(&self.patch),
            Patching::Merge => Patch::Merge(&self.patch),
        };
        match api.patch(&self.target.name, &PatchParams::default(), &patch).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 422) => Ok(()),
            patched => patched.map(|_| log_changed::<T>(&self.target.name)),
        }
    }
}

/// The outcome of claiming: what is ours from now on, and the patches that make it so.
#[derive(Debug)]
pub struct Claims<'a, T> {
    /// Those that the owner controls and selects, or will after the patches.
    pub mine: Vec<&'a T>,
    /// Orphans that the owner selects.
    pub adopt: Vec<OwnerPatch>,
    /// Those that the owner controls and selects no longer.
    pub release: Vec<OwnerPatch>,
}

/// Sorts `candidates` into ours, to be adopted (ours from now on) and to be released.
///
/// An owner that is being deleted neither adopts nor releases: the garbage collector decides about its dependents.
pub fn claim<'a, O: Resource<DynamicType = ()>, T: Resource>(
    owner: &O,
    selector: &Selector<'_>,
    candidates: impl Iterator<Item = &'a T>,
    patching: Patching,
) -> Claims<'a, T> {
    let mut claims = Claims { mine: Vec::new(), adopt: Vec::new(), release: Vec::new() };
    let of_owner = owner.meta();
    let owner_stays = of_owner.deletion_timestamp.is_none();
    for candidate in candidates {
        let metadata = candidate.meta();
        let matches = selector.matches(metadata.labels.as_ref());
        match controller_of(metadata) {
            Some(reference) if Some(&reference.uid) == of_owner.uid.as_ref() => {
                if matches {
                    claims.mine.push(candidate);
                } else if owner_stays {
                    claims.release.push(release(of_owner, metadata, patching));
                }
            }
            Some(_another) => {}
            None => {
                if matches && owner_stays && metadata.deletion_timestamp.is_none() {
                    claims.adopt.push(adopt(reference::<O>(of_owner), metadata, patching));
                    claims.mine.push(candidate);
                }
            }
        }
    }
    claims
}

/// The reference to the controller of an object.
#[must_use]
pub fn controller_of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.iter().flatten().find(|reference| reference.controller == Some(true))
}

/// Whether an object is controlled by this owner, and not by another of its name.
#[must_use]
pub fn is_controlled_by(metadata: &ObjectMeta, owner: &ObjectMeta) -> bool {
    controller_of(metadata).is_some_and(|reference| Some(&reference.uid) == owner.uid.as_ref())
}

/// The reference that a child of `owner`, an object of the kind `O`, carries.
#[must_use]
pub fn reference<O: Resource<DynamicType = ()>>(owner: &ObjectMeta) -> OwnerReference {
    OwnerReference {
        api_version: O::api_version(&()).into_owned(),
        kind: O::kind(&()).into_owned(),
        name: owner.name.clone().unwrap_or_default(),
        uid: owner.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

fn adopt(ours: OwnerReference, child: &ObjectMeta, patching: Patching) -> OwnerPatch {
    let target = Target::of(child);
    let patch = match patching {
        Patching::Strategic => json!({ "metadata": { "uid": target.uid, "ownerReferences": [ours] } }),
        Patching::Merge => {
            let mut all = child.owner_references.clone().unwrap_or_default();
            all.retain(|one| one.uid != ours.uid);
            all.push(ours);
            guarded(child, json!({ "metadata": { "ownerReferences": all } }))
        }
    };
    OwnerPatch { target, patch, patching }
}

fn release(owner: &ObjectMeta, child: &ObjectMeta, patching: Patching) -> OwnerPatch {
    let target = Target::of(child);
    let patch = match patching {
        Patching::Strategic => {
            let gone = json!({ "$patch": "delete", "uid": owner.uid });
            json!({ "metadata": { "uid": target.uid, "ownerReferences": [gone] } })
        }
        Patching::Merge => {
            let others = child.owner_references.iter().flatten().filter(|one| Some(&one.uid) != owner.uid.as_ref());
            guarded(child, json!({ "metadata": { "ownerReferences": others.collect::<Vec<_>>() } }))
        }
    };
    OwnerPatch { target, patch, patching }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

    use super::*;

    fn map(name: &str, label: &str, owners: &Value) -> ConfigMap {
        let metadata = json!({
            "name": name, "uid": format!("u-{name}"), "resourceVersion": "5", "labels": { "app": label },
            "ownerReferences": owners,
        });
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    fn owned(uid: &str, controller: bool) -> Value {
        json!({ "apiVersion": "v1", "kind": "Pod", "name": "o", "uid": uid, "controller": controller })
    }

    /// Custom kinds are patched with the whole list, so that nobody else's reference may be lost by it.
    #[test]
    fn the_references_of_others_stay() {
        let owner: Pod = serde_json::from_value(json!({ "metadata": { "name": "o", "uid": "o" } })).unwrap();
        let from: LabelSelector = serde_json::from_value(json!({ "matchLabels": { "app": "a" } })).unwrap();
        let selector = Selector::read(&from).unwrap();
        let maps = [
            map("orphan", "a", &json!([owned("x", false)])),
            map("mine", "a", &json!([owned("o", true)])),
            map("lost", "b", &json!([owned("x", false), owned("o", true)])),
            map("other", "a", &json!([owned("x", true)])),
        ];
        let claims = claim(&owner, &selector, maps.iter(), Patching::Merge);
        let names: Vec<_> = claims.mine.iter().filter_map(|map| map.metadata.name.as_deref()).collect();
        assert_eq!(names, ["orphan", "mine"]);
        let [adopt] = claims.adopt.as_slice() else { panic!("{:?}", claims.adopt) };
        let ours = json!(reference::<Pod>(&owner.metadata));
        let metadata =
            json!({ "uid": "u-orphan", "resourceVersion": "5", "ownerReferences": [owned("x", false), ours] });
        assert_eq!(adopt.patch, json!({ "metadata": metadata }));
        let [release] = claims.release.as_slice() else { panic!("{:?}", claims.release) };
        let metadata = json!({ "uid": "u-lost", "resourceVersion": "5", "ownerReferences": [owned("x", false)] });
        assert_eq!(release.patch, json!({ "metadata": metadata }));
    }
}
