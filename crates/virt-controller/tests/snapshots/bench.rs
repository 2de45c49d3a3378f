//! A world with VMs that have claims, a storage that the test plays, and guests that do as they are asked.

use std::sync::{Arc, Mutex};

use api::restore::VirtualMachineRestore as Restore;
use api::snapshot::{VirtualMachineSnapshot as Snapshot, VirtualMachineSnapshotContent as Content};
use api::vm::VirtualMachine;
use api::volume_snapshot::{VolumeSnapshot, VolumeSnapshotClass};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use testkit::world::{seconds, until};

use super::support::World;

/// What was asked of guests, and that copies were made, in order.
#[derive(Clone, Default)]
pub(crate) struct Asked(Arc<Mutex<Vec<String>>>);

impl Asked {
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) async fn until(&self, what: &str) {
        until(&format!("that {what} is asked for"), async || {
            self.all().iter().any(|one| one.starts_with(what)).then_some(())
        })
        .await;
    }
}

pub(crate) struct Bench {
    pub(crate) world: World,
    pub(crate) asked: Asked,
    /// What guests answer, unless they do as they are asked.
    pub(crate) refusal: Arc<Mutex<Option<(u16, &'static str)>>>,
}

impl Bench {
    pub(crate) async fn start() -> Self {
        let (asked, refusal) = (Asked::default(), Arc::new(Mutex::new(None)));
        let (noting, refusing) = (asked.clone(), refusal.clone());
        let world = World::start_with(move |client| {
            let service = tower::service_fn(move |request: http::Request<Body>| {
                let (client, asked, refusal) = (client.clone(), noting.clone(), *refusing.lock().unwrap());
                async move { answer(&client, &asked, refusal, request).await }
            });
            Client::new(service, "default")
        })
        .await;
        let this = Self { world, asked, refusal };
        this.define().await;
        this
    }

    fn api<T>(&self) -> Api<T>
    where
        T: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::default_namespaced(self.world.client.clone())
    }

