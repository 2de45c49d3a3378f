//! Which pods are launchers.

use api::names::group;
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::core::v1::Pod;
use kube::Resource as _;

/// The label of all that runs guests, and its value for launchers.
const LABEL: (&str, &str) = ("kubevirt.io", "virt-launcher");

/// Whether a pod is the launcher of an instance, by what only virt-controller is let write together: its label, and the
/// instance that controls it.
#[must_use]
pub fn is_launcher(pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    let label = labels.and_then(|labels| labels.get(LABEL.0)).is_some_and(|value| value == LABEL.1);
    let mut owners = pod.metadata.owner_references.iter().flatten().filter(|owner| owner.controller == Some(true));
    label
        && owners.any(|owner| {
            let version = owner.api_version.split_once('/').map(|(group, _)| group);
            owner.kind == VirtualMachineInstance::kind(&()) && version == Some(group::KUBEVIRT)
        })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn launches(metadata: &Value) -> bool {
        is_launcher(&serde_json::from_value(json!({ "metadata": metadata })).unwrap())
    }

    #[test]
    fn a_launcher_has_its_label_and_is_controlled_by_an_instance() {
        let owner = |controller: bool, kind: &str, version: &str| json!([{ "apiVersion": version, "kind": kind, "name": "v", "uid": "u", "controller": controller }]);
        let labels = json!({ "kubevirt.io": "virt-launcher" });
        let good = owner(true, "VirtualMachineInstance", "kubevirt.io/v1");
        assert!(launches(&json!({ "labels": labels, "ownerReferences": good })));
        assert!(!launches(&json!({ "ownerReferences": good })));
        assert!(!launches(&json!({ "labels": labels })));
        for bad in [
            owner(false, "VirtualMachineInstance", "kubevirt.io/v1"),
            owner(true, "ReplicaSet", "kubevirt.io/v1"),
            owner(true, "VirtualMachineInstance", "evil.io/v1"),
        ] {
            assert!(!launches(&json!({ "labels": labels, "ownerReferences": bad })));
        }
    }
}
