//! A server in this process, and a client on it.

use apiserver::{ApiServer, Identity, Place};
use futures_util::{Stream, StreamExt as _};
use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};

/// A client, and what it asks most.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) server: ApiServer,
    pub(crate) client: kube::Client,
}

/// An answer: its status and what it says.
#[derive(Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    /// The body of an answer that must have this status.
    #[track_caller]
    pub(crate) fn expect(self, code: u16) -> Value {
        assert_eq!(self.code, code, "{}", self.body);
        self.body
    }
}

pub(crate) async fn server() -> Server {
    Server::on(ApiServer::builder(Place::Memory).seed(1).start().await.unwrap())
}

impl Server {
    pub(crate) fn on(server: ApiServer) -> Self {
        let client = kube::Client::new(server.for_identity(Identity::admin()), "default");
        Self { server, client }
    }

    pub(crate) async fn send(&self, request: Request<Vec<u8>>) -> Answer {
        let response = self.client.send(request.map(Body::from)).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
        let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| text());
        Answer { code: parts.status.as_u16(), headers: parts.headers, body }
    }

    async fn with_body(&self, method: &str, path: &str, content_type: &str, body: &Value) -> Answer {
        let request = Request::builder().method(method).uri(path).header("content-type", content_type);
        self.send(request.body(body.to_string().into_bytes()).unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).body(Vec::new()).unwrap()).await
    }

    pub(crate) async fn get_as(&self, path: &str, accept: &str) -> Answer {
        self.send(Request::get(path).header("accept", accept).body(Vec::new()).unwrap()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.with_body("POST", path, "application/json", body).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.with_body("PUT", path, "application/json", body).await
    }

    pub(crate) async fn merge(&self, path: &str, body: &Value) -> Answer {
        self.with_body("PATCH", path, "application/merge-patch+json", body).await
    }

    pub(crate) async fn patch(&self, kind: &str, path: &str, body: &Value) -> Answer {
        self.with_body("PATCH", path, &format!("application/{kind}-patch+json"), body).await
    }

    pub(crate) async fn delete(&self, path: &str, options: &Value) -> Answer {
        self.with_body("DELETE", path, "application/json", options).await
    }

    /// Opens a watch; its frames come one by one.
    pub(crate) async fn watch(&self, path: &str) -> Frames {
        let response = self.client.send(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), 200);
        Frames {
            stream: Box::pin(response.into_body().into_data_stream().map(|piece| piece.unwrap())),
            rest: Vec::new(),
        }
    }

    /// Makes a definition and waits until it is served.
    pub(crate) async fn define(&self, definition: &Value) {
        self.post(DEFINITIONS, definition).await.expect(201);
        let name = definition["metadata"]["name"].as_str().unwrap();
        let mut frames = self.watch(&format!("{DEFINITIONS}?watch=1&fieldSelector=metadata.name={name}")).await;
        loop {
            let frame = frames.next().await;
            let conditions = frame["object"]["status"]["conditions"].as_array().cloned().unwrap_or_default();
            if conditions.iter().any(|one| one["type"] == "Established" && one["status"] == "True") {
                break;
            }
        }
        let spec = &definition["spec"];
        let version = spec["versions"][0]["name"].as_str().unwrap();
        let path = format!(
            "/apis/{}/{version}/{}",
            spec["group"].as_str().unwrap(),
            spec["names"]["plural"].as_str().unwrap()
        );
        while self.get(&path).await.code != 200 {
            tokio::task::yield_now().await;
        }
    }
}

/// The frames of a watch.
pub(crate) struct Frames {
    stream: std::pin::Pin<Box<dyn Stream<Item = bytes::Bytes> + Send>>,
    rest: Vec<u8>,
}

impl Frames {
    /// The next frame; null at the end.
    pub(crate) async fn next(&mut self) -> Value {
        loop {
            if let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return serde_json::from_slice(&line).unwrap();
            }
            match self.stream.next().await {
                Some(piece) => self.rest.extend_from_slice(&piece),
                None => return Value::Null,
            }
        }
    }

    /// The next frames, as type and name.
    pub(crate) async fn names(&mut self, count: usize) -> Vec<String> {
        let mut names = Vec::new();
        for _ in 0..count {
            let frame = self.next().await;
            let name = frame["object"]["metadata"]["name"].as_str().unwrap_or_default();
            names.push(format!("{} {name}", frame["type"].as_str().unwrap_or_default()));
        }
        names
    }
}

pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

pub(crate) fn map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "x": "1" } })
}

pub(crate) fn labelled(name: &str, labels: &Value) -> Value {
    let mut map = map(name);
    map["metadata"]["labels"] = labels.clone();
    map
}

pub(crate) fn pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "registry.example/i:1" }] },
    })
}

/// A definition with one version, its status and scale served.
pub(crate) fn widgets() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": { "plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"] },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": { "status": {}, "scale": { "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas" } },
                "selectableFields": [{ "jsonPath": ".spec.color" }],
                "additionalPrinterColumns": [
                    { "name": "Color", "type": "string", "jsonPath": ".spec.color" },
                    { "name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas" },
                ],
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": {
                            "type": "object",
                            "properties": {
                                "color": { "type": "string", "default": "red", "enum": ["red", "green", "blue"] },
                                "replicas": { "type": "integer", "minimum": 0, "default": 1 },
                                "fixed": { "type": "string", "x-kubernetes-validations": [{ "rule": "self == oldSelf", "message": "it is fixed" }] },
                            },
                        },
                        "status": { "type": "object", "properties": { "replicas": { "type": "integer" } } },
                    },
                } },
            }],
        },
    })
}

pub(crate) fn widget(name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": name }, "spec": spec })
}
