//! From a request to whoever answers it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tower::Service as _;
use tower::util::BoxCloneSyncService;

use crate::body::Body;
use crate::identity::{Attributes, Identity};
use crate::metrics::Labels;
use crate::negotiate::{self, Discovery, Encoding};
use crate::request::{Query, Target};
use crate::server::Inner;
use crate::status::Status;
use crate::verbs::{self, Call, Warnings};
use crate::{discovery, openapi};

/// A request's body may have this many bytes.
const MOST_BYTES: usize = 3 << 20;
/// A client that does not send its body within this time has gone.
const SLOWEST_BODY: Duration = Duration::from_secs(60);

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request that another service gets.
pub type RequestBody = UnsyncBoxBody<Bytes, BoxError>;

/// Another service that answers for a group. It must always be ready.
pub type Delegate = BoxCloneSyncService<Request<RequestBody>, Response<Body>, Infallible>;

/// A group that another service answers for.
pub(crate) struct Delegated {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resources: Vec<Value>,
    pub(crate) service: Delegate,
}

/// Answers a request, whatever it is.
pub(crate) async fn handle<B>(server: Arc<Inner>, request: Request<B>) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let started = Instant::now();
    let mut labels = Labels { verb: request.method().to_string(), ..Labels::default() };
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let encoding = negotiate::objects(accept).map_or(Encoding::Json, |form| form.encoding);
    server.metrics.running.inc();
    let answer = answer(&server, request, &mut labels).await;
    server.metrics.running.dec();
    let response = answer.unwrap_or_else(|refused| refusal(&refused, encoding));
    server.metrics.record(&labels, response.status().as_u16(), started.elapsed());
    response
}

/// A refusal on the wire.
fn refusal(refused: &Refused, encoding: Encoding) -> Response<Body> {
    let Refused { status, warnings } = refused;
    let mut response = written(&status.to_json(), encoding);
    *response.status_mut() = status.code;
    warnings.add_to(response.headers_mut());
    if let Some(seconds) = status.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// Why a request is refused, and what else is said about it.
struct Refused {
    status: Status,
    warnings: Warnings,
}

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        Self { status, warnings: Warnings::default() }
    }
}

async fn answer<B>(server: &Arc<Inner>, request: Request<B>, labels: &mut Labels) -> Result<Response<Body>, Refused>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let identity = request.extensions().get::<Identity>().cloned().unwrap_or_else(Identity::anonymous);
    let path = request.uri().path().to_owned();
    if let Some(delegated) = delegate(server, &path) {
        authorize(server, &identity, &path, request.method())?;
        let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        let answered = delegated.service.clone().call(request);
        return match answered.await {
            Ok(response) => Ok(response),
            Err(never) => match never {},
        };
    }
    match Target::parse(&path) {
        Some(target) => resource(server, identity, target, request, labels).await,
        None => {
            authorize(server, &identity, &path, request.method())?;
            Ok(page(server, &path, &request)?)
        }
    }
}

/// Whoever answers for a path below a group of its own.
fn delegate<'a>(server: &'a Inner, path: &str) -> Option<&'a Delegated> {
    let mut parts = path.strip_prefix("/apis/")?.splitn(3, '/');
    let (group, version, rest) = (parts.next()?, parts.next()?, parts.next()?);
    server.delegated.iter().find(|one| one.group == group && one.version == version && !rest.is_empty())
}

fn authorize(server: &Inner, who: &Identity, path: &str, method: &Method) -> Result<(), Status> {
    let verb = method.as_str().to_lowercase();
    let what = Attributes {
        verb: &verb,
        group: "",
        version: "",
        resource: "",
        subresource: "",
        namespace: "",
        name: "",
        path,
    };
    if server.authorizer.allows(who, what) {
        return Ok(());
    }
    let message = format!("forbidden: User \"{}\" cannot {verb} path \"{path}\"", who.user);
    Err(Status::new(StatusCode::FORBIDDEN, "Forbidden", message))
}

