//! Claims and volumes of one machine, on the embedded API server.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "provisioner/held.rs"]
mod held;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::names::HAS_ROOM;
use api::volume_snapshot::{VolumeSnapshot, VolumeSnapshotClass};
use apiserver::InProcess;
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt as _};
use node::provisioner::{NAME, Provisioner};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use storage::volumes::files::Files;
use storage::volumes::{Copies, Volumes};
use testkit::waiting::eventually;
use testkit::world::{self, World};
use tokio::sync::Notify;
use tower::util::MapRequest;
use virt_server::{Component, LOCAL_VOLUMES};

use held::Held;

async fn start(folder: &Path) -> Client {
    let world = World::start().await;
    let own = Client::new(service(&world), "default");
    start_in(&world, own, folder).await
}

/// In percent: any disk has room for a claim of 1Gi, and none for one of 1Ei.
const OVERCOMMIT: u64 = 100_000;

/// The server as the provisioner sees it.
fn service(world: &World) -> InProcess {
    world.service_as(Component::Node("here".to_owned()).controller(LOCAL_VOLUMES))
}

async fn start_in(world: &World, own: Client, folder: &Path) -> Client {
    start_with(world, own, Arc::new(Files::open(folder).unwrap())).await
}

async fn start_with(world: &World, own: Client, storage: Arc<dyn Volumes>) -> Client {
    world.define(&["VolumeSnapshot", "VolumeSnapshotContent", "VolumeSnapshotClass"]).await;
    let context = world.context(own);
    let provisioner = Provisioner::new(&context, "here", storage).overcommitting(OVERCOMMIT);
    tokio::spawn(async move { provisioner.run().await });
    world::watch(&context);
    let client = world.client();
    let class = json!({
        "metadata": { "name": "local", "annotations": { "storageclass.kubernetes.io/is-default-class": "true" } },
        "provisioner": NAME,
    });
    create::<StorageClass>(&Api::all(client.clone()), class).await;
    client
}

async fn create<K: Clone + DeserializeOwned + serde::Serialize + std::fmt::Debug>(api: &Api<K>, object: Value) -> K {
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
}

fn claim(spec: &Value) -> Value {
    let mut whole = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({ "metadata": { "name": "data" }, "spec": whole })
}

