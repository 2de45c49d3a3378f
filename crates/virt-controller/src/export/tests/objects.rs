//! Objects as the server has them.

use super::*;

pub(super) fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub(super) fn export(kind: &str, status: &Value) -> Export {
    read(json!({
        "apiVersion": "export.kubevirt.io/v1", "kind": "VirtualMachineExport",
        "metadata": { "name": "e", "namespace": "n", "uid": "u", "creationTimestamp": "1970-01-01T00:00:00Z" },
        "spec": { "source": { "kind": kind, "name": "s" } }, "status": status,
    }))
}

pub(super) fn claim(name: &str, phase: &str) -> PersistentVolumeClaim {
    read(json!({ "metadata": { "name": name, "namespace": "n" }, "spec": {}, "status": { "phase": phase } }))
}

pub(super) fn owned(uid: &str) -> Value {
    json!([{ "apiVersion": "export.kubevirt.io/v1", "kind": "VirtualMachineExport", "name": "e", "uid": uid, "controller": true }])
}

pub(super) fn service(uid: &str) -> Service {
    read(json!({ "metadata": { "name": "virt-export-e", "ownerReferences": owned(uid) } }))
}

/// An exporter of the claim `s`.
pub(super) fn pod(uid: &str, phase: &str, ready: bool) -> Pod {
    let ready = json!([{ "type": "Ready", "status": if ready { "True" } else { "False" } }]);
    read(json!({
        "metadata": {
            "name": "virt-export-e", "uid": "p", "ownerReferences": owned(uid), "annotations": { AUTHORITY: "PEM\n" },
        },
        "spec": { "containers": [], "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "s" } }] },
        "status": { "phase": phase, "conditions": ready },
    }))
}

pub(super) fn vm(claims: &[&str]) -> VirtualMachine {
    let volumes: Vec<Value> =
        claims.iter().map(|name| json!({ "name": name, "persistentVolumeClaim": { "claimName": name } })).collect();
    read(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": { "name": "s", "namespace": "n", "uid": "v", "annotations": { "orlop.dev/guest": "x", "own": "y" } },
        "spec": { "template": { "spec": { "domain": { "devices": {} }, "volumes": volumes } } },
    }))
}

pub(super) fn instance(phase: &str) -> VirtualMachineInstance {
    read(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": { "name": "s" },
        "spec": { "domain": { "devices": {} } }, "status": { "phase": phase },
    }))
}