    /// The kinds of a cluster that can copy volumes, with one storage class that can and one that cannot.
    async fn define(&self) {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.world.client.clone());
        for (plural, kind, scope) in [
            ("volumesnapshots", "VolumeSnapshot", "Namespaced"),
            ("volumesnapshotclasses", "VolumeSnapshotClass", "Cluster"),
        ] {
            let schema =
                json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
            let version = json!({
                "name": "v1", "served": true, "storage": true, "schema": schema, "subresources": { "status": {} },
            });
            let definition = json!({
                "metadata": { "name": format!("{plural}.snapshot.storage.k8s.io") },
                "spec": {
                    "group": "snapshot.storage.k8s.io", "scope": scope,
                    "names": { "plural": plural, "kind": kind }, "versions": [version],
                },
            });
            definitions.create(&PostParams::default(), &serde_json::from_value(definition).unwrap()).await.unwrap();
        }
        let storage: Api<StorageClass> = Api::all(self.world.client.clone());
        for (name, driver) in [("local", "driver"), ("slow", "other")] {
            let class = json!({ "metadata": { "name": name }, "provisioner": driver });
            storage.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
        }
        let classes: Api<VolumeSnapshotClass> = Api::all(self.world.client.clone());
        let class = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
            "metadata": { "name": "copies" }, "driver": "driver", "deletionPolicy": "Delete",
        });
        seconds(1).await;
        classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
    }

    pub(crate) fn claims(&self) -> Api<PersistentVolumeClaim> {
        self.api()
    }

    /// A claim that is bound.
    pub(crate) async fn claim(&self, name: &str, class: &str) {
        let claim = json!({ "metadata": { "name": name }, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "resources": { "requests": { "storage": "1Gi" } },
        } });
        self.claims().create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
        self.bind(name).await;
    }

    /// Plays the storage: a claim has its volume.
    pub(crate) async fn bind(&self, name: &str) {
        let bound = json!({ "status": { "phase": "Bound" } });
        self.claims().patch_status(name, &PatchParams::default(), &Patch::Merge(&bound)).await.unwrap();
    }

    /// Plays the controller that protects claims: nobody uses one that is to go.
    pub(crate) async fn let_go(&self, name: &str) {
        let free = json!({ "metadata": { "finalizers": [] } });
        self.claims().patch(name, &PatchParams::default(), &Patch::Merge(&free)).await.unwrap();
    }

    /// A VM with an image and these claims, each a volume of its claim's name.
    pub(crate) async fn machine(&self, name: &str, strategy: &str, claims: &[&str]) -> VirtualMachine {
        for claim in claims {
            self.claim(claim, "local").await;
        }
        let disks = claims.iter().map(|claim| json!({ "name": claim, "disk": { "bus": "virtio" } }));
        let disks: Vec<Value> = disks.chain([json!({ "name": "image", "disk": { "bus": "virtio" } })]).collect();
        let volumes =
            claims.iter().map(|claim| json!({ "name": claim, "persistentVolumeClaim": { "claimName": claim } }));
        let image = json!({ "name": "image", "containerDisk": { "image": "registry/disk:1" } });
        let volumes: Vec<Value> = volumes.chain([image]).collect();
        let spec = json!({ "runStrategy": strategy, "template": { "spec": {
            "domain": { "devices": { "disks": disks }, "memory": { "guest": "64Mi" } }, "volumes": volumes,
        } } });
        self.world.create_vm_with(name, &spec).await
    }

    pub(crate) async fn snapshot(&self, name: &str, vm: &str, more: &Value) {
        let mut spec = json!({ "source": { "apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": vm } });
        json_patch::merge(&mut spec, more);
        let snapshot = json!({
            "apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineSnapshot",
            "metadata": { "name": name }, "spec": spec,
        });
        self.snapshots().create(&PostParams::default(), &serde_json::from_value(snapshot).unwrap()).await.unwrap();
    }

    pub(crate) fn snapshots(&self) -> Api<Snapshot> {
        self.api()
    }

    pub(crate) fn contents(&self) -> Api<Content> {
        self.api()
    }

    pub(crate) fn restores(&self) -> Api<Restore> {
        self.api()
    }

    pub(crate) fn copies(&self) -> Api<VolumeSnapshot> {
        self.api()
    }

    /// Waits for a snapshot that satisfies something.
    pub(crate) async fn until(&self, name: &str, wanted: impl Fn(&Snapshot) -> bool) -> Snapshot {
        until(&format!("the wanted snapshot {name}"), async || {
            self.snapshots().get_opt(name).await.unwrap().filter(|one| wanted(one))
        })
        .await
    }

    pub(crate) async fn until_phase(&self, name: &str, phase: &str) -> Snapshot {
        self.until(name, |one| phase_of(one) == phase).await
    }

    /// Waits for so many VolumeSnapshots.
    pub(crate) async fn until_copies(&self, count: usize) -> Vec<VolumeSnapshot> {
        until("the copies", async || {
            let copies = self.copies().list(&Default::default()).await.unwrap().items;
            (copies.len() == count).then_some(copies)
        })
        .await
    }

    /// Plays the snapshot controller: every copy is made, and ready.
    pub(crate) async fn copy(&self, ready: bool) {
        let status = json!({ "status": {
            "creationTime": "1970-01-01T00:01:00Z", "readyToUse": ready, "restoreSize": "1Gi",
        } });
        for copy in self.copies().list(&Default::default()).await.unwrap().items {
            let api = self.copies();
            api.patch_status(&copy.name_any(), &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
        }
    }

    /// A snapshot of a VM that is stopped, ready to be used.
    pub(crate) async fn finished(&self, name: &str, vm: &str, claims: usize) -> Snapshot {
        self.snapshot(name, vm, &json!({})).await;
        self.until_copies(claims).await;
        self.copy(true).await;
        self.until(name, |one| one.status.as_ref().is_some_and(|status| status.ready_to_use == Some(true))).await
    }

    /// Plays the handler: sets or removes a condition of an instance.
    pub(crate) async fn condition(&self, vmi: &str, kind: &str, holds: bool) {
        let found = self.world.vmis().get(vmi).await.unwrap();
        let mut conditions = json!(found.status.unwrap().conditions.unwrap_or_default());
        let all = conditions.as_array_mut().unwrap();
        all.retain(|one| one["type"] != kind);
        if holds {
            all.push(json!({ "type": kind, "status": "True", "lastTransitionTime": "1970-01-01T00:01:00Z" }));
        }
        self.world.patch_vmi(vmi, &json!({ "status": { "conditions": conditions } })).await;
    }

    /// A VM that runs.
    pub(crate) async fn running(&self, name: &str, claims: &[&str]) {
        self.machine(name, "Always", claims).await;
        self.world.boot(name).await;
        self.world.word(name, "Running").await;
    }
}

async fn answer(
    client: &Client,
    asked: &Asked,
    refusal: Option<(u16, &'static str)>,
    request: http::Request<Body>,
) -> Result<http::Response<Body>, kube::Error> {
    let path = request.uri().path().to_owned();
    if path.ends_with("/volumesnapshots") && request.method() == http::Method::POST {
        asked.0.lock().unwrap().push("copy".to_owned());
    }
    let Some(rest) = path.strip_prefix("/apis/subresources.kubevirt.io/v1/namespaces/default/") else {
        return client.send(request).await;
    };
    let what = rest.rsplit('/').next().unwrap().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    let body = String::from_utf8(body.to_vec()).unwrap();
    asked.0.lock().unwrap().push(if body == "{}" { what } else { format!("{what} {body}") });
    let (code, message) = refusal.unwrap_or((200, ""));
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "message": message, "reason": "Told", "code": code,
    });
    let body = if code == 200 { String::new() } else { status.to_string() };
    Ok(http::Response::builder().status(code).body(Body::from(body.into_bytes())).unwrap())
}

pub(crate) fn phase_of(snapshot: &Snapshot) -> &str {
    snapshot.status.as_ref().and_then(|status| status.phase.as_ref()).map_or("", |phase| phase.as_str())
}

/// The reason of a condition, and whether it holds.
pub(crate) fn told(conditions: Option<&Vec<api::snapshot::Condition>>, kind: &str) -> (bool, String) {
    let found = conditions.into_iter().flatten().find(|one| one.type_ == kind);
    let holds = found.is_some_and(|one| one.status == api::conditions::ConditionStatus::True);
    (holds, found.and_then(|one| one.reason.clone()).unwrap_or_default())
}
