//! The machine's own programs.

use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::bench::{Bench, is_ready, waiting};
use node::runtime::spec::{Root, User};

fn metadata(name: &str) -> Value {
    let owner = json!({ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "v", "uid": "u", "controller": true });
    json!({
        "name": name,
        "labels": { "kubevirt.io": "virt-launcher" },
        "ownerReferences": [owner],
        "annotations": { "orlop.dev/network-identity": "another's" },
    })
}

fn spec() -> Value {
    json!({
        "securityContext": { "runAsUser": 107, "runAsGroup": 107, "fsGroup": 107, "runAsNonRoot": true },
        "volumes": [{ "name": "private", "emptyDir": {} }],
        "containers": [{
            "name": "compute",
            "image": "orlop.dev/machine",
            "command": ["/usr/bin/orlop", "virt-launcher"],
            "volumeMounts": [{ "name": "private", "mountPath": "/var/run/kubevirt-private" }],
        }],
    })
}

#[tokio::test(start_paused = true)]
async fn launchers_have_a_user_of_their_own_each() {
    use std::os::unix::fs::MetadataExt as _;
    let bench = Bench::new().await;
    for (name, user) in [("a", 900_000), ("b", 900_001)] {
        let pod = bench.create_with(&metadata(name), spec()).await;
        bench.until(name, is_ready).await;
        let made = bench.machine.started("compute");
        assert_eq!(made.user, User { uid: user, gid: user, groups: vec![107] });
        assert!(matches!(made.root, Root::Machine { .. }));
        assert!(made.capabilities.is_empty() && made.no_new_privileges);
        let uid = pod.metadata.uid.unwrap();
        let folder = bench.root().join("pods").join(&uid).join("volumes/kubernetes.io~empty-dir/private");
        assert_eq!(std::fs::metadata(&folder).unwrap().uid(), user);
        let identity = bench.machine.0.connected.lock().unwrap()[&uid].identity.clone();
        assert_eq!(identity, Some(format!("who {name} belongs to")), "not what the pod says of itself");
    }
    bench.pods().delete("a", &DeleteParams::default()).await.unwrap();
    bench.gone("a").await;
    bench.create_with(&metadata("c"), spec()).await;
    bench.until("c", is_ready).await;
    assert_eq!(bench.machine.started("compute").user.uid, 900_000, "the lowest that is free");
}

#[tokio::test(start_paused = true)]
async fn nobody_else_may_use_them() {
    let bench = Bench::new().await;
    bench.create("a", spec()).await;
    bench.until("a", |pod| waiting(pod, "compute") == "CreateContainerConfigError").await;
    assert_eq!(bench.machine.log(), Vec::<String>::new());
    bench.pods().delete("a", &DeleteParams::default()).await.unwrap();
    bench.gone("a").await;
}
