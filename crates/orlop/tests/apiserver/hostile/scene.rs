//! A server in a process of its own, with a client that means harm and another that does not.

use std::cell::RefCell;
use std::time::Duration;

use bytes::Bytes;
use e2e::http::{Connection, Server};
use http::{Method, Response};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::waiting::eventually;
use tokio::time::sleep;

use super::measure::{Meter, Usage};
use crate::process::{Process, ask, map};

const NAMESPACE: &str = "/api/v1/namespaces/hostile";
const MAPS: &str = "/api/v1/namespaces/honest/configmaps";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
pub(super) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Objects of any shape.
pub(super) const TREES: &str = "/apis/example.com/v1/namespaces/hostile/trees";
/// How often others ask, each time for three things, however soon what is measured is done.
const ROUNDS: usize = 10;
/// Bytes of an honest object: none that is stored may have much more.
const LARGEST: usize = 1_400_000;

/// A request as it is sent, and what it may be answered.
#[derive(Clone)]
pub(super) struct Ask {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) content_type: String,
    accept: &'static str,
    pub(super) body: Bytes,
    pub(super) answers: &'static [u16],
    /// Asked again until it is answered so.
    awaited: bool,
}

impl Ask {
    pub(super) fn new(method: &str, path: impl Into<String>, kind: &str, body: impl Into<Bytes>) -> Self {
        Self {
            method: method.parse().unwrap(),
            path: path.into(),
            content_type: kind.to_owned(),
            accept: "application/json",
            body: body.into(),
            answers: &[200, 201],
            awaited: false,
        }
    }

    pub(super) fn post(path: impl Into<String>, body: &Value) -> Self {
        Self::new("POST", path, "application/json", body.to_string())
    }

    pub(super) fn patch(kind: &str, path: impl Into<String>, body: &Value) -> Self {
        Self::new("PATCH", path, &format!("application/{kind}-patch+json"), body.to_string())
    }

    pub(super) fn get(path: impl Into<String>) -> Self {
        Self::new("GET", path, "application/json", "")
    }

    /// For people to look at.
    pub(super) fn tabular(self) -> Self {
        Self { accept: "application/json;as=Table;v=v1;g=meta.k8s.io", ..self }
    }

    /// What it may be answered instead of a success.
    pub(super) fn answered(self, answers: &'static [u16]) -> Self {
        Self { answers, ..self }
    }

    /// A new kind is served some time after its definition was taken.
    pub(super) fn awaited(self) -> Self {
        Self { awaited: true, ..self }
    }

    pub(super) async fn send(&self, connection: &mut Connection) -> Response<Bytes> {
        let headers = [("content-type", self.content_type.as_str()), ("accept", self.accept)];
        let answer = eventually("the answer", async || {
            let answer = connection.ask(self.method.clone(), &self.path, &headers, self.body.clone()).await;
            let answer = answer.unwrap_or_else(|error| panic!("{}: {error:#}", self.path));
            (!self.awaited || self.answers.contains(&answer.status().as_u16())).then_some(answer)
        })
        .await;
        let code = answer.status().as_u16();
        let text: String = String::from_utf8_lossy(answer.body()).chars().take(2000).collect();
        assert!(self.answers.contains(&code), "{} {} was answered {code}: {text}", self.method, self.path);
        answer
    }
}

/// A server on disk. The client that means harm is a service account that may do everything.
pub(super) struct Scene {
    process: Process,
    folder: TempDir,
    flags: Vec<&'static str>,
    pub(super) hostile: Server,
    honest: Server,
}