fn is_bound(claim: Option<&PersistentVolumeClaim>) -> bool {
    claim.is_some_and(|claim| claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound")))
}

#[tokio::test]
async fn a_claim_beyond_the_room_is_told_how_much_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let client = start(folder.path()).await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
    create(&claims, claim(&json!({ "resources": { "requests": { "storage": "1Ei" } } }))).await;
    let told = |claim: Option<&PersistentVolumeClaim>| {
        let conditions = claim.and_then(|claim| claim.status.as_ref()?.conditions.as_ref());
        conditions.into_iter().flatten().find(|one| one.type_ == HAS_ROOM).cloned()
    };
    let refused =
        await_condition(claims.clone(), "data", |claim: Option<&PersistentVolumeClaim>| told(claim).is_some());
    let condition = told(refused.await.unwrap().as_ref()).unwrap();
    let message = condition.message.unwrap();
    assert_eq!((condition.status.as_str(), condition.reason.as_deref()), ("False", Some("InsufficientStorage")));
    assert!(message.starts_with("the claim asks for 1Ei, and ") && message.contains("are left"), "{message}");
    // Whoever describes the claim sees it, too.
    let events: Api<Event> = Api::default_namespaced(client.clone());
    eventually("an event", async || {
        let told = events.list(&ListParams::default()).await.unwrap().items;
        told.into_iter().find(|event| event.reason.as_deref() == Some("ProvisioningFailed"))
    })
    .await;
    // Others are served meanwhile, and nothing was made for it.
    let mut second = claim(&json!({}));
    second["metadata"]["name"] = json!("other");
    create(&claims, second).await;
    await_condition(claims.clone(), "other", is_bound).await.unwrap();
    let volumes: Api<PersistentVolume> = Api::all(client);
    assert_eq!(volumes.list(&ListParams::default()).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn a_claim_gets_a_folder_and_keeps_it_until_no_pod_uses_it() {
    let folder = tempfile::tempdir().unwrap();
    let client = start(folder.path()).await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let pods: Api<Pod> = Api::default_namespaced(client.clone());

    create(&claims, claim(&json!({}))).await;
    let bound = await_condition(claims.clone(), "data", is_bound).await.unwrap().unwrap();
    let name = bound.spec.unwrap().volume_name.unwrap();
    assert_eq!(bound.status.unwrap().capacity.unwrap()["storage"].0, "1Gi");
    let volume = volumes.get(&name).await.unwrap();
    let path = volume.spec.unwrap().local.unwrap().path;
    assert_eq!(Path::new(&path), folder.path().join(&name));
    std::fs::write(Path::new(&path).join("disk.img"), "bytes").unwrap();

    let volume = json!({ "name": "v", "persistentVolumeClaim": { "claimName": "data" } });
    let spec = json!({ "containers": [{ "name": "c", "image": "i" }], "volumes": [volume], "nodeName": "here" });
    create(&pods, json!({ "metadata": { "name": "user" }, "spec": spec })).await;
    let uid = claims.delete("data", &DeleteParams::default()).await.unwrap().left().unwrap().uid().unwrap();
    // A second claim is served in the meantime: the first one had its turn, and stayed.
    let mut second = claim(&json!({}));
    second["metadata"]["name"] = json!("other");
    create(&claims, second).await;
    await_condition(claims.clone(), "other", is_bound).await.unwrap();
    assert!(claims.get_opt("data").await.unwrap().is_some());

    let ended = json!({ "status": { "phase": "Succeeded" } });
    pods.patch_status("user", &PatchParams::default(), &Patch::Merge(&ended)).await.unwrap();
    await_condition(claims.clone(), "data", conditions::is_deleted(&uid)).await.unwrap();
    await_condition(volumes, &name, |volume: Option<&PersistentVolume>| volume.is_none()).await.unwrap();
    assert!(!Path::new(&path).exists());
}

#[tokio::test]
async fn a_volume_that_is_to_be_kept_outlives_its_claim() {
    let folder = tempfile::tempdir().unwrap();
    let client = start(folder.path()).await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let class = json!({ "metadata": { "name": "kept" }, "provisioner": NAME, "reclaimPolicy": "Retain" });
    create::<StorageClass>(&Api::all(client.clone()), class).await;
    create(&claims, claim(&json!({ "storageClassName": "kept" }))).await;
    let bound = await_condition(claims.clone(), "data", is_bound).await.unwrap().unwrap();
    let name = bound.spec.unwrap().volume_name.unwrap();
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    let released = |volume: Option<&PersistentVolume>| {
        volume.is_some_and(|volume| volume.status.as_ref().is_some_and(|one| one.phase.as_deref() == Some("Released")))
    };
    await_condition(volumes, &name, released).await.unwrap();
    assert!(folder.path().join(name).exists());
}

/// Lists and watches of claims show only those with this label, so that the cache can be made to miss one that is there.
const SHOWN: &str = "shown";

#[tokio::test(start_paused = true)]
async fn data_goes_only_when_the_api_server_itself_says_that_its_claim_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let asked = Arc::new(Notify::new());
    let asking = asked.clone();
    let world = World::start().await;
    let partial = MapRequest::new(service(&world), move |mut request: http::Request<Body>| {
        let path = request.uri().path().to_owned();
        if path.ends_with("/persistentvolumeclaims") && request.method() == http::Method::GET {
            let query = request.uri().query().unwrap_or_default().replace("labelSelector=&", "");
            let uri = format!("{path}?{query}&labelSelector={SHOWN}");
            *request.uri_mut() = uri.parse().unwrap();
        } else if path.ends_with("/persistentvolumeclaims/data") && request.method() == http::Method::GET {
            asking.notify_one();
        }
        request
    });
    let client = start_in(&world, Client::new(partial, "default"), folder.path()).await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let mut shown = claim(&json!({}));
    shown["metadata"]["labels"] = json!({ SHOWN: "yes" });
    create(&claims, shown).await;
    let bound = await_condition(claims.clone(), "data", is_bound).await.unwrap().unwrap();
    let name = bound.spec.unwrap().volume_name.unwrap();
    std::fs::write(folder.path().join(&name).join("disk.img"), "bytes").unwrap();

    let gone = await_condition(volumes.clone(), &name, |volume: Option<&PersistentVolume>| volume.is_none());
    let mut gone = std::pin::pin!(gone);
    let hidden = json!({ "metadata": { "labels": { SHOWN: null } } });
    claims.patch("data", &PatchParams::default(), &Patch::Merge(&hidden)).await.unwrap();
    tokio::select! {
        biased;
        _ = &mut gone => panic!("its volume was removed"),
        () = asked.notified() => {}
    }
    // Whoever has asked once asks again, and has gone on from the first answer by then.
    tokio::select! {
        biased;
        _ = &mut gone => panic!("its volume was removed"),
        () = asked.notified() => {}
    }
    assert!(folder.path().join(&name).join("disk.img").exists());
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    let freed = json!({ "metadata": { "finalizers": null } });
    claims.patch("data", &PatchParams::default(), &Patch::Merge(&freed)).await.unwrap();
    gone.await.unwrap();
    assert!(!folder.path().join(&name).exists());
}

/// A claim of this name, bound to its volume.
async fn bound(client: &Client, name: &str) {
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
    let mut object = claim(&json!({}));
    object["metadata"]["name"] = json!(name);
    create(&claims, object).await;
    await_condition(claims, name, is_bound).await.unwrap();
}

const COPIES: &str = "snapshot.storage.k8s.io/v1";

/// A snapshot of the claim of its name.
async fn snapshot(client: &Client, name: &str) {
    let spec = json!({ "source": { "persistentVolumeClaimName": name }, "volumeSnapshotClassName": "copies" });
    let snapshots: Api<VolumeSnapshot> = Api::default_namespaced(client.clone());
    create(
        &snapshots,
        json!({ "apiVersion": COPIES, "kind": "VolumeSnapshot", "metadata": { "name": name }, "spec": spec }),
    )
    .await;
}

async fn until_ready(client: &Client, name: &str) {
    let is_ready = |one: Option<&VolumeSnapshot>| {
        one.is_some_and(|one| one.status.as_ref().is_some_and(|status| status.ready_to_use == Some(true)))
    };
    await_condition(Api::<VolumeSnapshot>::default_namespaced(client.clone()), name, is_ready).await.unwrap();
}

async fn start_held(storage: &Arc<Held>) -> Client {
    let world = World::start().await;
    let client = start_with(&world, Client::new(service(&world), "default"), storage.clone()).await;
    let class = json!({
        "apiVersion": COPIES, "kind": "VolumeSnapshotClass", "metadata": { "name": "copies" },
        "driver": NAME, "deletionPolicy": "Delete",
    });
    create::<VolumeSnapshotClass>(&Api::all(client.clone()), class).await;
    client
}

#[tokio::test]
async fn all_disks_of_a_guest_are_copied_at_once_where_copies_take_no_time() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["one", "two", "three"];
    let storage = Arc::new(Held::new(folder.path(), Copies::Shared, names.len()));
    let client = start_held(&storage).await;
    for name in names {
        bound(&client, name).await;
    }
    for name in names {
        snapshot(&client, name).await;
    }
    for name in names {
        until_ready(&client, name).await;
    }
}

