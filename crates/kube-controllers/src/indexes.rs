//! What the controllers find objects by.

use k8s_openapi::api::core::v1::{Pod, Service};
pub(crate) use manager::cache::controller_of;
use manager::cache::{Cache, Index, Keeping, namespace_of};
use manager::caches::Caches;

/// Pods by the UID of the object that controls them, by namespace, by node, and by claim.
const PODS: [(&str, Index<Pod>); 4] =
    [("controller", controller_of), ("namespace", namespace_of), ("node", node_of), ("claim", claims_of)];

/// All pods, as far as controllers read them.
pub(crate) fn pods(caches: &Caches) -> Cache<Pod> {
    caches.kept("", Keeping::slim(), &PODS)
}

/// Services by namespace.
pub const SERVICES: [(&str, Index<Service>); 1] = [("namespace", namespace_of)];

fn node_of(pod: &Pod) -> Vec<String> {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    node.into_iter().filter(|node| !node.is_empty()).collect()
}

/// As `namespace/claim`.
fn claims_of(pod: &Pod) -> Vec<String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claims = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref());
    claims.map(|claim| format!("{namespace}/{}", claim.claim_name)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_is_found_by_its_node_and_its_claims() {
        let pod = json!({
            "metadata": { "namespace": "n" },
            "spec": {
                "nodeName": "one",
                "containers": [],
                "volumes": [
                    { "name": "a", "persistentVolumeClaim": { "claimName": "data" } },
                    { "name": "b", "emptyDir": {} },
                ],
            },
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        assert_eq!((node_of(&pod), claims_of(&pod)), (vec!["one".to_owned()], vec!["n/data".to_owned()]));
        assert!(node_of(&Pod::default()).is_empty() && claims_of(&Pod::default()).is_empty());
    }
}
