//! A collector on the embedded server, with a tap between the two: it counts, and breaks what it is told to.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context as Task, Poll};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams, PropagationPolicy};
use kube::client::Body;
use kube::{Api, Client, ResourceExt};
use kube_controllers::garbage::GarbageCollector;
use manager::context::Context;
use serde_json::{Value, json};
use testkit::world::{self, World};
use tokio::time::sleep;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What the tap does.
#[derive(Default)]
pub(crate) struct Tapped {
    /// What went through, watches apart.
    pub(crate) requests: Vec<String>,
    /// Replies to the next so many deletions are lost, after they were done.
    pub(crate) lose_deletions: usize,
    /// Deletions that meet a conflict instead.
    pub(crate) conflicts: usize,
    /// Of five requests one is refused, and the reply to another lost.
    pub(crate) chaos: bool,
    /// Watches of paths that end so fail.
    pub(crate) unreadable: Option<&'static str>,
}

#[derive(Clone)]
struct Tap {
    client: Client,
    tapped: Arc<Mutex<Tapped>>,
}

impl tower::Service<Request<Body>> for Tap {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Task<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { client, tapped } = self.clone();
        Box::pin(async move {
            let (mut lost, mut fails) = (false, None);
            {
                let mut tapped = tapped.lock().unwrap();
                let path = request.uri().path();
                if request.uri().query().unwrap_or_default().contains("watch=true") {
                    if tapped.unreadable.is_some_and(|end| path.ends_with(end)) {
                        fails = Some(StatusCode::INTERNAL_SERVER_ERROR);
                    }
                } else {
                    tapped.requests.push(format!("{} {path}", request.method()));
                }
                // Without a rhythm, or the same step of a retry would always be hit.
                let mixed = (tapped.requests.len() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let dice = (mixed ^ (mixed >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 60;
                match dice {
                    0..3 if tapped.chaos => fails = Some(StatusCode::INTERNAL_SERVER_ERROR),
                    3..6 if tapped.chaos => lost = true,
                    _ => {}
                }
                if request.method() == Method::DELETE && tapped.lose_deletions > 0 {
                    tapped.lose_deletions -= 1;
                    lost = true;
                } else if request.method() == Method::DELETE && tapped.conflicts > 0 {
                    tapped.conflicts -= 1;
                    fails = Some(StatusCode::CONFLICT);
                }
            }
            if let Some(code) = fails {
                let status =
                    json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16() });
                return Ok(Response::builder().status(code).body(status.to_string().into_bytes().into())?);
            }
            let response = client.send(request).await?;
            if lost { Err("the connection was lost".into()) } else { Ok(response) }
        })
    }
}

pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) collector: GarbageCollector,
    pub(crate) tapped: Arc<Mutex<Tapped>>,
    context: Context,
}

impl Cluster {
    /// A server and a collector that does not run yet.
    pub(crate) async fn idle() -> Self {
        let world = World::start().await;
        let context = world.kubernetes("generic-garbage-collector");
        // The tests' own requests do not go through the tap.
        let (client, tapped) = (world.client(), Arc::default());
        let tap = Tap { client: context.client.clone(), tapped: Arc::clone(&tapped) };
        let context = Context { client: Client::new(tap, "default"), ..context };
        let collector = GarbageCollector::new(&context);
        Self { client, collector, tapped, context }
    }

    pub(crate) async fn start() -> Self {
        let cluster = Self::idle().await;
        cluster.run();
        cluster.settle().await;
        cluster
    }

    pub(crate) fn run(&self) {
        world::watch(&self.context);
        let collector = self.collector.clone();
        tokio::spawn(async move { collector.run(5).await });
    }

    /// Everything comes to rest, the looks after a changed definition too.
    pub(crate) async fn settle(&self) {
        sleep(Duration::from_secs(60)).await;
    }