/// A request for objects.
async fn resource<B>(
    server: &Arc<Inner>,
    identity: Identity,
    target: Target,
    request: Request<B>,
    labels: &mut Labels,
) -> Result<Response<Body>, Refused>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let verb = verbs::verb(request.method(), &target, &query).ok_or_else(Status::method_not_allowed)?;
    let registry = server.registry.load_full();
    check_access(server, &identity, verb, &target)?;
    let found = registry.get(&target.group, &target.resource).cloned();
    let Some((resource, version)) =
        found.and_then(|found| Some((found.clone(), found.version(&target.version)?.clone())))
    else {
        // Groups that are built in know what they do not have; of others nothing is known at all.
        return if has_built_in(&registry, &target.group) { Err(Status::not_served().into()) } else { Ok(missing()) };
    };
    check_name(&target)?;
    if target.namespace.is_some() != resource.namespaced && (target.namespace.is_some() || target.name.is_some()) {
        return if resource.is_custom() { Ok(missing()) } else { Err(Status::not_served().into()) };
    }
    labels.verb = verb.to_uppercase();
    labels.group.clone_from(&resource.group);
    labels.version.clone_from(&version.name);
    labels.resource.clone_from(&resource.plural);
    labels.subresource =
        target.subresource.clone().filter(|sub| resource.has_subresource(&version.name, sub)).unwrap_or_default();
    labels.scope = scope(&target).to_owned();
    let (parts, body) = request.into_parts();
    // Watches wait for a living; they hold no body.
    let place = if verb == "watch" {
        None
    } else {
        let busy = || Status::too_many_requests("too many requests, please try again later");
        Some(server.places.try_acquire().map_err(|_| busy())?)
    };
    let accept = parts.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let representation = negotiate::objects(accept)?;
    let body = if matches!(verb, "get" | "list" | "watch") { Bytes::new() } else { read(body).await? };
    let call = Call {
        server: server.clone(),
        resource,
        version,
        target,
        query,
        identity,
        representation,
        headers: parts.headers,
        body,
        warnings: Warnings::default(),
    };
    let warnings = call.warnings.clone();
    let answered = verbs::run(call, verb).await;
    drop(place);
    answered.map_err(|status| Refused { status, warnings })
}

fn has_built_in(registry: &crate::registry::Registry, group: &str) -> bool {
    registry.resources().any(|one| one.group == group && !one.is_custom())
}

/// A name that can be part of no path is no name.
fn check_name(target: &Target) -> Result<(), Status> {
    let name = target.name.as_deref().unwrap_or_default();
    if name.contains('/') {
        return Err(Status::not_served());
    }
    if name.contains('%') {
        return Err(Status::bad_request(format!("Name parameter invalid: \"{name}\": may not contain '%'")));
    }
    Ok(())
}

fn scope(target: &Target) -> &'static str {
    match (&target.name, &target.namespace) {
        (Some(_), _) => "resource",
        (None, Some(_)) => "namespace",
        (None, None) => "cluster",
    }
}

fn check_access(server: &Inner, who: &Identity, verb: &str, target: &Target) -> Result<(), Status> {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let (subresource, namespace, name) = (text(&target.subresource), text(&target.namespace), text(&target.name));
    let what = Attributes {
        verb,
        group: &target.group,
        version: &target.version,
        resource: &target.resource,
        subresource: &subresource,
        namespace: &namespace,
        name: &name,
        path: "",
    };
    if server.authorizer.allows(who, what) {
        return Ok(());
    }
    let full =
        if subresource.is_empty() { target.resource.clone() } else { format!("{}/{subresource}", target.resource) };
    let place = if namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace \"{namespace}\"")
    };
    let problem =
        format!("User \"{}\" cannot {verb} resource \"{full}\" in API group \"{}\" {place}", who.user, target.group);
    let subject = crate::status::Subject { group: &target.group, resource: &target.resource, kind: "" };
    Err(Status::forbidden(subject, &name, problem))
}

async fn read<B>(body: B) -> Result<Bytes, Status>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let limited = Limited::new(body, MOST_BYTES);
    let late = Status::new(StatusCode::REQUEST_TIMEOUT, "Timeout", "the body of the request did not arrive in time");
    match timeout(SLOWEST_BODY, std::pin::pin!(limited).collect()).await.map_err(|_| late)? {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.downcast_ref::<LengthLimitError>().is_some() => Err(Status::too_large(MOST_BYTES)),
        Err(error) => Err(Status::bad_request(format!("unable to read the body of the request: {error}"))),
    }
}

/// What is not about objects: discovery, OpenAPI, health, version, metrics.
fn page<B>(server: &Inner, path: &str, request: &Request<B>) -> Result<Response<Body>, Status> {
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let registry = server.registry.load();
    let document = match parts.as_slice() {
        [""] => Some(json!({ "paths": paths(server) })),
        ["version"] => Some(version()),
        ["api", "v1"] => discovery::resources(&registry, "", "v1"),
        ["apis", group] => group_page(server, group),
        ["apis", group, version] => {
            discovery::resources(&registry, group, version).or_else(|| delegated_resources(server, group, version))
        }
        ["openapi", "v3"] => Some(openapi::index(&registry)),
        ["openapi", "v3", rest @ ..] => openapi::by_path(&registry, &rest.join("/")),
        ["openapi", "v2"] => Some(openapi::everything(&registry)),
        _ => None,
    };
    let answer = match (document, parts.as_slice()) {
        (Some(value), _) => {
            let (_, encoding) = negotiate::discovery(accept)?;
            written(&value, encoding)
        }
        (None, [check @ ("healthz" | "livez" | "readyz"), checks @ ..]) => health(server, check, checks, &query)?,
        (None, ["metrics"]) => metrics(server),
        (None, [root @ ("api" | "apis")]) => discovered(server, *root == "api", accept)?,
        (None, ["api", ..]) => return Err(Status::not_served()),
        (None, ["apis", group, ..]) if has_built_in(&registry, group) => return Err(Status::not_served()),
        (None, _) => return Ok(missing()),
    };
    // What is not there is not there by any method.
    if matches!(*request.method(), Method::GET | Method::HEAD) { Ok(answer) } else { Err(Status::method_not_allowed()) }
}

