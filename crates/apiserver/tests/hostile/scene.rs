//! A server on disk, a hostile client and a bystander.

use std::path::Path;

use apiserver::{ApiServer, OpenError, Place};
use http::Request;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Answer, DEFINITIONS, MAPS, Server, map};

/// Objects of any shape.
pub(crate) const TREES: &str = "/apis/example.com/v1/namespaces/hostile/trees";
/// Of those that [`shrubs`] defines.
pub(crate) const SHRUBS: &str = "/apis/example.com/v1/namespaces/hostile/shrubs";
/// How often the bystander asks while a hostile request is worked on.
const ASKED: usize = 10;

pub(crate) struct Scene {
    pub(crate) server: Server,
    folder: TempDir,
}

impl Scene {
    /// With a namespace, and a kind whose objects may hold anything.
    pub(crate) async fn begin() -> Self {
        Self::with(&json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })).await
    }

    /// The same with a schema for what the objects may hold.
    pub(crate) async fn with(schema: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = open(&folder).await;
        server.post("/api/v1/namespaces", &json!({ "metadata": { "name": "hostile" } })).await.expect(201);
        server.define(&trees(schema)).await;
        server.post(MAPS, &map("bystander")).await.expect(201);
        Self { server, folder }
    }

    /// Sends a hostile request while the bystander goes about its business, and gives what the former was answered.
    pub(crate) async fn send(&self, request: Request<Vec<u8>>) -> Answer {
        let server = self.server.clone();
        let hostile = tokio::spawn(async move { server.send(request).await });
        for turn in 0..ASKED {
            self.server.get(&format!("{MAPS}/bystander")).await.expect(200);
            let change = json!({ "data": { "turn": turn.to_string() } });
            self.server.merge(&format!("{MAPS}/bystander"), &change).await.expect(200);
            self.server.get(MAPS).await.expect(200);
        }
        hostile.await.unwrap()
    }

    /// The same with a body of JSON.
    pub(crate) async fn request(&self, method: &str, path: &str, content_type: &str, body: &Value) -> Answer {
        let request = Request::builder().method(method).uri(path).header("content-type", content_type);
        self.send(request.body(body.to_string().into_bytes()).unwrap()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.request("POST", path, "application/json", body).await
    }

    pub(crate) async fn patch(&self, kind: &str, path: &str, body: &Value) -> Answer {
        self.request("PATCH", path, &format!("application/{kind}-patch+json"), body).await
    }

    /// Starts the server again on the same data.
    pub(crate) async fn restart(self) -> Self {
        self.restart_after(|_| ()).await
    }

    /// The same after something was done to the data.
    pub(crate) async fn restart_after(self, change: impl FnOnce(&Path)) -> Self {
        let Self { server, folder } = self;
        drop(server);
        // Whoever has opened it has waited for the writer's end.
        drop(open(&folder).await);
        change(folder.path());
        Self { server: open(&folder).await, folder }
    }

    /// Deletes everything, starts again, and finds nothing.
    pub(crate) async fn end(self, collections: &[&str]) {
        for collection in collections.iter().chain(&[TREES]) {
            self.server.delete(collection, &json!({ "propagationPolicy": "Background" })).await.expect(200);
        }
        self.server.delete(&format!("{DEFINITIONS}/trees.example.com"), &json!({})).await;
        self.server.delete(&format!("{MAPS}/bystander"), &json!({})).await.expect(200);
        let scene = self.restart().await;
        for collection in collections.iter().filter(|path| !path.contains("example.com")).chain(&[MAPS]) {
            let left = scene.server.get(collection).await.expect(200);
            assert_eq!(left["items"], json!([]), "{collection}");
        }
    }
}

async fn open(folder: &TempDir) -> Server {
    loop {
        match ApiServer::builder(Place::Folder(folder.path().to_owned())).start().await {
            Ok(server) => return Server::on(server),
            // The writer lets go of the lock when its task has ended.
            Err(OpenError::InUse { .. }) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
}

/// A definition of trees with a schema for their spec.
fn trees(spec: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "trees.example.com" },
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": { "plural": "trees", "singular": "tree", "kind": "Tree" },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "selectableFields": [{ "jsonPath": ".color" }],
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "properties": { "spec": spec, "color": { "type": "string" } },
                } },
            }],
        },
    })
}

/// A definition of a second kind, whose objects may hold anything.
pub(crate) fn shrubs() -> Value {
    let mut definition = trees(&json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true }));
    definition["metadata"]["name"] = "shrubs.example.com".into();
    definition["spec"]["names"] = json!({ "plural": "shrubs", "singular": "shrub", "kind": "Shrub" });
    definition
}

pub(crate) fn tree(name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": "Tree", "metadata": { "name": name }, "spec": spec })
}

/// `a` within `a`, so many times.
pub(crate) fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!({ "a": inner }))
}
