//! What the tests of this folder share: an instance from a few lines of JSON, and everything else as usual.

use api::vmi::VirtualMachineInstance;
use json_patch::merge;
use serde_json::{Value, json};

use super::*;

/// Everything besides the instance.
pub(super) struct Bench {
    pub(super) config: ClusterConfig,
    pub(super) launcher: Launcher,
    pub(super) claims: BTreeMap<String, Claim>,
    pub(super) namespace: Namespace,
    pub(super) image_volumes: bool,
}

impl Default for Bench {
    fn default() -> Self {
        Self {
            config: ClusterConfig::default(),
            launcher: Launcher::new("launcher:1"),
            claims: BTreeMap::from([
                ("fs".to_owned(), Claim { block: false }),
                ("raw".to_owned(), Claim { block: true }),
            ]),
            namespace: Namespace::default(),
            image_volumes: true,
        }
    }
}

impl Bench {
    /// With a KubeVirt CR of this configuration.
    pub(super) fn configured(configuration: &Value) -> Self {
        let kubevirt = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {},
            "spec": { "configuration": configuration },
        });
        Self { config: ClusterConfig::new(Some(&serde_json::from_value(kubevirt).unwrap())), ..Self::default() }
    }

    pub(super) fn gates(gates: &[&str]) -> Self {
        Self::configured(&json!({ "developerConfiguration": { "featureGates": gates } }))
    }

    pub(super) fn input<'a>(&'a self, vmi: &'a VirtualMachineInstance) -> Input<'a> {
        let Self { config, launcher, claims, namespace, image_volumes } = self;
        Input { vmi, config, launcher, claims, namespace, image_volumes: *image_volumes }
    }

    /// The pod, also of an instance that nobody could run yet.
    pub(super) fn render(&self, vmi: &VirtualMachineInstance) -> Pod {
        draw(&self.input(vmi)).unwrap()
    }
}

/// An instance of 1Gi; `spec` is merged over it.
#[expect(clippy::needless_pass_by_value, reason = "what is written where it is used needs no borrow")]
pub(super) fn vmi(spec: Value) -> VirtualMachineInstance {
    let mut object = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": { "name": "vm", "namespace": "ns", "uid": "db6109f4-73dc-4a04-9e56-7fe0ea823806" },
        "spec": { "domain": { "devices": {}, "memory": { "guest": "1Gi" } } },
    });
    merge(&mut object["spec"], &spec);
    serde_json::from_value(object).unwrap()
}

/// The compute container of a pod.
pub(super) fn compute_of(pod: &Pod) -> &Container {
    pod.spec.as_ref().unwrap().containers.iter().find(|container| container.name == COMPUTE).unwrap()
}
