//! What the controllers find objects by.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use manager::cache::Index;

/// Pods by the UID of the object that controls them, by namespace, and by node.
pub const PODS: [(&str, Index<Pod>); 3] =
    [("controller", controller_of), ("namespace", namespace_of), ("node", node_of)];

/// The UID of the object that controls this one.
pub(crate) fn controller_of<T: ResourceExt>(object: &T) -> Vec<String> {
    let owners = object.owner_references().iter();
    owners.filter(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone()).collect()
}

fn namespace_of(pod: &Pod) -> Vec<String> {
    pod.metadata.namespace.iter().cloned().collect()
}

fn node_of(pod: &Pod) -> Vec<String> {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    node.into_iter().filter(|node| !node.is_empty()).collect()
}
