//! From a request to whoever answers it.

pub(crate) mod access;
mod bearer;
mod delegated;
mod opened;
mod pages;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::time::timeout;
use tracing::Instrument as _;

use crate::body::Body;
use crate::bounds::LARGEST_BODY;
use crate::identity::Identity;
use crate::impersonation;
use crate::metrics::Labels;
use crate::negotiate::{self, Encoding};
use crate::places::Caller;
use crate::registry::Resource;
use crate::request::{Query, Target};
use crate::serve::{Answers, Known};
use crate::served::Served;
use crate::server::Inner;
use crate::status::Status;
use crate::tokens::ISSUER;
use crate::verbs::{self, Call, Warnings};
use pages::{is_probe, page, written};

use access::Asked;
pub(crate) use access::not_allowed;
pub(crate) use delegated::Delegated;
pub use delegated::{Delegate, Delegation, RequestBody, StreamPlace};
pub(crate) use opened::{Opened, is_open};
pub(crate) use pages::missing;

/// A client that does not send its body within this time has gone.
const SLOWEST_BODY: Duration = Duration::from_secs(60);

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Answers a request, whatever it is.
pub(crate) async fn handle<B>(server: Arc<Inner>, request: Request<B>) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut served = Served::begin(&server, &request);
    let span = served.span.clone();
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let encoding = negotiate::objects(accept).map_or(Encoding::Json, |form| form.encoding);
    async move {
        let answer = answer(&server, request, &mut served).await;
        let status = answer.as_ref().err().map(|refused| refused.status.clone());
        let mut response = answer.unwrap_or_else(|refused| refusal(&refused, encoding));
        served.end(&server.metrics, &mut response, status.as_ref());
        response
    }
    .instrument(span)
    .await
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

async fn answer<B>(server: &Arc<Inner>, mut request: Request<B>, served: &mut Served) -> Result<Response<Body>, Refused>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let path = request.uri().path().to_owned();
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let target = Target::parse(&path);
    let asked = match &target {
        Some(target) => Asked::of_resource(access::verb(request.method(), target, &query), target, &query),
        None => Asked::of_path(&path, request.method()),
    };
    served.asks(&asked);
    if let Some(one) = opened::find(server, &path) {
        let stranger = Identity::anonymous();
        served.by(&stranger);
        return Ok(opened::call(one, &server.places.caller(&stranger, request.extensions()), request).await?);
    }
    let token = bearer::take(request.headers_mut())?;
    let who = identify(server, &request, token.as_deref())?;
    if who != Identity::anonymous()
        && let Some(known) = request.extensions().get::<Known>()
    {
        known.tell();
    }
    served.by(&who);
    // Whoever acts as another takes its own places.
    let caller = server.places.caller(&who, request.extensions());
    let identity = impersonation::apply(server, who.clone(), request.headers())?;
    if identity != who {
        served.acts_as(&identity);
    }
    let Some(target) = target else {
        if delegate(server, &path).is_some() {
            return Ok(missing());
        }
        permit(server, &asked, &identity, served)?;
        let place = if is_probe(&path) { None } else { caller.work().await? };
        let mut response = page(server, &path, &request)?;
        response.body_mut().keep((place, request.extensions().get::<Answers>().map(Answers::begin)));
        return Ok(response);
    };
    let Some(delegated) = delegate(server, &path) else {
        return resource(server, (identity, caller), (target, asked), query, request, served).await;
    };
    permit(server, &asked, &identity, served)?;
    Ok(delegated::call(server, delegated, (identity, caller), request).await?)
}

/// Lets a request go on, or not.
fn permit(server: &Inner, asked: &Asked, who: &Identity, served: &mut Served) -> Result<(), Status> {
    let decision = asked.judge(server, who);
    let allowed = asked.enforce(&decision, who);
    served.decided(decision);
    allowed
}

