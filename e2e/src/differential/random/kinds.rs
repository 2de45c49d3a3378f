//! The kinds that random sequences use.

use serde_json::{Value, json};

/// A kind, and what can be done with it.
pub(super) struct Kind {
    /// Its singular name.
    pub(super) name: &'static str,
    /// The path of its collection.
    pub(super) path: &'static str,
    /// Whether it has a status.
    pub(super) status: bool,
    /// Whether all may be deleted at once, and one without an end that only a controller brings.
    pub(super) deletable: bool,
    /// An object without its metadata; the number chooses among a few.
    pub(super) body: fn(u64) -> Value,
}

/// All of them.
pub(super) const KINDS: [Kind; 6] = [
    Kind {
        name: "configmap",
        path: "/api/v1/namespaces/${ns}/configmaps",
        status: false,
        deletable: true,
        body: |choice| json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "k": choice.to_string() } }),
    },
    Kind {
        name: "secret",
        path: "/api/v1/namespaces/${ns}/secrets",
        status: false,
        deletable: true,
        body: |choice| {
            let data = ["YQ==", "Yg==", "Yw=="][usize::try_from(choice % 3).unwrap_or_default()];
            json!({ "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": { "k": data } })
        },
    },
    Kind { name: "pod", path: "/api/v1/namespaces/${ns}/pods", status: true, deletable: true, body: |_| pod() },
    Kind {
        name: "lease",
        path: "/apis/coordination.k8s.io/v1/namespaces/${ns}/leases",
        status: false,
        deletable: true,
        body: |choice| {
            let spec = json!({ "holderIdentity": format!("h{choice}"), "leaseDurationSeconds": choice + 1 });
            json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec })
        },
    },
    Kind {
        name: "gadget",
        path: "/apis/random.orlop.example/v1/namespaces/${ns}/gadgets",
        status: true,
        deletable: true,
        body: |choice| {
            let spec = json!({ "size": choice, "unknown": "pruned" });
            json!({ "apiVersion": "random.orlop.example/v1", "kind": "Gadget", "spec": spec })
        },
    },
    Kind {
        name: "namespace",
        path: "/api/v1/namespaces",
        status: true,
        deletable: false,
        body: |_| json!({ "apiVersion": "v1", "kind": "Namespace" }),
    },
];

/// A pod with every default written out: what is compared is not defaulting.
fn pod() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {
            "containers": [{
                "name": "c",
                "image": "i:1",
                "imagePullPolicy": "IfNotPresent",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }],
            "dnsPolicy": "ClusterFirst",
            "enableServiceLinks": true,
            "nodeName": "n",
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "terminationGracePeriodSeconds": 30,
        },
    })
}

/// The definition of the custom kind.
pub(super) fn crd() -> Value {
    let size = json!({ "type": "integer", "minimum": 0, "default": 1 });
    let schema = json!({
        "type": "object",
        "properties": {
            "spec": { "type": "object", "properties": { "size": size, "color": { "type": "string" } } },
            "status": { "type": "object", "properties": { "phase": { "type": "string" } } },
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "gadgets.random.orlop.example" },
        "spec": {
            "group": "random.orlop.example",
            "scope": "Namespaced",
            "names": { "plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList" },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": schema },
            }],
        },
    })
}
