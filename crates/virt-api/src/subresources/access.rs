//! Whether a caller may do it: the second stage, about the whole path. The first was about its first segment, which is all that
//! Kubernetes knows of a subresource.

use http::{Method, StatusCode};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};

use super::Caller;
use super::answer::Problem;
use super::routes::{Matched, Scope};
use super::says::GROUP;

/// Lets a request go on, or not.
pub(super) async fn check(client: &Client, caller: Option<&Caller>, matched: &Matched) -> Result<(), Problem> {
    // What is below no namespace is told to everybody, as in KubeVirt.
    if matched.scope == Scope::Version {
        return Ok(());
    }
    let Some(caller) = caller else {
        return Err(Problem::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized"));
    };
    let attributes = attributes(matched);
    let Caller { user, groups, uid, extra } = caller.clone();
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user),
            groups: Some(groups),
            uid: (!uid.is_empty()).then_some(uid),
            extra: (!extra.is_empty()).then_some(extra),
            resource_attributes: Some(attributes.clone()),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let api: Api<SubjectAccessReview> = Api::all(client.clone());
    let reviewed = api.create(&PostParams::default(), &review).await.map_err(Problem::internal)?;
    let status = reviewed.status.unwrap_or_default();
    if status.allowed { Ok(()) } else { Err(refusal(caller, &attributes, status.reason.as_deref())) }
}

/// What is asked for, in the words of roles.
fn attributes(matched: &Matched) -> ResourceAttributes {
    let verb = if matched.method == Method::PUT { "update" } else { "get" };
    let (resource, subresource) = match matched.scope {
        Scope::Version | Scope::Namespace => (matched.subresource.as_str(), None),
        Scope::Vm => ("virtualmachines", Some(matched.subresource.clone())),
        Scope::Instance => ("virtualmachineinstances", Some(matched.subresource.clone())),
    };
    ResourceAttributes {
        verb: Some(verb.to_owned()),
        group: Some(GROUP.to_owned()),
        version: Some(matched.version.clone()),
        resource: Some(resource.to_owned()),
        subresource,
        namespace: Some(matched.namespace.clone()),
        name: (!matched.name.is_empty()).then(|| matched.name.clone()),
        ..ResourceAttributes::default()
    }
}

/// In Kubernetes' words.
fn refusal(caller: &Caller, asked: &ResourceAttributes, reason: Option<&str>) -> Problem {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let resource = text(&asked.resource);
    let full = asked.subresource.as_ref().map_or_else(|| resource.clone(), |sub| format!("{resource}/{sub}"));
    let (user, verb, namespace, name) =
        (&caller.user, text(&asked.verb), text(&asked.namespace), asked.name.as_deref().unwrap_or_default());
    let mut message = format!(
        "{resource}.{GROUP} \"{name}\" is forbidden: User \"{user}\" cannot {verb} resource \"{full}\" in API group \"{GROUP}\" in the namespace \"{namespace}\""
    );
    if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
        message.push_str(": ");
        message.push_str(reason);
    }
    Problem::new(StatusCode::FORBIDDEN, "Forbidden", message)
}
