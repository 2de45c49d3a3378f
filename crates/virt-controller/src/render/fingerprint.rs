//! What a pod was rendered as, to be recognized when the server has filled in the rest.

use k8s_openapi::api::core::v1::Pod;
use sha2::{Digest as _, Sha256};

/// On a launcher pod: a fingerprint of the spec that it was rendered with.
const ANNOTATION: &str = "orlop.dev/rendered";
/// Bytes of the hash that are kept: two specs of one instance that share them are not found by chance.
const KEPT: usize = 8;

/// Writes a pod's fingerprint onto it.
pub(crate) fn sign(pod: &mut Pod) {
    // A pod is always JSON.
    let Ok(text) = serde_json::to_vec(&pod.spec) else { return };
    let hash = Sha256::digest(&text)[..KEPT].iter().map(|byte| format!("{byte:02x}")).collect();
    pod.metadata.annotations.get_or_insert_default().insert(ANNOTATION.to_owned(), hash);
}

/// Whether a pod was rendered otherwise than it would be now. One that does not tell was not.
#[must_use]
pub fn differs(made: &Pod, now: &Pod) -> bool {
    let of = |pod: &Pod| pod.metadata.annotations.as_ref()?.get(ANNOTATION).cloned();
    of(made).is_some_and(|made| Some(made) != of(now))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{Bench, vmi};
    use super::super::{Nodes, render};
    use super::*;

    #[test]
    fn another_spec_is_told_apart_and_what_the_server_adds_is_not() {
        let vmi = vmi(json!({ "domain": { "devices": { "interfaces": [{ "name": "a", "masquerade": {} }] } } }));
        let mut bench = Bench::default();
        let with_kvm = render(&bench.input(&vmi)).unwrap();
        let mut stored = with_kvm.clone();
        stored.spec.as_mut().unwrap().dns_policy = Some("ClusterFirst".to_owned());
        stored.metadata.labels.get_or_insert_default().insert("a".to_owned(), "b".to_owned());
        assert!(!differs(&stored, &with_kvm));
        for nodes in [Nodes { kvm: false, vhost_net: true }, Nodes { kvm: true, vhost_net: false }] {
            bench.launcher.nodes = nodes;
            assert!(differs(&stored, &render(&bench.input(&vmi)).unwrap()), "{nodes:?}");
        }
        stored.metadata.annotations = None;
        assert!(!differs(&stored, &render(&bench.input(&vmi)).unwrap()));
    }
}