/// A path that nothing is at.
fn missing() -> Response<Body> {
    let mut response = Response::new(Body::whole("404 page not found\n"));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

fn written(value: &Value, encoding: Encoding) -> Response<Body> {
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

fn discovered(server: &Inner, core: bool, accept: &str) -> Result<Response<Body>, Status> {
    let registry = server.registry.load();
    let (wanted, encoding) = negotiate::discovery(accept)?;
    Ok(match wanted {
        Discovery::Plain if core => written(&discovery::core_versions(&server.address.load()), encoding),
        Discovery::Plain => {
            let mut groups = discovery::groups(&registry);
            if let Some(list) = groups["groups"].as_array_mut() {
                list.extend(server.delegated.iter().map(delegated_group));
            }
            written(&groups, encoding)
        }
        Discovery::Aggregated(form) => {
            let mut value = discovery::aggregated(&registry, core, form);
            if let Some(items) = value["items"].as_array_mut().filter(|_| !core) {
                items.extend(server.delegated.iter().map(delegated_discovery));
            }
            let mut response = written(&value, encoding);
            let text = format!("{};g=apidiscovery.k8s.io;v={form};as=APIGroupDiscoveryList", encoding.media_type());
            if let Ok(value) = HeaderValue::from_str(&text) {
                response.headers_mut().insert(header::CONTENT_TYPE, value);
            }
            response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
            response
        }
    })
}

fn group_page(server: &Inner, group: &str) -> Option<Value> {
    discovery::group(&server.registry.load(), group).or_else(|| {
        let one = server.delegated.iter().find(|one| one.group == group)?;
        let mut value = delegated_group(one);
        value["kind"] = "APIGroup".into();
        value["apiVersion"] = "v1".into();
        Some(value)
    })
}

fn delegated_group(one: &Delegated) -> Value {
    let version = json!({ "groupVersion": format!("{}/{}", one.group, one.version), "version": one.version });
    json!({ "name": one.group, "versions": [version], "preferredVersion": version })
}

fn delegated_resources(server: &Inner, group: &str, version: &str) -> Option<Value> {
    let one = server.delegated.iter().find(|one| one.group == group && one.version == version)?;
    Some(json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": format!("{group}/{version}"),
        "resources": one.resources,
    }))
}

/// The same entries in the aggregated form: subresources hang below their resource there.
fn delegated_discovery(one: &Delegated) -> Value {
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

fn metrics(server: &Inner) -> Response<Body> {
    let snapshot = server.store.snapshot();
    let text = server.metrics.text(snapshot.tables().map(|(table, count)| (&**table, count)));
    let mut response = Response::new(Body::whole(text));
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// `/readyz`, `/readyz/ping`, `/readyz?verbose`
fn health(server: &Inner, endpoint: &str, checks: &[&str], query: &Query) -> Result<Response<Body>, Status> {
    let store = server.store.failure();
    let all = [("ping", None), ("store", store), ("definitions", None)];
    if let [name] = checks {
        let (_, problem) = all.iter().find(|(check, _)| check == name).ok_or_else(Status::not_served)?;
        return Ok(match problem {
            None => plain(StatusCode::OK, "ok".to_owned()),
            Some(reason) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {reason}\n")),
        });
    }
    let excluded: Vec<&str> = query.all("exclude").collect();
    let mut lines = String::new();
    let mut failed = false;
    for (name, problem) in all {
        match problem {
            _ if excluded.contains(&name) => lines.push_str(&format!("[+]{name} excluded: ok\n")),
            None => lines.push_str(&format!("[+]{name} ok\n")),
            Some(reason) => {
                failed = true;
                lines.push_str(&format!("[-]{name} failed: {reason}\n"));
            }
        }
    }
    if failed {
        return Ok(plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{lines}{endpoint} check failed\n")));
    }
    let verbose = query.get("verbose").is_some();
    Ok(plain(StatusCode::OK, if verbose { format!("{lines}{endpoint} check passed\n") } else { "ok".to_owned() }))
}