impl Scene {
    pub(super) async fn begin(flags: &[&'static str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let process = Process::start_with(folder.path(), flags).await;
        let mut admin = process.connect().await.unwrap();
        let post = async |admin: &mut Connection, path: &str, body: Value| {
            ask(admin, Method::POST, path, &body).await.unwrap_or_else(|error| panic!("{path}: {error:#}"))
        };
        let mut tokens = Vec::new();
        for name in ["hostile", "honest"] {
            post(&mut admin, "/api/v1/namespaces", json!({ "metadata": { "name": name } })).await;
            let accounts = format!("/api/v1/namespaces/{name}/serviceaccounts");
            post(&mut admin, &accounts, json!({ "metadata": { "name": name } })).await;
            let token = post(&mut admin, &format!("{accounts}/{name}/token"), json!({})).await;
            tokens.push(token["status"]["token"].as_str().unwrap().to_owned());
            let subject = json!({ "kind": "ServiceAccount", "name": name, "namespace": name });
            let role =
                json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" });
            let binding = json!({ "metadata": { "name": name }, "roleRef": role, "subjects": [subject] });
            post(&mut admin, BINDINGS, binding).await;
        }
        post(&mut admin, DEFINITIONS, definition("trees", "Tree", &any())).await;
        Ask::get(TREES).awaited().send(&mut admin).await;
        post(&mut admin, MAPS, map("bystander", "0")).await;
        let [hostile, honest] = tokens.as_slice() else { panic!("two of them") };
        let (hostile, honest) = (process.with_token(hostile), process.with_token(honest));
        Self { process, folder, flags: flags.to_vec(), hostile, honest }
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Does something while others go about their business until it is done, and tells what the server used.
    pub(super) async fn measured<T>(&self, work: impl Future<Output = T>) -> (T, Usage) {
        let mut honest = self.honest.connect().await.unwrap();
        // What is made when it is first asked for is made now.
        business(&mut honest, 0, || ()).await;
        let meter = RefCell::new(Meter::begin(self.pid()));
        let others = async {
            let mut turn = 0;
            while turn < ROUNDS || !meter.borrow().is_done() {
                business(&mut honest, turn, || meter.borrow_mut().answered()).await;
                turn += 1;
                // What others use is counted, too: a request that waits for a disk is not charged with all that they could ask.
                if turn >= ROUNDS {
                    sleep(Duration::from_millis(20)).await;
                }
            }
        };
        let work = async {
            let done = work.await;
            meter.borrow_mut().done();
            done
        };
        let (done, ()) = tokio::join!(work, others);
        (done, meter.into_inner().end())
    }

    /// All of them, one after the other, on one connection.
    pub(super) async fn send(&self, all: &[Ask]) {
        let mut connection = self.hostile.connect().await.unwrap();
        for one in all {
            one.send(&mut connection).await;
        }
    }

    /// What is stored is there after a restart, all of it can be deleted, and with it the namespace.
    pub(super) async fn end(mut self) {
        let before = self.everything().await;
        self.process.terminate().await;
        self.process = Process::start_with(self.folder.path(), &self.flags).await;
        let after = self.everything().await;
        assert_eq!(after, before);
        let mut admin = self.process.connect().await.unwrap();
        for found in after.iter().filter(|found| found.is_its()) {
            if found.is_held {
                let free = json!({ "metadata": { "finalizers": null } });
                Ask::patch("merge", &found.path, &free).send(&mut admin).await;
            }
            Ask::new("DELETE", &found.path, "application/json", "").answered(&[200, 202, 404]).send(&mut admin).await;
        }
        eventually("nothing is left of it", async || {
            self.everything().await.iter().all(|found| !found.is_its()).then_some(())
        })
        .await;
        Ask::new("DELETE", NAMESPACE, "application/json", "").send(&mut admin).await;
        let mut namespace = ask(&mut admin, Method::GET, NAMESPACE, &Value::Null).await.unwrap();
        namespace["spec"]["finalizers"] = json!([]);
        let finalize = Ask::new("PUT", format!("{NAMESPACE}/finalize"), "application/json", namespace.to_string());
        finalize.send(&mut admin).await;
        Ask::get(NAMESPACE).answered(&[404]).send(&mut admin).await;
    }

    /// Every object of every kind that can be listed and deleted.
    async fn everything(&self) -> Vec<Found> {
        let mut admin = self.process.connect().await.unwrap();
        let mut versions = vec!["/api/v1".to_owned()];
        let groups = ask(&mut admin, Method::GET, "/apis", &Value::Null).await.unwrap();
        let preferred = groups["groups"].as_array().unwrap().iter();
        versions.extend(preferred.map(|group| format!("/apis/{}", text(&group["preferredVersion"]["groupVersion"]))));
        let mut all = Vec::new();
        for version in versions {
            let kinds = seen(&mut admin, &version).await;
            for kind in kinds["resources"].as_array().into_iter().flatten() {
                let can = |verb: &str| kind["verbs"].as_array().unwrap().iter().any(|one| one == verb);
                if !can("list") || !can("delete") {
                    continue;
                }
                let collection = format!("{version}/{}", text(&kind["name"]));
                let list = seen(&mut admin, &collection).await;
                let items = list["items"].as_array().into_iter().flatten();
                all.extend(items.map(|item| Found::of(&version, kind, item)));
            }
        }
        all
    }
}

/// An object that is stored.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    path: String,
    uid: String,
    revision: Option<String>,
    /// By finalizers, which nobody here acts on.
    is_held: bool,
}

impl Found {
    fn of(version: &str, kind: &Value, item: &Value) -> Self {
        let metadata = &item["metadata"];
        let within = if kind["namespaced"] == true {
            format!("/namespaces/{}", text(&metadata["namespace"]))
        } else {
            String::new()
        };
        // The server itself writes to definitions, in its own time.
        let is_definition = kind["name"] == "customresourcedefinitions";
        Self {
            path: format!("{version}{within}/{}/{}", text(&kind["name"]), text(&metadata["name"])),
            uid: text(&metadata["uid"]).to_owned(),
            revision: (!is_definition).then(|| text(&metadata["resourceVersion"]).to_owned()),
            is_held: !metadata["finalizers"].is_null(),
        }
    }

