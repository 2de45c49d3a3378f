//! The image of this machine's own programs, which only some pods may use. Nothing is pulled for it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::core::v1::Pod;

use super::view;

/// How the machine's own programs are offered.
#[derive(Clone, Debug)]
pub struct MachineImage {
    /// The image's name, such as `orlop.dev/machine`.
    pub name: String,
    /// Files and directories that are added: where each is on the machine, and where the container sees it.
    pub files: Vec<(PathBuf, PathBuf)>,
    /// Users for its pods, one each.
    pub users: Range<u32>,
    /// Which pods may have it. Their admission should have seen to that; a node does not rely on it.
    pub is_for: fn(&Pod) -> bool,
}

/// Whether a pod asks for the machine's own programs.
pub(super) fn is_asked_for(pod: &Pod, name: &str) -> bool {
    let mut containers = pod.spec.iter().flat_map(view::containers);
    containers.any(|container| container.image.as_deref() == Some(name))
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

    use super::*;

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