/// Who asks. Who shows a token that is not good is not taken for someone without.
fn identify<B>(server: &Inner, request: &Request<B>, token: Option<&str>) -> Result<Identity, Status> {
    if let Some(known) = request.extensions().get::<Identity>() {
        return Ok(known.clone());
    }
    match token {
        Some(token) => {
            let shown = server.who_shows(token, &[ISSUER.to_owned()]).ok_or_else(Status::unauthorized)?;
            Ok(shown.identity)
        }
        None => Ok(Identity::anonymous()),
    }
}

/// Whoever answers for a path below a group of its own.
fn delegate<'a>(server: &'a Inner, path: &str) -> Option<&'a Delegated> {
    let mut parts = path.strip_prefix("/apis/")?.splitn(3, '/');
    let (group, version, rest) = (parts.next()?, parts.next()?, parts.next()?);
    server.delegated.iter().find(|one| one.group == group && one.version == version && !rest.is_empty())
}

/// A request for objects.
async fn resource<B>(
    server: &Arc<Inner>,
    (identity, caller): (Identity, Caller<'_>),
    (target, asked): (Target, Asked),
    query: Query,
    request: Request<B>,
    served: &mut Served,
) -> Result<Response<Body>, Refused>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let verb = verbs::verb(request.method(), &target, &query).ok_or_else(Status::method_not_allowed)?;
    let registry = server.registry.load_full();
    permit(server, &asked, &identity, served)?;
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
    served.labels = Labels {
        verb: verb.to_uppercase(),
        group: resource.group.clone(),
        version: version.name.clone(),
        resource: resource.plural.clone(),
        subresource: known_subresource(&target, &resource, &version.name),
        scope: scope(&target).to_owned(),
    };
    let (parts, body) = request.into_parts();
    let accept = parts.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let representation = negotiate::objects(accept)?;
    let is_log = target.subresource.as_deref() == Some("log");
    let lasts = verb == "watch" || (is_log && query.flag("follow"));
    let (body, place) = if lasts {
        (Bytes::new(), caller.last()?)
    } else if matches!(verb, "get" | "list") {
        (Bytes::new(), caller.work().await?)
    } else {
        // A body takes its time: nobody holds a place meanwhile that another could be worked on in.
        let _reading = caller.read()?;
        let body = read(body).await?;
        (body, caller.work().await?)
    };
    // A collection is deleted object by object, which is no work that keeps a thread.
    let _heavy = if verb == "deletecollection" { None } else { caller.work_on(&body).await? };
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
        written: served.written.clone(),
    };
    let warnings = call.warnings.clone();
    let mut response = verbs::run(call, verb).await.map_err(|status| Refused { status, warnings })?;
    // Lists are made while they are sent; what lasts, and a log, may be read for as long as its client likes.
    let limited = parts.extensions.get::<Answers>().filter(|_| !lasts && !is_log).map(Answers::begin);
    response.body_mut().keep((place, limited));
    Ok(response)
}

fn has_built_in(registry: &crate::registry::Registry, group: &str) -> bool {
    registry.of_group(group).any(|one| !one.is_custom())
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

/// As labels of metrics have it: only what there is.
fn known_subresource(target: &Target, resource: &Resource, version: &str) -> String {
    target.subresource.clone().filter(|sub| resource.has_subresource(version, sub)).unwrap_or_default()
}

fn scope(target: &Target) -> &'static str {
    match (&target.name, &target.namespace) {
        (Some(_), _) => "resource",
        (None, Some(_)) => "namespace",
        (None, None) => "cluster",
    }
}

async fn read<B>(body: B) -> Result<Bytes, Status>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let limited = Limited::new(body, LARGEST_BODY);
    let late = Status::new(StatusCode::REQUEST_TIMEOUT, "Timeout", "the body of the request did not arrive in time");
    match timeout(SLOWEST_BODY, std::pin::pin!(limited).collect()).await.map_err(|_| late)? {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.downcast_ref::<LengthLimitError>().is_some() => Err(Status::too_large(LARGEST_BODY)),
        Err(error) => Err(Status::bad_request(format!("unable to read the body of the request: {error}"))),
    }
}
