//! What the server serves, for those who have to ask again and again: as long as nothing has changed, the server says so,
//! and nothing is sent nor read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use kube::core::discovery::v2::{ACCEPT_AGGREGATED_DISCOVERY_V2, APIGroupDiscovery, APIGroupDiscoveryList};

/// Where the server tells: of its oldest group, and of all others.
const PLACES: [&str; 2] = ["/api", "/apis"];

/// Asks one server.
pub(crate) struct Discovery {
    client: Client,
    /// By place.
    known: Mutex<BTreeMap<&'static str, Document>>,
}

/// What the server told, and what that is called.
#[derive(Clone)]
struct Document {
    tag: HeaderValue,
    groups: Arc<[APIGroupDiscovery]>,
}

/// All groups that are served.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups(Vec<Arc<[APIGroupDiscovery]>>);

impl Groups {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &APIGroupDiscovery> {
        self.0.iter().flat_map(|groups| groups.iter())
    }

    /// Whether they are known to be those of another answer.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(|(one, other)| Arc::ptr_eq(one, other))
    }
}

#[cfg(test)]
impl From<Vec<APIGroupDiscovery>> for Groups {
    fn from(groups: Vec<APIGroupDiscovery>) -> Self {
        Self(vec![groups.into()])
    }
}

impl Discovery {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<&'static str, Document>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is served now.
    pub(crate) async fn groups(&self) -> Result<Groups, kube::Error> {
        let mut all = Vec::new();
        for place in PLACES {
            all.push(self.ask(place).await?);
        }
        Ok(Groups(all))
    }

    async fn ask(&self, place: &'static str) -> Result<Arc<[APIGroupDiscovery]>, kube::Error> {
        let known = self.known().get(place).cloned();
        let mut request = Request::get(place).header(header::ACCEPT, ACCEPT_AGGREGATED_DISCOVERY_V2);
        if let Some(known) = &known {
            request = request.header(header::IF_NONE_MATCH, &known.tag);
        }
        let request = request.body(Body::empty()).map_err(kube::Error::HttpError)?;
        let (head, body) = self.client.send(request).await?.into_parts();
        if let Some(known) = known.filter(|_| head.status == StatusCode::NOT_MODIFIED) {
            return Ok(known.groups);
        }
        let text = body.collect().await?.to_bytes();
        if !head.status.is_success() {
            let refused = serde_json::from_slice(&text)
                .unwrap_or_else(|_| Status::failure("discovery was refused", "").with_code(head.status.as_u16()));
            return Err(kube::Error::Api(refused.boxed()));
        }
        let list: APIGroupDiscoveryList = serde_json::from_slice(&text).map_err(kube::Error::SerdeError)?;
        let groups: Arc<[APIGroupDiscovery]> = list.items.into();
        if let Some(tag) = head.headers.get(header::ETAG).cloned() {
            self.known().insert(place, Document { tag, groups: groups.clone() });
        }
        Ok(groups)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use apiserver::{ApiServer, Identity, Place};
    use http::Response;
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use kube::Api;
    use kube::api::PostParams;
    use serde_json::json;

    use super::*;

    fn has(groups: &Groups, name: &str) -> bool {
        groups.iter().any(|group| group.metadata.as_ref().is_some_and(|one| one.name.as_deref() == Some(name)))
    }

    #[tokio::test]
    async fn what_has_not_changed_is_not_read_again_and_what_has_is() {
        let server = ApiServer::builder(Place::Memory).start().await.unwrap();
        let client = Client::new(server.for_identity(Identity::admin()), "default");
        let discovery = Discovery::new(client.clone());
        let first = discovery.groups().await.unwrap();
        assert!(has(&first, "apps") && !has(&first, "example.com"));
        assert!(discovery.groups().await.unwrap().is(&first));
        let definition: CustomResourceDefinition = serde_json::from_value(json!({
            "metadata": { "name": "foos.example.com" },
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": { "plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList" },
                "versions": [{ "name": "v1", "served": true, "storage": true,
                    "schema": { "openAPIV3Schema": { "type": "object" } } }],
            },
        }))
        .unwrap();
        Api::all(client).create(&PostParams::default(), &definition).await.unwrap();
        let mut now = first.clone();
        // The server serves it a moment after its definition is there.
        for _ in 0..1000 {
            if !now.is(&first) {
                break;
            }
            tokio::task::yield_now().await;
            now = discovery.groups().await.unwrap();
        }
        assert!(has(&now, "example.com"));
        assert!(discovery.groups().await.unwrap().is(&now));
    }

    fn answering(code: u16, text: &'static str) -> Discovery {
        let service = tower::service_fn(move |_: Request<Body>| async move {
            let mut answer = Response::new(Body::from(text.as_bytes().to_vec()));
            *answer.status_mut() = StatusCode::from_u16(code).unwrap();
            Ok::<_, Infallible>(answer)
        });
        Discovery::new(Client::new(service, "default"))
    }

    #[tokio::test]
    async fn a_server_that_tags_nothing_is_read_each_time() {
        let discovery = answering(200, r#"{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"apps"}}]}"#);
        let first = discovery.groups().await.unwrap();
        let second = discovery.groups().await.unwrap();
        assert!(has(&second, "apps") && !second.is(&first));
    }

    #[tokio::test]
    async fn a_refusal_is_told_with_its_code() {
        let status = r#"{"kind":"Status","status":"Failure","message":"busy","reason":"TooManyRequests","code":429}"#;
        for (code, text) in [(429, status), (502, "bad gateway"), (304, "")] {
            let error = answering(code, text).groups().await.unwrap_err();
            assert!(matches!(&error, kube::Error::Api(status) if status.code == code), "{error}");
        }
    }
}
