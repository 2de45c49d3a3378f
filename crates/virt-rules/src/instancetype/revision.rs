//! Instancetypes and preferences as they were when a VM first started, kept in a ControllerRevision.

use std::collections::BTreeMap;

use api::instancetype::{
    VirtualMachineClusterInstancetype, VirtualMachineInstancetype, VirtualMachineInstancetypeSpec,
};
use api::names::label;
use api::owner::controller_reference;
use api::preference::{VirtualMachineClusterPreference, VirtualMachinePreference, VirtualMachinePreferenceSpec};
use api::vm::VirtualMachine;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use k8s_openapi::{Metadata, Resource};
use serde::Serialize;
use serde_json::Value;

const GROUP: &str = "instancetype.kubevirt.io";
/// Versions whose specs are read. The older two differ from the newest only in fields that they lack.
const VERSIONS: [&str; 3] = ["v1beta1", "v1alpha2", "v1alpha1"];

/// The spec of a kept object.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "it is taken apart where it is made")]
pub enum Kept {
    /// Sizes.
    Instancetype(VirtualMachineInstancetypeSpec),
    /// Likes of a guest.
    Preference(VirtualMachinePreferenceSpec),
}

/// Why a revision gives no instancetype or preference.
#[derive(Debug, thiserror::Error)]
pub enum RevisionError {
    /// It holds nothing.
    #[error("the revision {name:?} is empty")]
    Empty {
        /// The revision.
        name: String,
    },
    /// It holds something else, or something too old.
    #[error("the revision {name:?} contains a {found:?}, which is neither an instancetype nor a preference")]
    Kind {
        /// The revision.
        name: String,
        /// `apiVersion, Kind=kind` of what is in it.
        found: String,
    },
    /// It holds one that cannot be read.
    #[error("the {kind} in the revision {name:?} cannot be read")]
    Spec {
        /// The revision.
        name: String,
        /// The kind of what is in it.
        kind: String,
        /// What is wrong with it.
        #[source]
        source: api::decode::DecodeError,
    },
}

/// The kinds that are kept.
pub trait Stored: Resource + Metadata<Ty = ObjectMeta> + Serialize {}

impl Stored for VirtualMachineInstancetype {}
impl Stored for VirtualMachineClusterInstancetype {}
impl Stored for VirtualMachinePreference {}
impl Stored for VirtualMachineClusterPreference {}

/// The revision that keeps an object for a VM: named after both, owned by the VM. The object is kept whole but for
/// metadata that means nothing outside of it.
///
/// `None` while either was never stored: without UIDs the name would not be unique.
#[must_use]
pub fn revision<T: Stored>(vm: &VirtualMachine, object: &T) -> Option<ControllerRevision> {
    let metadata = object.metadata();
    let (name, uid) = (metadata.name.clone()?, metadata.uid.clone()?);
    let generation = metadata.generation.unwrap_or_default().to_string();
    let owner = controller_reference(vm)?;
    let labels = BTreeMap::from([
        (label::REVISION_OBJECT_KIND.to_owned(), T::KIND.to_owned()),
        (label::REVISION_OBJECT_VERSION.to_owned(), T::VERSION.to_owned()),
        (label::REVISION_OBJECT_NAME.to_owned(), name.clone()),
        (label::REVISION_OBJECT_UID.to_owned(), uid.clone()),
        (label::REVISION_OBJECT_GENERATION.to_owned(), generation.clone()),
    ]);
    Some(ControllerRevision {
        metadata: ObjectMeta {
            name: Some(format!("{}-{name}-{}-{uid}-{generation}", owner.name, T::VERSION)),
            namespace: vm.metadata.namespace.clone(),
            labels: Some(labels),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(data(object)?)),
        revision: 0,
    })
}

fn data<T: Stored>(object: &T) -> Option<Value> {
    let mut data = serde_json::to_value(object).ok()?;
    data["apiVersion"] = T::API_VERSION.into();
    data["kind"] = T::KIND.into();
    if let Some(metadata) = data["metadata"].as_object_mut() {
        for field in ["labels", "annotations", "finalizers", "ownerReferences", "managedFields"] {
            metadata.remove(field);
        }
    }
    Some(data)
}

