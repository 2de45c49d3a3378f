//! POST of a `Binding`: what a scheduler decides.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::{Call, update};
use crate::body::Body;
use crate::meta;
use crate::request::WriteOptions;
use crate::status::Status;
use crate::strategy::set_condition;

/// POST of a `Binding`: the pod gets its node, once.
pub(super) async fn run(mut call: Call) -> Result<Response<Body>, Status> {
    let options = WriteOptions::parse(&call.query, "CreateOptions")?;
    let binding = call.document_of(("", "v1", "Binding"))?;
    let name = binding["metadata"]["name"].as_str().unwrap_or_default();
    if call.resource.plural == "bindings" {
        // The old way: the pod is named in the body alone.
        let registry = call.server.registry.load();
        let pods = registry.get("", "pods").cloned().ok_or_else(Status::not_served)?;
        call.version = pods.versions.first().cloned().ok_or_else(Status::not_served)?;
        call.resource = pods;
        call.target.name = Some(name.to_owned());
        call.target.subresource = Some("binding".to_owned());
    } else if !name.is_empty() && name != call.name() {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    let Some(node) = binding["target"]["name"].as_str().filter(|node| !node.is_empty()).map(str::to_owned) else {
        let error = structural::FieldError {
            field: "target.name".to_owned(),
            reason: structural::Reason::Required,
            message: "Required value".to_owned(),
        };
        let subject = crate::status::Subject { group: "", resource: "bindings", kind: "Binding" };
        return Err(Status::invalid(subject, name, &[error]));
    };
    let now = call.server.clock.now();
    update::change(&mut call, options, |call, old| assign(call, old, &binding, &node, now)).await?;
    let success = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 });
    call.answer_value(StatusCode::CREATED, &success)
}

fn assign(call: &Call, old: &Value, binding: &Value, node: &str, now: jiff::Timestamp) -> Result<Value, Status> {
    let subject = crate::status::Subject { resource: "pods/binding", ..call.resource.subject() };
    let refused = |problem: String| Err(Status::conflict(subject, call.name(), problem));
    if let Some(uid) =
        binding["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty() && *uid != meta::text(old, "uid"))
    {
        return refused(format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            meta::text(old, "uid")
        ));
    }
    if !old["metadata"]["deletionTimestamp"].is_null() {
        return refused(format!("pod {} is being deleted, cannot be assigned to a host", call.name()));
    }
    if let Some(node) = old["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
        return refused(format!("pod {} is already assigned to node \"{node}\"", call.name()));
    }
    if old["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        return refused(format!("pod {} has non-empty .spec.schedulingGates", call.name()));
    }
    let mut pod = old.clone();
    pod["spec"]["nodeName"] = node.into();
    for (key, value) in binding["metadata"]["annotations"].as_object().into_iter().flatten() {
        pod["metadata"]["annotations"][key] = value.clone();
    }
    let mut condition = json!({});
    set_condition(&mut condition, "PodScheduled", true, "", "", now);
    let mut scheduled = condition["conditions"][0].take();
    if let Some(scheduled) = scheduled.as_object_mut() {
        scheduled.remove("reason");
        scheduled.remove("message");
        scheduled.insert("lastProbeTime".to_owned(), Value::Null);
    }
    let mut others: Vec<Value> = pod["status"]["conditions"].as_array().into_iter().flatten().cloned().collect();
    others.retain(|one| one["type"] != "PodScheduled");
    others.push(scheduled);
    pod["status"]["conditions"] = others.into();
    Ok(pod)
}