#[tokio::test]
async fn a_snapshot_waits_for_no_claim_that_is_copied() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Arc::new(Held::new(folder.path(), Copies::Plain { why: "a test".to_owned() }, 1));
    let client = start_held(&storage).await;
    bound(&client, "one").await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
    for name in ["first", "second", "third"] {
        let mut copy = claim(&json!({ "dataSource": { "kind": "PersistentVolumeClaim", "name": "one" } }));
        copy["metadata"]["name"] = json!(name);
        create(&claims, copy).await;
    }
    eventually("the copies", async || (storage.begun().clones == 2).then_some(())).await;
    snapshot(&client, "one").await;
    until_ready(&client, "one").await;
    for name in ["first", "second", "third"] {
        await_condition(claims.clone(), name, is_bound).await.unwrap();
    }
}

#[tokio::test]
async fn bytes_that_no_object_tells_of_go_when_their_claim_does() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::start().await;
    let refuses = Arc::new(AtomicBool::new(true));
    let refusing = refuses.clone();
    let own = MapRequest::new(service(&world), move |mut request: http::Request<Body>| {
        let makes = request.method() == http::Method::POST && request.uri().path() == "/api/v1/persistentvolumes";
        if makes && refusing.load(Ordering::SeqCst) {
            *request.body_mut() = Body::from(b"{".to_vec());
        }
        request
    });
    let client = start_in(&world, Client::new(own, "default"), folder.path()).await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
    let uid = create(&claims, claim(&json!({}))).await.uid().unwrap();
    let place = folder.path().join(format!("pvc-{uid}"));
    eventually("the bytes", async || place.exists().then_some(())).await;
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    eventually("their end", async || (!place.exists()).then_some(())).await;
    // Others are served again.
    refuses.store(false, Ordering::SeqCst);
    bound(&client, "other").await;
}
