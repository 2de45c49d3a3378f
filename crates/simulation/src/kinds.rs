//! The kinds of virtual machines, as far as virt-controller watches them, without their schemas: those are tested elsewhere,
//! and would cost each run more than all else.

use std::sync::OnceLock;

use api::crd::CrdError;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use crate::Scene;

/// Beside those, in the scene of pools.
const POOL: &str = "VirtualMachinePool";

const KINDS: [&str; 8] = [
    "KubeVirt",
    "VirtualMachine",
    "VirtualMachineClusterInstancetype",
    "VirtualMachineClusterPreference",
    "VirtualMachineInstance",
    "VirtualMachineInstanceReplicaSet",
    "VirtualMachineInstancetype",
    "VirtualMachinePreference",
];

/// The kinds of a scene.
pub(crate) fn of(scene: Scene) -> Result<Vec<CustomResourceDefinition>, CrdError> {
    match scene {
        Scene::Deployments | Scene::Services => Ok(Vec::new()),
        Scene::VirtualMachines(_) => definitions(&KINDS),
        Scene::Pools(_) => definitions(&[&KINDS[..], &[POOL]].concat()),
    }
}

/// The definitions of these.
fn definitions(kinds: &[&str]) -> Result<Vec<CustomResourceDefinition>, CrdError> {
    let mut all = known()?;
    all.retain(|one| kinds.contains(&one.spec.names.kind.as_str()));
    Ok(all)
}

/// All definitions, made once for all runs of a process.
fn known() -> Result<Vec<CustomResourceDefinition>, CrdError> {
    static MADE: OnceLock<Vec<CustomResourceDefinition>> = OnceLock::new();
    if let Some(made) = MADE.get() {
        return Ok(made.clone());
    }
    let mut made = api::crd::all()?;
    made.retain(|one| one.spec.names.kind == POOL || KINDS.contains(&one.spec.names.kind.as_str()));
    for version in made.iter_mut().flat_map(|one| &mut one.spec.versions) {
        version.schema = serde_json::from_value(anything()).ok();
    }
    Ok(MADE.get_or_init(|| made).clone())
}

/// The kind of data volumes, which a cluster may have or not.
pub(crate) fn data_volumes() -> Value {
    json!({
        "metadata": { "name": "datavolumes.cdi.kubevirt.io" },
        "spec": {
            "group": "cdi.kubevirt.io",
            "scope": "Namespaced",
            "names": {
                "plural": "datavolumes", "singular": "datavolume", "kind": "DataVolume", "listKind": "DataVolumeList",
            },
            "versions": [{ "name": "v1beta1", "served": true, "storage": true, "schema": anything() }],
        },
    })
}

fn anything() -> Value {
    json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } })
}
