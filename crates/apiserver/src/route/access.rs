//! Whether a request may go on, and the refusal if not.

use http::{Method, StatusCode};

use crate::identity::{Attributes, Identity};
use crate::request::{Query, Target};
use crate::selector::FieldSelector;
use crate::server::Inner;
use crate::status::{Status, Subject};
use crate::verbs;

/// A path that is not about objects.
pub(super) fn path(server: &Inner, who: &Identity, path: &str, method: &Method) -> Result<(), Status> {
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
    let decision = server.decide(who, what);
    if decision.allowed {
        return Ok(());
    }
    let mut message = format!("forbidden: User \"{}\" cannot {verb} path \"{path}\"", who.user);
    add(&mut message, &decision.reason);
    Err(Status::new(StatusCode::FORBIDDEN, "Forbidden", message).with_empty_details())
}

/// What a request does that another service answers: it may know methods that this server does not.
pub(super) fn delegated_verb(method: &Method, target: &Target, query: &Query) -> &'static str {
    let plain = || match method.as_str() {
        "HEAD" if target.name.is_some() => "get",
        "HEAD" => "list",
        "PUT" => "update",
        "PATCH" => "patch",
        _ => "",
    };
    verbs::verb(method, target, query).unwrap_or_else(plain)
}

/// A request for objects.
pub(crate) fn resource(
    server: &Inner,
    who: &Identity,
    verb: &str,
    target: &Target,
    query: &Query,
) -> Result<(), Status> {
    // What follows a subresource in the path is its own affair.
    let subresource = target.subresource.as_deref().and_then(|sub| sub.split('/').next()).unwrap_or_default();
    let selected = if matches!(verb, "list" | "watch") { selected_name(query) } else { None };
    let name = target.name.as_deref().or(selected.as_deref()).unwrap_or_default();
    let what = Attributes {
        verb,
        group: &target.group,
        version: &target.version,
        resource: &target.resource,
        subresource,
        namespace: namespace(target),
        name,
        path: "",
    };
    let decision = server.decide(who, what);
    if decision.allowed { Ok(()) } else { Err(not_allowed(who, what, &decision.reason)) }
}

/// A namespace is in itself: whoever rules in one may be given a say about it.
fn namespace(target: &Target) -> &str {
    let own = || target.name.as_deref().filter(|_| target.resource == "namespaces");
    target.namespace.as_deref().or_else(own).unwrap_or_default()
}

/// The name that a list is about, where its selector leaves but one.
fn selected_name(query: &Query) -> Option<String> {
    let selector = FieldSelector::parse(query.get("fieldSelector")?).ok()?;
    let term = selector.requirements.into_iter().find(|one| one.field == "metadata.name" && one.equal)?;
    let is_segment = !matches!(term.value.as_str(), "." | "..") && !term.value.contains(['/', '%']);
    is_segment.then_some(term.value)
}

/// The refusal of something that somebody may not do.
pub(crate) fn not_allowed(who: &Identity, what: Attributes<'_>, reason: &str) -> Status {
    let full = match what.subresource {
        "" => what.resource.to_owned(),
        sub => format!("{}/{sub}", what.resource),
    };
    let place = match what.namespace {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace \"{namespace}\""),
    };
    let (user, verb, group) = (&who.user, what.verb, what.group);
    let mut problem = format!("User \"{user}\" cannot {verb} resource \"{full}\" in API group \"{group}\" {place}");
    add(&mut problem, reason);
    Status::forbidden(Subject { group, resource: what.resource, kind: "" }, what.name, problem)
}

fn add(message: &mut String, reason: &str) {
    if !reason.is_empty() {
        message.push_str(": ");
        message.push_str(reason);
    }
}
