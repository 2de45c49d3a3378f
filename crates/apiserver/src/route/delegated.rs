//! Groups that another service answers for: how it is called, and their places in discovery and OpenAPI.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tower::Service as _;
use tower::util::BoxCloneSyncService;

use super::{BoxError, read};
use crate::body::Body;
use crate::identity::Identity;
use crate::places::{Caller, Seat};
use crate::server::Inner;
use crate::status::Status;

/// The body of a request that another service gets. It has arrived.
pub type RequestBody = UnsyncBoxBody<Bytes, BoxError>;

/// Another service that answers for a group. It must always be ready.
pub type Delegate = BoxCloneSyncService<Request<RequestBody>, Response<Body>, Infallible>;

/// A version of a group that another service answers for.
pub(crate) struct Delegated {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) says: Delegation,
    pub(crate) service: Delegate,
}

/// What clients are told about a version of a group that another service answers for.
#[derive(Clone, Debug, Default)]
pub struct Delegation {
    /// Its entries of an `APIResourceList`.
    pub resources: Vec<Value>,
    /// Its paths in OpenAPI, from the root of the server.
    pub paths: Map<String, Value>,
}

impl From<Vec<Value>> for Delegation {
    fn from(resources: Vec<Value>) -> Self {
        Self { resources, paths: Map::new() }
    }
}

/// The place of a connection that stops being HTTP, in the extensions of its request. Whoever takes the connection over keeps
/// this for as long as it lasts: it is counted against its caller until then, and the server waits for it at its end.
#[derive(Clone)]
pub struct StreamPlace {
    _seat: Arc<Option<Seat>>,
    stopping: watch::Receiver<bool>,
}

impl StreamPlace {
    /// Resolves when the server is about to end: whoever has this takes leave of its client then, and lets go of it.
    pub async fn stopping(&self) {
        // A server that is gone has stopped.
        let _ = self.stopping.clone().wait_for(|stopping| *stopping).await;
    }
}

/// Has a request answered by another service.
pub(super) async fn call<B>(
    server: &Inner,
    one: &Delegated,
    (identity, caller): (Identity, Caller<'_>),
    request: Request<B>,
) -> Result<Response<Body>, Status>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let upgrades = is_upgrade(&request);
    let (mut parts, body) = request.into_parts();
    let body = if upgrades {
        let stopping = server.stopping.subscribe();
        parts.extensions.insert(StreamPlace { _seat: Arc::new(caller.last()?), stopping });
        Bytes::new()
    } else {
        let _reading = caller.read()?;
        read(body).await?
    };
    let place = caller.work().await?;
    parts.extensions.insert(identity);
    let request = Request::from_parts(parts, Full::new(body).map_err(|never| match never {}).boxed_unsync());
    match one.service.clone().call(request).await {
        Ok(mut response) => {
            response.body_mut().keep(place);
            Ok(response)
        }
        Err(never) => match never {},
    }
}

/// Whether a client asks to go on with something else than HTTP.
fn is_upgrade<B>(request: &Request<B>) -> bool {
    let connection = request.headers().get_all(header::CONNECTION).iter();
    let mut words = connection.flat_map(|value| value.to_str().unwrap_or_default().split(','));
    request.method() == Method::GET
        && request.headers().contains_key(header::UPGRADE)
        && words.any(|word| word.trim().eq_ignore_ascii_case("upgrade"))
}

/// All groups in their order, each once, with its versions.
fn groups(all: &[Delegated]) -> Vec<Vec<&Delegated>> {
    let mut groups: Vec<Vec<&Delegated>> = Vec::new();
    for one in all {
        match groups.iter_mut().find(|group| group.iter().any(|other| other.group == one.group)) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups
}

/// The groups in `/apis`.
pub(super) fn group_entries(server: &Inner) -> Vec<Value> {
    let entry = |versions: Vec<&Delegated>| {
        let shown: Vec<Value> = versions
            .iter()
            .map(|one| json!({ "groupVersion": format!("{}/{}", one.group, one.version), "version": one.version }))
            .collect();
        json!({ "name": versions.first().map(|one| &one.group), "preferredVersion": shown.first(), "versions": shown })
    };
    groups(&server.delegated).into_iter().map(entry).collect()
}

/// `/apis/GROUP`, where the group is handed over.
pub(super) fn group_page(server: &Inner, group: &str) -> Option<Value> {
    let mut value = group_entries(server).into_iter().find(|one| one["name"] == group)?;
    value["kind"] = "APIGroup".into();
    value["apiVersion"] = "v1".into();
    Some(value)
}

/// Its resources, where the group is handed over.
pub(super) fn resources_of(server: &Inner, group: &str, version: &str) -> Option<Value> {
    let one = find(server, group, version)?;
    Some(json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": format!("{group}/{version}"),
        "resources": one.says.resources,
    }))
}