    pub(crate) fn api(&self, kind: (&str, &str, &str), namespace: &str) -> Api<DynamicObject> {
        let (api_version, kind, plural) = kind;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        };
        if namespace.is_empty() {
            return Api::all_with(self.client.clone(), &resource);
        }
        Api::namespaced_with(self.client.clone(), namespace, &resource)
    }

    /// Creates an object and gives a reference to it.
    pub(crate) async fn make(&self, kind: Kind, namespace: &str, name: &str, owners: &[Value]) -> Value {
        let mut object = json!({
            "apiVersion": kind.0,
            "kind": kind.1,
            "metadata": { "name": name, "ownerReferences": owners },
        });
        match kind.1 {
            "Pod" => object["spec"] = json!({ "containers": [{ "name": "c", "image": "i" }] }),
            "ReplicaSet" | "Deployment" => {
                let template = json!({
                    "metadata": { "labels": { "app": "a" } },
                    "spec": { "containers": [{ "name": "c", "image": "i" }] },
                });
                object["spec"] = json!({ "selector": { "matchLabels": { "app": "a" } }, "template": template });
            }
            _ => {}
        }
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let made = self.api(kind, namespace).create(&PostParams::default(), &object).await.unwrap();
        json!({ "apiVersion": kind.0, "kind": kind.1, "name": name, "uid": made.uid().unwrap() })
    }

    pub(crate) async fn delete(&self, kind: Kind, namespace: &str, name: &str, policy: PropagationPolicy) {
        let parameters = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        self.api(kind, namespace).delete(name, &parameters).await.unwrap();
    }

    pub(crate) async fn names(&self, kind: Kind, namespace: &str) -> BTreeSet<String> {
        let list = self.api(kind, namespace).list(&ListParams::default()).await.unwrap();
        let names = list.items.iter().map(ResourceExt::name_any);
        names.filter(|name| name != "kube-root-ca.crt").collect()
    }

    pub(crate) async fn owners(&self, kind: Kind, namespace: &str, name: &str) -> Vec<String> {
        let object = self.api(kind, namespace).get(name).await.unwrap();
        object.owner_references().iter().map(|owner| owner.name.clone()).collect()
    }

    /// Defines the kind `Foo`.
    pub(crate) async fn define(&self) {
        let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": { "name": "foos.example.com" },
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": { "plural": "foos", "kind": "Foo" },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": schema }],
            },
        });
        let definition: DynamicObject = serde_json::from_value(definition).unwrap();
        self.api(DEFINITION, "").create(&PostParams::default(), &definition).await.unwrap();
        sleep(Duration::from_secs(1)).await;
    }

    /// The events that were written, reason and message.
    pub(crate) async fn events(&self) -> Vec<(String, String)> {
        let list = self.api(("v1", "Event", "events"), "").list(&ListParams::default()).await.unwrap();
        let text = |event: &DynamicObject, field: &str| event.data[field].as_str().unwrap_or_default().to_owned();
        list.items.iter().map(|event| (text(event, "reason"), text(event, "message"))).collect()
    }

    /// What the collector asked since the last time.
    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.tapped.lock().unwrap().requests)
    }

    /// Another collector, as after a restart.
    pub(crate) fn restarted(&self) -> GarbageCollector {
        GarbageCollector::new(&self.context)
    }
}

pub(crate) type Kind = (&'static str, &'static str, &'static str);
pub(crate) const CONFIG_MAP: Kind = ("v1", "ConfigMap", "configmaps");
pub(crate) const SECRET: Kind = ("v1", "Secret", "secrets");
pub(crate) const POD: Kind = ("v1", "Pod", "pods");
pub(crate) const REPLICA_SET: Kind = ("apps/v1", "ReplicaSet", "replicasets");
pub(crate) const DEPLOYMENT: Kind = ("apps/v1", "Deployment", "deployments");
pub(crate) const NAMESPACE: Kind = ("v1", "Namespace", "namespaces");
pub(crate) const ROLE: Kind = ("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles");
pub(crate) const DEFINITION: Kind =
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions");
pub(crate) const FOO: Kind = ("example.com/v1", "Foo", "foos");

pub(crate) fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The same reference, which holds its owner.
pub(crate) fn blocking(reference: &Value) -> Value {
    let mut reference = reference.clone();
    reference["blockOwnerDeletion"] = true.into();
    reference
}

/// A reference to an object that never was.
pub(crate) fn nobody(kind: Kind, name: &str) -> Value {
    json!({ "apiVersion": kind.0, "kind": kind.1, "name": name, "uid": format!("00000000-0000-0000-0000-{name:0>12}") })
}

pub(crate) async fn a_second() {
    sleep(Duration::from_secs(1)).await;
}