    /// Whether the client that means harm has made it: in its namespace, or as a kind of its own.
    fn is_its(&self) -> bool {
        self.path.starts_with(&format!("{NAMESPACE}/"))
            || self.path.contains("/namespaces/hostile/")
            || self.path.ends_with(".example.com")
    }
}

/// A document; none of a kind that was on its way out and is gone by now.
async fn seen(connection: &mut Connection, path: &str) -> Value {
    let answer = Ask::get(path).answered(&[200, 404]).send(connection).await;
    if answer.status() == 404 { Value::Null } else { serde_json::from_slice(answer.body()).unwrap() }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// What others do all day: look at something, change it, look at all.
async fn business(connection: &mut Connection, turn: usize, mut answered: impl FnMut()) {
    let one = format!("{MAPS}/bystander");
    let change = json!({ "data": { "turn": turn.to_string() } });
    for ask in [Ask::get(&one), Ask::patch("merge", &one, &change), Ask::get(MAPS)] {
        ask.send(connection).await;
        answered();
    }
}

/// Honest requests with as many bytes.
pub(super) fn twins(all: &[Ask]) -> Vec<Ask> {
    let mut twins = Vec::new();
    for one in all {
        let mut left = one.body.len();
        if left == 0 {
            twins.push(Ask::get(TREES));
            continue;
        }
        loop {
            twins.push(twin(&format!("twin-{}", twins.len()), left.min(LARGEST)));
            left = left.saturating_sub(LARGEST);
            if left == 0 {
                break;
            }
        }
    }
    twins
}

/// An object of so many bytes, as somebody would write it: items with a few fields each.
fn twin(name: &str, bytes: usize) -> Ask {
    let mut body = tree(name, &json!({ "items": [] })).to_string();
    let end = body.split_off(body.len() - "]}}".len());
    for item in 0.. {
        let item = json!({ "name": format!("item-{item}"), "value": "somewhat more text", "count": item }).to_string();
        if body.len() + item.len() + end.len() > bytes {
            break;
        }
        if !body.ends_with('[') {
            body.push(',');
        }
        body.push_str(&item);
    }
    Ask::new("POST", TREES, "application/json", body + &end)
}

pub(super) fn tree(name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": "Tree", "metadata": { "name": name }, "spec": spec })
}

/// A schema that takes everything.
pub(super) fn any() -> Value {
    json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// A definition of a kind with a schema for its spec.
pub(super) fn definition(plural: &str, kind: &str, spec: &Value) -> Value {
    let properties = json!({ "spec": spec, "color": { "type": "string" } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.example.com") },
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": { "plural": plural, "kind": kind },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "selectableFields": [{ "jsonPath": ".color" }],
                "schema": { "openAPIV3Schema": { "type": "object", "properties": properties } },
            }],
        },
    })
}
