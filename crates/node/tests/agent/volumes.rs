//! Volumes and variables from the API.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Secret};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::world;
use tokio::time::sleep;

use crate::bench::{Bench, is_ready, status, waiting};

async fn make<T>(api: Api<T>, object: Value)
where
    T: Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let object: T = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_container_finds_its_volumes() {
    let bench = Bench::new().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(bench.client.clone());
    let secrets: Api<Secret> = Api::default_namespaced(bench.client.clone());
    make(maps.clone(), json!({ "metadata": { "name": "m" }, "data": { "key": "one" } })).await;
    make(secrets, json!({ "metadata": { "name": "s" }, "stringData": { "word": "hush" } })).await;
    let volumes = json!([
        { "name": "empty", "emptyDir": {} },
        { "name": "memory", "emptyDir": { "medium": "Memory", "sizeLimit": "1Mi" } },
        { "name": "map", "configMap": { "name": "m", "items": [{ "key": "key", "path": "deep/er" }] } },
        { "name": "all", "projected": { "sources": [
            { "secret": { "name": "s" } },
            { "downwardAPI": { "items": [{ "path": "name", "fieldRef": { "fieldPath": "metadata.name" } }] } },
        ] } },
    ]);
    let mounts: Vec<Value> = ["empty", "memory", "map", "all"]
        .iter()
        .map(|name| json!({ "name": name, "mountPath": format!("/{name}") }))
        .chain([json!({ "name": "empty", "mountPath": "/part", "subPath": "a/b" })])
        .collect();
    let env = json!([{ "name": "W", "valueFrom": { "secretKeyRef": { "name": "s", "key": "word" } } }]);
    let container = json!({ "name": "c", "image": "image:1", "volumeMounts": mounts, "env": env });
    let context = json!({ "fsGroup": 77 });
    bench.create("a", json!({ "volumes": volumes, "containers": [container], "securityContext": context })).await;
    bench.until("a", is_ready).await;
    let made = bench.machine.started("c");
    let source = |target: &str| made.mounts.iter().find(|mount| mount.target == target).unwrap().source.clone();
    assert_eq!(std::fs::read_to_string(source("/map").join("deep/er")).unwrap(), "one");
    assert_eq!(std::fs::read_to_string(source("/all").join("word")).unwrap(), "hush");
    assert_eq!(std::fs::read_to_string(source("/all").join("name")).unwrap(), "a");
    assert_eq!(std::fs::metadata(source("/all").join("word")).unwrap().gid(), 77);
    assert!(source("/map").ends_with("volumes/kubernetes.io~configmap/map"));
    assert_eq!(std::fs::metadata(source("/empty")).unwrap().mode() & 0o2777, 0o2777);
    std::fs::write(source("/part").join("x"), "").unwrap();
    assert!(source("/empty").join("a/b/x").exists());
    assert!(std::fs::read_to_string(source("/etc/hosts")).unwrap().contains("10.0.0.9\ta"));
    assert!(made.env.contains(&("W".to_owned(), "hush".to_owned())));

    let new = json!({ "data": { "key": "two" } });
    maps.patch("m", &PatchParams::default(), &Patch::Merge(&new)).await.unwrap();
    sleep(Duration::from_secs(90)).await;
    assert_eq!(std::fs::read_to_string(source("/map").join("deep/er")).unwrap(), "two");

    bench.pods().delete("a", &kube::api::DeleteParams::default()).await.unwrap();
    bench.gone("a").await;
    sleep(Duration::from_secs(1)).await;
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!table.contains(&bench.root().to_string_lossy().into_owned()));
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_agent_has_made_is_kept_up_to_date() {
    let mut bench = Bench::new().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(bench.client.clone());
    make(maps.clone(), json!({ "metadata": { "name": "m" }, "data": { "key": "one" } })).await;
    let volumes = json!([{ "name": "map", "configMap": { "name": "m" } }, { "name": "empty", "emptyDir": {} }]);
    let mounts = json!([{ "name": "map", "mountPath": "/map" }]);
    let container = json!({ "name": "c", "image": "image:1", "volumeMounts": mounts });
    bench.create("a", json!({ "volumes": volumes, "containers": [container] })).await;
    bench.until("a", is_ready).await;
    let file =
        bench.machine.started("c").mounts.iter().find(|mount| mount.target == "/map").unwrap().source.join("key");
    let change = async |text: &str| {
        let new = json!({ "data": { "key": text } });
        maps.patch("m", &PatchParams::default(), &Patch::Merge(&new)).await.unwrap();
    };
    bench.kill();
    // What has changed while nobody looked, and what changes later.
    change("two").await;
    bench.start();
    for text in ["two", "three"] {
        change(text).await;
        world::until(text, async || (std::fs::read_to_string(&file).unwrap() == text).then_some(())).await;
    }
    assert_eq!(bench.machine.log(), ["sandbox a", "connect a", "start c 0"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_what_is_missing() {
    let bench = Bench::new().await;
    let volumes = json!([{ "name": "v", "secret": { "secretName": "s" } }]);
    bench.create("a", json!({ "volumes": volumes, "containers": [{ "name": "c", "image": "image:1" }] })).await;
    bench.until("a", |pod| waiting(pod, "c") == "ContainerCreating").await;
    assert!(bench.events().await.iter().any(|reason| reason == "FailedMount"));
    let secrets: Api<Secret> = Api::default_namespaced(bench.client.clone());
    make(secrets, json!({ "metadata": { "name": "s" } })).await;
    sleep(Duration::from_secs(60)).await;
    bench.until("a", is_ready).await;

    let from = json!([{ "configMapRef": { "name": "m" } }]);
    bench.create("b", json!({ "containers": [{ "name": "c", "image": "image:1", "envFrom": from }] })).await;
    bench.until("b", |pod| waiting(pod, "c") == "CreateContainerConfigError").await;
}

/// A directory, a volume that is that directory, and a claim that names the volume and is not bound to it.
async fn claim(bench: &Bench) -> (PathBuf, Api<PersistentVolume>, Api<PersistentVolumeClaim>) {
    let disk = bench.root().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let volumes: Api<PersistentVolume> = Api::all(bench.client.clone());
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(bench.client.clone());
    let capacity = json!({ "storage": "1Gi" });
    make(
        volumes.clone(),
        json!({ "metadata": { "name": "v" }, "spec": {
        "capacity": capacity, "accessModes": ["ReadWriteOnce"], "hostPath": { "path": disk } } }),
    )
    .await;
    make(
        claims.clone(),
        json!({ "metadata": { "name": "c" }, "spec": {
        "accessModes": ["ReadWriteOnce"], "volumeName": "v", "resources": { "requests": capacity } } }),
    )
    .await;
    (disk, volumes, claims)
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_given_to_its_pod_once() {
    let mut bench = Bench::new().await;
    let (disk, volumes, claims) = claim(&bench).await;
    let uid = claims.get("c").await.unwrap().metadata.uid.unwrap();
    let owned = json!({ "spec": { "claimRef": { "namespace": "default", "name": "c", "uid": uid } } });
    volumes.patch("v", &PatchParams::default(), &Patch::Merge(&owned)).await.unwrap();
    let bound = json!({ "status": { "phase": "Bound" } });
    claims.patch_status("c", &PatchParams::default(), &Patch::Merge(&bound)).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(bench.client.clone());
    make(maps.clone(), json!({ "metadata": { "name": "m" }, "data": { "key": "one" } })).await;
    std::fs::write(disk.join("before"), "").unwrap();
    let mounts = json!([{ "name": "v", "mountPath": "/v" }, { "name": "map", "mountPath": "/map" }]);
    let spec = json!({
        "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }, { "name": "map", "configMap": { "name": "m" } }],
        "containers": [{ "name": "c", "image": "image:1", "volumeMounts": mounts }],
        "securityContext": { "fsGroup": 77 },
    });
    bench.create("a", spec).await;
    bench.until("a", is_ready).await;
    let group = |name: &str| std::fs::metadata(disk.join(name)).unwrap().gid();
    assert_eq!(group("before"), 77);
    // What comes later is as its maker left it, whatever of the pod is brought up to date.
    std::fs::write(disk.join("after"), "").unwrap();
    let own = std::fs::metadata(bench.root()).unwrap().gid();
    std::os::unix::fs::chown(disk.join("after"), None, Some(own)).unwrap();
    let source = bench.machine.started("c").mounts.iter().find(|one| one.target == "/map").unwrap().source.clone();
    let new = json!({ "data": { "key": "two" } });
    maps.patch("m", &PatchParams::default(), &Patch::Merge(&new)).await.unwrap();
    let text = || std::fs::read_to_string(source.join("key")).unwrap();
    world::until("the new text", async || (text() == "two").then_some(())).await;
    assert_eq!(group("after"), own, "a refresh is no reason to walk");
    bench.kill();
    bench.start();
    bench.machine.exit("c", 1);
    bench.until("a", |pod| is_ready(pod) && status(pod, "c").is_some_and(|one| one.restart_count == 1)).await;
    assert_eq!(group("after"), own, "nor is a restart of agent and container");
}

#[tokio::test(start_paused = true)]
async fn images_that_are_volumes_are_kept_by_the_next_agent() {
    let mut bench = Bench::new().await;
    // A disk of its own that is nearly full.
    bench.kill();
    let mount =
        std::process::Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(bench.root()).status();
    assert!(mount.unwrap().success());
    bench.start();
    let spec = json!({
        "volumes": [{ "name": "v", "image": { "reference": "example.com/data:1" } }],
        "containers": [{ "name": "c", "image": "example.com/image:1", "volumeMounts": [{ "name": "v", "mountPath": "/v" }] }],
    });
    bench.create("a", spec).await;
    bench.until("a", is_ready).await;
    std::fs::write(bench.root().join("filler"), vec![0; 3_700_000]).unwrap();
    bench.kill();
    bench.start();
    let kept = world::until("a collection", async || bench.machine.0.kept.lock().unwrap().pop()).await;
    let expected = ["sha256:of-data", "sha256:of-image"].map(str::to_owned);
    assert_eq!(kept, expected.into());
    bench.pods().delete("a", &kube::api::DeleteParams::default()).await.unwrap();
    bench.gone("a").await;
    world::until("the next one", async || bench.machine.0.kept.lock().unwrap().pop().filter(BTreeSet::is_empty)).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_the_path_of_its_volume() {
    let bench = Bench::new().await;
    let (disk, volumes, claims) = claim(&bench).await;
    let spec = json!({
        "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }],
        "containers": [{ "name": "c", "image": "image:1", "volumeMounts": [{ "name": "v", "mountPath": "/v" }] }],
    });
    bench.create("a", spec).await;
    bench.until("a", |pod| waiting(pod, "c") == "ContainerCreating").await;
    let bound = json!({ "status": { "phase": "Bound" } });
    claims.patch_status("c", &PatchParams::default(), &Patch::Merge(&bound)).await.unwrap();
    // A claim may say what it likes: whose a volume is, the volume says.
    let uid = claims.get("c").await.unwrap().metadata.uid.unwrap();
    for (owner, is_its_own) in [("another", false), (uid.as_str(), true)] {
        let owned = json!({ "spec": { "claimRef": { "namespace": "default", "name": "c", "uid": owner } } });
        volumes.patch("v", &PatchParams::default(), &Patch::Merge(&owned)).await.unwrap();
        sleep(Duration::from_secs(60)).await;
        assert_eq!(is_ready(&bench.get("a").await), is_its_own, "{owner}");
    }
    bench.until("a", is_ready).await;
    let made = bench.machine.started("c");
    assert!(made.mounts.iter().any(|mount| mount.target == "/v" && mount.source == disk));
    bench.pods().delete("a", &kube::api::DeleteParams::default()).await.unwrap();
    bench.gone("a").await;
    assert!(disk.exists(), "a claim outlives its pod");
}