fn find<'a>(server: &'a Inner, group: &str, version: &str) -> Option<&'a Delegated> {
    server.delegated.iter().find(|one| one.group == group && one.version == version)
}

/// What `/` lists of them.
pub(super) fn paths(server: &Inner) -> Vec<String> {
    let mut paths = Vec::new();
    for versions in groups(&server.delegated) {
        paths.extend(versions.first().map(|one| format!("/apis/{}", one.group)));
        paths.extend(versions.iter().map(|one| format!("/apis/{}/{}", one.group, one.version)));
    }
    paths
}

/// Their entries of `/openapi/v3`.
pub(super) fn openapi_index(server: &Inner) -> impl Iterator<Item = (String, Value)> {
    server.delegated.iter().map(|one| {
        let path = format!("apis/{}/{}", one.group, one.version);
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(env!("CARGO_PKG_VERSION").as_bytes());
        hasher.update(json!(one.says.paths).to_string().as_bytes());
        let url = format!("/openapi/v3/{path}?hash={:08X}", hasher.finalize());
        (path, json!({ "serverRelativeURL": url }))
    })
}

/// The document of one of them.
pub(super) fn openapi(server: &Inner, path: &[&str]) -> Option<Value> {
    let ["apis", group, version] = path else { return None };
    let one = find(server, group, version)?;
    Some(json!({
        "openapi": "3.0.0",
        "info": { "title": one.group, "version": one.version },
        "paths": one.says.paths,
        "components": { "schemas": {} },
    }))
}

/// Adds their paths to the document of everything.
pub(super) fn add_to_everything(server: &Inner, document: &mut Value) {
    if let Some(paths) = document["paths"].as_object_mut() {
        paths.extend(server.delegated.iter().flat_map(|one| one.says.paths.clone()));
    }
}

/// The groups in the aggregated form.
pub(super) fn discovery_entries(server: &Inner) -> Vec<Value> {
    let entry = |versions: Vec<&Delegated>| {
        let shown: Vec<Value> = versions.iter().map(|one| discovery_version(one)).collect();
        json!({ "metadata": { "name": versions.first().map(|one| &one.group) }, "versions": shown })
    };
    groups(&server.delegated).into_iter().map(entry).collect()
}

/// The entries of a version: subresources hang below their resource there.
fn discovery_version(one: &Delegated) -> Value {
    let resources = &one.says.resources;
    let kind = |entry: &Value| json!({ "group": one.group, "version": one.version, "kind": entry["kind"] });
    let name = |entry: &Value| entry["name"].as_str().unwrap_or_default().to_owned();
    let subs = |plural: &str| -> Vec<Value> {
        let below = resources
            .iter()
            .filter_map(|entry| Some((entry, name(entry).strip_prefix(plural)?.strip_prefix('/')?.to_owned())));
        below
            .map(|(entry, sub)| json!({ "subresource": sub, "responseKind": kind(entry), "verbs": entry["verbs"] }))
            .collect()
    };
    let mut plurals: Vec<String> = Vec::new();
    for entry in resources {
        let plural = name(entry).split('/').next().unwrap_or_default().to_owned();
        if !plurals.contains(&plural) {
            plurals.push(plural);
        }
    }
    let resources: Vec<Value> = plurals
        .into_iter()
        .map(|plural| {
            let of = |entry: &&Value| name(entry).split('/').next() == Some(&plural);
            let own = resources.iter().find(|entry| name(entry) == plural);
            let namespaced = resources.iter().filter(of).any(|entry| entry["namespaced"] == true);
            json!({
                "resource": plural,
                "responseKind": own.map_or(json!({ "group": "", "version": "", "kind": "" }), kind),
                "scope": if namespaced { "Namespaced" } else { "Cluster" },
                "singularResource": own.map_or(json!(""), |entry| entry["singularName"].clone()),
                "verbs": own.map_or(json!([]), |entry| entry["verbs"].clone()),
                "subresources": subs(&plural),
            })
        })
        .collect();
    json!({ "version": one.version, "resources": resources, "freshness": "Current" })
}
