//! What is not about objects: discovery, OpenAPI, health, version, metrics.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use serde_json::{Value, json};

use super::{delegated, has_built_in};
use crate::body::Body;
use crate::discovery::Document;
use crate::negotiate::{self, Discovery, Encoding};
use crate::registry::Registry;
use crate::request::Query;
use crate::server::{Check, Inner};
use crate::status::Status;
use crate::{discovery, openapi};

/// Answers for a path that is not about objects.
pub(super) fn page<B>(server: &Inner, path: &str, request: &Request<B>) -> Result<Response<Body>, Status> {
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let registry = server.registry.load_full();
    let document = match parts.as_slice() {
        [""] => Some(json!({ "paths": paths(server) })),
        ["version"] => Some(version()),
        ["api", "v1"] => discovery::resources(&registry, "", "v1"),
        ["apis", group] => group_page(server, group),
        ["apis", group, version] => {
            discovery::resources(&registry, group, version).or_else(|| delegated::resources_of(server, group, version))
        }
        ["openapi", "v3"] => Some(openapi::index(&registry, delegated::openapi_index(server))),
        _ => None,
    };
    let answer = match (document, parts.as_slice()) {
        (Some(value), _) => {
            let (_, encoding) = negotiate::discovery(accept)?;
            written(&value, encoding)
        }
        (None, [check @ ("healthz" | "livez" | "readyz"), checks @ ..]) => health(server, check, checks, &query)?,
        (None, ["metrics"]) => metrics(server),
        (None, ["openapi", "v2" | "v3", ..]) => {
            let Some(text) = openapi_text(server, &registry, &parts) else { return Ok(missing()) };
            negotiate::json(accept)?;
            let mut response = Response::new(Body::whole(text));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(Encoding::Json.media_type()));
            response
        }
        (None, [root @ ("api" | "apis")]) => discovered(server, *root == "api", request.headers())?,
        (None, ["api", ..]) => return Err(Status::not_served()),
        (None, ["apis", group, ..]) if has_built_in(&registry, group) => return Err(Status::not_served()),
        (None, _) => return Ok(missing()),
    };
    // What is not there is not there by any method.
    if matches!(*request.method(), Method::GET | Method::HEAD) { Ok(answer) } else { Err(Status::method_not_allowed()) }
}

/// `/openapi/v2`, `/openapi/v3/api/v1` and the like: large, and made once for all who ask.
fn openapi_text(server: &Inner, registry: &Arc<Registry>, parts: &[&str]) -> Option<Bytes> {
    server.openapi.get(registry, &parts.join("/"), || match parts {
        ["openapi", "v2"] => Some(everything(server, registry)),
        ["openapi", "v3", rest @ ..] => {
            openapi::by_path(registry, &rest.join("/")).or_else(|| delegated::openapi(server, rest))
        }
        _ => None,
    })
}

/// Whether a page tells how the server is: who asks for it must get an answer above all when it is busy.
pub(super) fn is_probe(path: &str) -> bool {
    ["/healthz", "/livez", "/readyz"].into_iter().any(|page| path == page || path.starts_with(&format!("{page}/")))
}

/// A path that nothing is at.
pub(crate) fn missing() -> Response<Body> {
    let mut response = Response::new(Body::whole("404 page not found\n"));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

pub(super) fn written(value: &Value, encoding: Encoding) -> Response<Body> {
    let yaml = (encoding == Encoding::Yaml).then(|| serde_saphyr::to_string(value).ok()).flatten();
    let mut response = Response::new(Body::whole(yaml.unwrap_or_else(|| format!("{value}\n"))));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(encoding.media_type()));
    response
}

fn plain(code: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(Body::whole(text));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

fn paths(server: &Inner) -> Vec<String> {
    let registry = server.registry.load();
    let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned()];
    for group in registry.groups().into_iter().filter(|group| !group.is_empty()) {
        paths.push(format!("/apis/{group}"));
        paths.extend(registry.versions(group).into_iter().map(|version| format!("/apis/{group}/{version}")));
    }
    paths.extend(delegated::paths(server));
    let others = ["/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"];
    paths.extend(others.into_iter().map(str::to_owned));
    paths
}

fn version() -> Value {
    let mut numbers = crate::VERSION.trim_start_matches('v').split('.');
    json!({
        "major": numbers.next(),
        "minor": numbers.next(),
        "gitVersion": format!("{}+orlop.{}", crate::VERSION, env!("CARGO_PKG_VERSION")),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, architecture()),
    })
}

