//! Groups that another service answers for, and their places in discovery.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use serde_json::{Value, json};
use tower::util::BoxCloneSyncService;

use super::BoxError;
use crate::body::Body;
use crate::server::Inner;

/// The body of a request that another service gets.
pub type RequestBody = UnsyncBoxBody<Bytes, BoxError>;

/// Another service that answers for a group. It must always be ready.
pub type Delegate = BoxCloneSyncService<Request<RequestBody>, Response<Body>, Infallible>;

/// A group that another service answers for.
pub(crate) struct Delegated {
    pub(crate) group: String,
    pub(crate) version: String,
    /// Its entries of an `APIResourceList`.
    pub(crate) resources: Vec<Value>,
    pub(crate) service: Delegate,
}

/// The group in `/apis`.
pub(super) fn group_entry(one: &Delegated) -> Value {
    let version = json!({ "groupVersion": format!("{}/{}", one.group, one.version), "version": one.version });
    json!({ "name": one.group, "versions": [version], "preferredVersion": version })
}

/// Its resources, where the group is handed over.
pub(super) fn resources_of(server: &Inner, group: &str, version: &str) -> Option<Value> {
    let one = server.delegated.iter().find(|one| one.group == group && one.version == version)?;
    Some(json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": format!("{group}/{version}"),
        "resources": one.resources,
    }))
}

/// The same entries in the aggregated form: subresources hang below their resource there.
pub(super) fn discovery_entry(one: &Delegated) -> Value {
    let kind = |entry: &Value| json!({ "group": one.group, "version": one.version, "kind": entry["kind"] });
    let name = |entry: &Value| entry["name"].as_str().unwrap_or_default().to_owned();
    let subs = |plural: &str| -> Vec<Value> {
        let below = one
            .resources
            .iter()
            .filter_map(|entry| Some((entry, name(entry).strip_prefix(plural)?.strip_prefix('/')?.to_owned())));
        below
            .map(|(entry, sub)| json!({ "subresource": sub, "responseKind": kind(entry), "verbs": entry["verbs"] }))
            .collect()
    };
    let mut plurals: Vec<String> =
        one.resources.iter().map(|entry| name(entry).split('/').next().unwrap_or_default().to_owned()).collect();
    plurals.dedup();
    let resources: Vec<Value> = plurals
        .into_iter()
        .map(|plural| {
            let own = one.resources.iter().find(|entry| name(entry) == plural);
            let namespaced =
                one.resources.iter().any(|entry| name(entry).starts_with(&plural) && entry["namespaced"] == true);
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
    let version = json!({ "version": one.version, "resources": resources, "freshness": "Current" });
    json!({ "metadata": { "name": one.group }, "versions": [version] })
}
