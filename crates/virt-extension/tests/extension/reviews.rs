//! Admission as Kubernetes asks for it.

use api::vmi::VirtualMachineInstance;
use base64::Engine as _;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::bench::Bench;

pub(crate) fn vm(change: impl FnOnce(&mut Value)) -> Value {
    let spec = json!({ "domain": { "devices": {}, "memory": { "guest": "64Mi" } } });
    let mut vm = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": { "name": "v", "namespace": "default" },
        "spec": { "runStrategy": "Halted", "template": { "spec": spec } },
    });
    change(&mut vm);
    vm
}

fn review(object: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "7", "operation": "CREATE", "namespace": "default", "name": "v",
            "kind": { "group": "kubevirt.io", "version": "v1", "kind": "VirtualMachine" },
            "resource": { "group": "kubevirt.io", "version": "v1", "resource": "virtualmachines" },
            "userInfo": { "username": "anna", "groups": ["system:authenticated"] },
            "object": object, "oldObject": null, "dryRun": false,
        },
    })
}

pub(crate) async fn asked(bench: &Bench, webhook: &str, object: &Value) -> Value {
    let path = format!("/admission/{webhook}?timeout=10s");
    // Kubernetes' API server shows no certificate to a webhook.
    let (code, answer) = bench.ask(None, "", "POST", &path, &review(object)).await.unwrap();
    assert_eq!((code, &answer["kind"], &answer["response"]["uid"]), (200, &json!("AdmissionReview"), &json!("7")));
    answer["response"].clone()
}

#[tokio::test]
async fn objects_are_filled_in_by_one_webhook_and_refused_by_both() {
    let bench = Bench::new().await;
    let filled = asked(&bench, "mutate", &vm(|_| {})).await;
    assert_eq!((&filled["allowed"], &filled["patchType"]), (&json!(true), &json!("JSONPatch")), "{filled}");
    let patch = base64::engine::general_purpose::STANDARD.decode(filled["patch"].as_str().unwrap()).unwrap();
    let patch: Vec<Value> = serde_json::from_slice(&patch).unwrap();
    let spec = patch.iter().find(|one| one["path"] == "/spec").unwrap();
    assert!(spec["value"]["template"]["spec"]["domain"]["firmware"]["uuid"].is_string(), "{spec}");
    // What only validates says nothing of a patch, which the API server would not take.
    let validated = asked(&bench, "validate", &vm(|_| {})).await;
    assert_eq!(
        (&validated["allowed"], &validated["patch"], &validated["patchType"]),
        (&json!(true), &json!(null), &json!(null))
    );
    let wrong = vm(|vm| vm["spec"]["template"]["spec"]["domain"]["memory"]["guest"] = "-1".into());
    for webhook in ["mutate", "validate"] {
        let refused = asked(&bench, webhook, &wrong).await;
        assert_eq!((&refused["allowed"], &refused["status"]["code"]), (&json!(false), &json!(422)), "{refused}");
        let field = &refused["status"]["details"]["causes"][0]["field"];
        assert!(field.as_str().unwrap().starts_with("spec.template.spec.domain.memory"), "{refused}");
    }
    bench.stop().await;
}

#[tokio::test]
async fn what_an_object_refers_to_is_looked_up_at_that_moment() {
    let bench = Bench::new().await;
    let sized = vm(|vm| {
        vm["spec"]["instancetype"] = json!({ "name": "small", "kind": "VirtualMachineInstancetype" });
        vm["spec"]["template"]["spec"]["domain"].as_object_mut().unwrap().remove("memory");
    });
    let before = asked(&bench, "validate", &sized).await;
    assert_eq!(before["allowed"], false, "{before}");
    let small = json!({
        "apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachineInstancetype",
        "metadata": { "name": "small" }, "spec": { "cpu": { "guest": 2 }, "memory": { "guest": "128Mi" } },
    });
    bench.create("/apis/instancetype.kubevirt.io/v1beta1/namespaces/default/virtualmachineinstancetypes", &small).await;
    let after = asked(&bench, "validate", &sized).await;
    assert_eq!(after["allowed"], true, "{after}");
    bench.stop().await;
}

#[tokio::test]
async fn what_is_no_review_is_told_so() {
    let bench = Bench::new().await;
    let mut connect = review(&vm(|_| {}));
    connect["request"]["operation"] = "CONNECT".into();
    for (body, words) in [
        (json!({ "kind": "Pod" }), "expected an AdmissionReview of admission.k8s.io/v1"),
        (json!("x"), "expected an AdmissionReview"),
        (connect, "the operation \"CONNECT\" is not supported"),
    ] {
        let (code, status) = bench.ask(None, "", "POST", "/admission/validate", &body).await.unwrap();
        assert_eq!(code, 400, "{status}");
        assert!(status["message"].as_str().unwrap().contains(words), "{status}");
    }
    assert_eq!(bench.ask(None, "", "GET", "/admission/mutate", &Value::Null).await.unwrap().0, 405);
    bench.stop().await;
}

#[tokio::test]
async fn a_launcher_is_not_evicted_before_its_instance_is_marked() {
    let bench = Bench::new().await;
    let spec = json!({ "evictionStrategy": "LiveMigrate", "domain": { "devices": {}, "memory": { "guest": "64Mi" } } });
    let instance = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": { "name": "v" }, "spec": spec,
    });
    bench.create("/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances", &instance).await;
    let vmis: Api<VirtualMachineInstance> = Api::default_namespaced(bench.admin());
    let conditions = json!([{ "type": "LiveMigratable", "status": "True" }]);
    let runs = json!({ "status": { "phase": "Running", "nodeName": "one", "conditions": conditions } });
    let runs = vmis.patch("v", &PatchParams::default(), &Patch::Merge(&runs)).await.unwrap();
    let owner = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "v", "uid": runs.metadata.uid,
        "controller": true,
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "p", "labels": { "kubevirt.io": "virt-launcher" }, "annotations": { "kubevirt.io/domain": "v" },
            "ownerReferences": [owner],
        },
        "spec": { "nodeName": "one", "containers": [{ "name": "compute", "image": "i" }] },
    });
    bench.create("/api/v1/namespaces/default/pods", &pod).await;

    let mut eviction = review(&json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "p" } }));
    eviction["request"]["name"] = "p".into();
    eviction["request"]["resource"] = json!({ "group": "", "version": "v1", "resource": "pods" });
    eviction["request"]["subResource"] = "eviction".into();
    let evict = async || {
        let (code, answer) = bench.ask(None, "", "POST", "/admission/validate", &eviction).await.unwrap();
        assert_eq!((code, &answer["response"]["allowed"]), (200, &json!(false)), "{answer}");
        assert_eq!(answer["response"]["status"]["code"], 429, "{answer}");
        answer["response"]["status"]["message"].as_str().unwrap().to_owned()
    };
    assert_eq!(evict().await, "Eviction triggered evacuation of VMI \"default/v\"");
    let marked = vmis.get("v").await.unwrap().status.and_then(|status| status.evacuation_node_name);
    assert_eq!(marked.as_deref(), Some("one"));
    assert!(evict().await.starts_with("Evacuation in progress"));
    bench.stop().await;
}
