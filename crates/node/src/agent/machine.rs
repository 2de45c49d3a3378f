//! The image that is no image: this machine's own programs, for the launchers of virtual machines and for nobody else.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::core::v1::Pod;

use super::view;

/// What a pod must be to use it.
const LABEL: (&str, &str) = ("kubevirt.io", "virt-launcher");
const OWNER: (&str, &str) = ("kubevirt.io/", "VirtualMachineInstance");

/// How the machine's own programs are offered.
#[derive(Clone, Debug)]
pub struct MachineImage {
    /// The image's name, such as `orlop.dev/machine`.
    pub name: String,
    /// Files and folders that are added: where each is on the machine, and where the container sees it.
    pub files: Vec<(PathBuf, PathBuf)>,
    /// Users for its pods, one each.
    pub users: Range<u32>,
}

/// Whether a pod asks for the machine's own programs.
pub(super) fn is_asked_for(pod: &Pod, name: &str) -> bool {
    let mut containers = pod.spec.iter().flat_map(view::containers);
    containers.any(|container| container.image.as_deref() == Some(name))
}

/// Whether it may have them. The admission of pods should have seen to that; a node does not rely on it.
pub(super) fn is_allowed(pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    let label = labels.and_then(|labels| labels.get(LABEL.0)).is_some_and(|value| value == LABEL.1);
    let owners = pod.metadata.owner_references.iter().flatten();
    let owned = owners
        .into_iter()
        .any(|owner| owner.controller == Some(true) && owner.kind == OWNER.1 && owner.api_version.starts_with(OWNER.0));
    label && owned
}

/// Which pod has which user.
pub(super) struct Users {
    range: Range<u32>,
    taken: Mutex<BTreeMap<String, u32>>,
}

impl Users {
    /// None is taken but these, by pod UID.
    pub(super) fn new(range: Range<u32>, taken: BTreeMap<String, u32>) -> Self {
        Self { range, taken: Mutex::new(taken) }
    }

    /// The pod's user: the one that it has, or the lowest that is free.
    pub(super) fn take(&self, pod: &str) -> Option<u32> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(user) = taken.get(pod) {
            return Some(*user);
        }
        let user = self.range.clone().find(|user| taken.values().all(|other| other != user))?;
        taken.insert(pod.to_owned(), user);
        Some(user)
    }

    /// Nothing of the pod is left that could belong to it.
    pub(super) fn free(&self, pod: &str) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).remove(pod);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn allowed(metadata: &Value) -> bool {
        is_allowed(&serde_json::from_value(json!({ "metadata": metadata })).unwrap())
    }

    #[test]
    fn only_launchers_may_use_the_machines_programs() {
        let owner = |controller: bool, kind: &str, version: &str| json!([{ "apiVersion": version, "kind": kind, "name": "v", "uid": "u", "controller": controller }]);
        let labels = json!({ "kubevirt.io": "virt-launcher" });
        let good = owner(true, "VirtualMachineInstance", "kubevirt.io/v1");
        assert!(allowed(&json!({ "labels": labels, "ownerReferences": good })));
        assert!(!allowed(&json!({ "ownerReferences": good })));
        assert!(!allowed(&json!({ "labels": labels })));
        for bad in [
            owner(false, "VirtualMachineInstance", "kubevirt.io/v1"),
            owner(true, "ReplicaSet", "kubevirt.io/v1"),
            owner(true, "VirtualMachineInstance", "evil.io/v1"),
        ] {
            assert!(!allowed(&json!({ "labels": labels, "ownerReferences": bad })));
        }
    }

    proptest! {
        /// Against a plain list of who has what.
        #[test]
        fn no_two_pods_share_a_user(steps in prop::collection::vec((0_u8..8, any::<bool>()), 0..60)) {
            let users = Users::new(100..105, BTreeMap::new());
            let mut held: BTreeMap<u8, u32> = BTreeMap::new();
            for (pod, takes) in steps {
                if takes {
                    let got = users.take(&pod.to_string());
                    match held.get(&pod) {
                        Some(user) => prop_assert_eq!(got, Some(*user)),
                        None => {
                            let lowest = (100..105).find(|user| held.values().all(|other| other != user));
                            prop_assert_eq!(got, lowest);
                            held.extend(got.map(|user| (pod, user)));
                        }
                    }
                } else {
                    users.free(&pod.to_string());
                    held.remove(&pod);
                }
            }
        }
    }
}