/// In Go's words, which clients compare with.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn discovered(server: &Inner, core: bool, headers: &HeaderMap) -> Result<Response<Body>, Status> {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let registry = server.registry.load_full();
    let (wanted, encoding) = negotiate::discovery(accept)?;
    Ok(match wanted {
        Discovery::Plain if core => written(&discovery::core_versions(&server.address.load()), encoding),
        Discovery::Plain => {
            let mut groups = discovery::groups(&registry);
            if let Some(list) = groups["groups"].as_array_mut() {
                list.extend(delegated::group_entries(server));
            }
            written(&groups, encoding)
        }
        Discovery::Aggregated(form) => {
            let make = || {
                let mut value = discovery::aggregated(&registry, core, form);
                if let Some(items) = value["items"].as_array_mut().filter(|_| !core) {
                    items.extend(delegated::discovery_entries(server));
                }
                value
            };
            let mut response = match encoding {
                Encoding::Yaml => written(&make(), encoding),
                Encoding::Json => {
                    let document = server.discovery.get(&registry, core, form, make).map_err(Status::internal)?;
                    unless_known(document, headers)
                }
            };
            let text = format!("{};g=apidiscovery.k8s.io;v={form};as=APIGroupDiscoveryList", encoding.media_type());
            if let Ok(value) = HeaderValue::from_str(&text) {
                response.headers_mut().insert(header::CONTENT_TYPE, value);
            }
            response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
            response
        }
    })
}

/// A document, or that it is the one that the client has.
fn unless_known(Document { text, tag }: Document, asked: &HeaderMap) -> Response<Body> {
    let is_known = asked.get(header::IF_NONE_MATCH) == Some(&tag);
    let mut response = Response::new(Body::whole(if is_known { Bytes::new() } else { text }));
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    response.headers_mut().insert(header::ETAG, tag);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    response
}

fn group_page(server: &Inner, group: &str) -> Option<Value> {
    discovery::group(&server.registry.load(), group).or_else(|| delegated::group_page(server, group))
}

/// OpenAPI of all that is served here.
fn everything(server: &Inner, registry: &Registry) -> Value {
    let mut document = openapi::everything(registry);
    delegated::add_to_everything(server, &mut document);
    document
}

fn metrics(server: &Inner) -> Response<Body> {
    let snapshot = server.store.snapshot();
    let text = server.metrics.text(server.store.size(), snapshot.tables().map(|(table, count)| (&**table, count)));
    let mut response = Response::new(Body::whole(text));
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// `/readyz`, `/readyz/ping`, `/readyz?verbose`
fn health(server: &Inner, endpoint: &str, checks: &[&str], query: &Query) -> Result<Response<Body>, Status> {
    let check = |name: &str, answer| Check { name: name.to_owned(), answer };
    let size = server.store.size();
    let store = match server.store.failure() {
        Some(reason) => Err(reason),
        None => Ok(size.is_nearly_full().then(|| size.to_string())),
    };
    let mut all = vec![check("ping", Ok(None)), check("store", store), check("definitions", Ok(None))];
    // A part that is ill is no reason to end the process, which the other pages decide about.
    if endpoint == "readyz" {
        all.extend(server.readiness.get().into_iter().flat_map(|readiness| readiness()));
    }
    if let [name] = checks {
        let check = all.iter().find(|check| check.name == *name).ok_or_else(Status::not_served)?;
        return Ok(match &check.answer {
            Ok(_) => plain(StatusCode::OK, "ok".to_owned()),
            Err(reason) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {reason}\n")),
        });
    }
    let excluded: Vec<&str> = query.all("exclude").collect();
    let mut lines = String::new();
    let mut failed = false;
    for Check { name, answer } in &all {
        let line = match answer {
            _ if excluded.contains(&name.as_str()) => format!("[+]{name} excluded: ok\n"),
            Ok(None) => format!("[+]{name} ok\n"),
            Ok(Some(note)) => format!("[+]{name} ok: {note}\n"),
            Err(reason) => {
                failed = true;
                format!("[-]{name} failed: {reason}\n")
            }
        };
        lines.push_str(&line);
    }
    if failed {
        return Ok(plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{lines}{endpoint} check failed\n")));
    }
    let verbose = query.get("verbose").is_some();
    Ok(plain(StatusCode::OK, if verbose { format!("{lines}{endpoint} check passed\n") } else { "ok".to_owned() }))
}
