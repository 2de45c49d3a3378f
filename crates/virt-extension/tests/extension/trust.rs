//! Who is believed to be the front proxy, and what its users may do.

use certificates::Request as Wanted;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::bench::{Bench, VMIS, VMS, authority, front_proxy, issue, read, request};

const VERSION: &str = "/apis/subresources.kubevirt.io/v1";

#[tokio::test]
async fn nobody_but_the_front_proxy_says_who_asks() {
    let bench = Bench::new().await;
    let (code, listed) = bench.get("anna", VERSION).await;
    assert_eq!((code, &listed["kind"]), (200, &json!("APIResourceList")));
    let other_name = issue(&bench.front, &Wanted::client("somebody", &[]));
    let other_authority = issue(&authority("other"), &Wanted::client("front-proxy-client", &["system:masters"]));
    let server = issue(&bench.front, &Wanted::server("front-proxy-client", &["localhost"], &[]));
    for path in [VERSION, "/apis", "/openapi/v2", "/openapi/v3", &format!("{VMS}/v/start"), "/metrics", "/"] {
        // The headers say that it is an admin who asks.
        let refused = (401, json!("Unauthorized"));
        for own in [None, Some(&other_name)] {
            let (code, status) = bench.ask(own, "admin", "GET", path, &Value::Null).await.unwrap();
            assert_eq!((code, status["message"].clone()), refused, "{path}");
        }
        // A certificate of somebody else's authority, or for something else, does not even get this far.
        for own in [&other_authority, &server] {
            assert!(bench.ask(Some(own), "admin", "GET", path, &Value::Null).await.is_err(), "{path}");
        }
    }
    // And the front proxy must say in whose name it asks.
    assert_eq!(bench.get("", VERSION).await.0, 401);
    bench.stop().await;
}

#[tokio::test]
async fn another_front_proxy_is_believed_at_once_and_the_old_one_is_not() {
    let bench = Bench::new().await;
    let stream = bench.connect(Some(&bench.proxy())).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let answer = sender.send_request(request("anna", "GET", VERSION, &Value::Null)).await.unwrap();
    assert_eq!(read(answer).await.0, 200);
    let next = authority("next");
    let maps: Api<ConfigMap> = Api::namespaced(bench.admin(), "kube-system");
    let patch = Patch::Merge(front_proxy(&next, &[]));
    maps.patch("extension-apiserver-authentication", &PatchParams::default(), &patch).await.unwrap();
    let leaf = issue(&next, &Wanted::client("any-name", &[]));
    // It is heard of a moment later.
    while !matches!(bench.ask(Some(&leaf), "anna", "GET", VERSION, &Value::Null).await, Ok((200, _))) {}
    // The connection that was open is of somebody who is not believed any more: closed, or refused.
    if let Ok(answer) = sender.send_request(request("anna", "GET", VERSION, &Value::Null)).await {
        assert_eq!(read(answer).await.0, 401);
    }
    assert!(bench.ask(Some(&bench.proxy()), "anna", "GET", VERSION, &Value::Null).await.is_err());
    bench.stop().await;
}

#[tokio::test]
async fn the_cluster_is_asked_whether_somebody_may_use_the_whole_path() {
    let bench = Bench::new().await;
    bench.instance("i", "nowhere").await;
    let edit = json!({
        "metadata": { "name": "edit" }, "subjects": [{ "kind": "User", "name": "editor" }],
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kubevirt.io:edit" },
    });
    bench.create("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", &edit).await;
    let refusal = |user: &str, verb: &str, resource: &str| {
        format!(
            "virtualmachineinstances.subresources.kubevirt.io \"i\" is forbidden: User \"{user}\" cannot {verb} resource \"virtualmachineinstances/{resource}\" in API group \"subresources.kubevirt.io\" in the namespace \"default\""
        )
    };
    let (code, status) = bench.put("nobody", &format!("{VMIS}/i/pause"), &json!({})).await;
    assert_eq!((code, status["message"].as_str()), (403, Some(refusal("nobody", "update", "pause").as_str())));
    // Kubernetes asks about `vnc` alone, which an editor has; the picture is virt-api's to refuse.
    let (code, status) = bench.get("editor", &format!("{VMIS}/i/vnc/screenshot")).await;
    assert_eq!((code, status["message"].as_str()), (403, Some(refusal("editor", "get", "vnc/screenshot").as_str())));
    let (code, status) = bench.put("editor", &format!("{VMIS}/i/pause"), &json!({})).await;
    let why = "Internal error occurred: node \"nowhere\" does not exist";
    assert_eq!((code, status["message"].as_str()), (500, Some(why)));
    bench.stop().await;
}

#[tokio::test]
async fn a_vm_is_started_with_the_rights_of_virt_api() {
    let bench = Bench::new().await;
    let spec = json!({ "domain": { "devices": {}, "memory": { "guest": "64Mi" } } });
    let vm = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": { "name": "v" },
        "spec": { "runStrategy": "Halted", "template": { "spec": spec } },
    });
    bench.create("/apis/kubevirt.io/v1/namespaces/default/virtualmachines", &vm).await;
    assert_eq!(bench.put("admin", &format!("{VMS}/v/start"), &Value::Null).await.0, 202);
    let vms: Api<api::vm::VirtualMachine> = Api::default_namespaced(bench.admin());
    assert_eq!(json!(vms.get("v").await.unwrap().spec.run_strategy), "Always");
    bench.stop().await;
}