/// Reads back what [`revision`] has kept, or KubeVirt, also in the group's older versions.
///
/// # Errors
/// When it holds nothing, another kind, or a spec that cannot be read.
pub fn from_revision(revision: &ControllerRevision) -> Result<Kept, RevisionError> {
    let name = revision.metadata.name.clone().unwrap_or_default();
    let data = revision.data.as_ref().map(|data| &data.0).filter(|data| !data.is_null());
    let Some(data) = data else { return Err(RevisionError::Empty { name }) };
    let word = |field: &str| data.get(field).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (word("apiVersion"), word("kind"));
    let known = version.split_once('/').is_some_and(|(group, version)| group == GROUP && VERSIONS.contains(&version));
    let spec = data.get("spec").cloned().unwrap_or_default();
    let kept = match kind {
        "VirtualMachineInstancetype" | "VirtualMachineClusterInstancetype" if known => {
            api::decode::part(spec).map(|decoded| Kept::Instancetype(decoded.object))
        }
        "VirtualMachinePreference" | "VirtualMachineClusterPreference" if known => {
            api::decode::part(spec).map(|decoded| Kept::Preference(decoded.object))
        }
        _ => return Err(RevisionError::Kind { name, found: format!("{version}, Kind={kind}") }),
    };
    kept.map_err(|source| RevisionError::Spec { name, kind: kind.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vm() -> VirtualMachine {
        let metadata = json!({ "name": "db", "namespace": "ns", "uid": "vm-uid" });
        serde_json::from_value(json!({ "metadata": metadata, "spec": { "template": {} } })).unwrap()
    }

    fn small() -> VirtualMachineInstancetype {
        serde_json::from_value(json!({
            "metadata": { "name": "small", "uid": "it-uid", "generation": 3, "labels": { "a": "b" } },
            "spec": { "cpu": { "guest": 2 }, "memory": { "guest": "1Gi" } },
        }))
        .unwrap()
    }

    fn holding(data: Value) -> ControllerRevision {
        let metadata = ObjectMeta { name: Some("r".into()), ..ObjectMeta::default() };
        ControllerRevision { metadata, data: Some(RawExtension(data)), revision: 0 }
    }

    #[test]
    fn a_revision_is_named_after_both_and_owned_by_the_vm() {
        let revision = revision(&vm(), &small()).unwrap();
        assert_eq!(revision.metadata.name.as_deref(), Some("db-small-v1beta1-it-uid-3"));
        assert_eq!(revision.metadata.namespace.as_deref(), Some("ns"));
        let labels = revision.metadata.labels.clone().unwrap();
        assert_eq!(labels["instancetype.kubevirt.io/object-kind"], "VirtualMachineInstancetype");
        assert_eq!(labels["instancetype.kubevirt.io/object-version"], "v1beta1");
        assert_eq!(labels["instancetype.kubevirt.io/object-generation"], "3");
        assert!(api::owner::is_controlled_by(&revision.metadata, "vm-uid"));
        let data = revision.data.unwrap().0;
        assert_eq!(data["metadata"].get("labels"), None);
        assert_eq!(data["metadata"]["name"], "small");
    }

    #[test]
    fn what_was_kept_comes_back() {
        let revision = revision(&vm(), &small()).unwrap();
        assert_eq!(from_revision(&revision).unwrap(), Kept::Instancetype(small().spec));
    }

    #[test]
    fn an_object_that_was_never_stored_is_not_kept() {
        let mut unborn = small();
        unborn.metadata.uid = None;
        assert_eq!(revision(&vm(), &unborn), None);
    }

    #[test]
    fn older_versions_are_read_if_they_parse() {
        let kept = holding(json!({
            "apiVersion": "instancetype.kubevirt.io/v1alpha2",
            "kind": "VirtualMachineClusterPreference",
            "spec": { "cpu": { "preferredCPUTopology": "preferCores" } },
        }));
        assert!(matches!(from_revision(&kept), Ok(Kept::Preference(_))));
    }

    #[test]
    fn anything_else_is_refused_by_name() {
        for (data, words) in [
            (Value::Null, "the revision \"r\" is empty"),
            (json!({ "apiVersion": "v1", "kind": "Pod" }), "contains a \"v1, Kind=Pod\""),
            (
                json!({ "apiVersion": "", "kind": "VirtualMachineInstancetypeSpecRevision", "spec": "e30=" }),
                "VirtualMachineInstancetypeSpecRevision",
            ),
            (
                json!({ "apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachineInstancetype" }),
                "the VirtualMachineInstancetype in the revision \"r\" cannot be read",
            ),
        ] {
            let error = from_revision(&holding(data)).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
