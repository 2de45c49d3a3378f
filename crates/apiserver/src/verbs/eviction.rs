//! What schedulers and drains do to pods: binding to a node, and eviction under a disruption budget.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::delete::{self, Options};
use super::{Call, update};
use crate::body::Body;
use crate::meta;
use crate::request::WriteOptions;
use crate::selector::LabelSelector;
use crate::status::Status;
use crate::store::{Draft, Expect, Key, Object, Write};
use crate::strategy::set_condition;

const ATTEMPTS: usize = 20;

/// POST of a `Binding`: the pod gets its node, once.
pub(super) async fn bind(mut call: Call) -> Result<Response<Body>, Status> {
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

/// POST of an `Eviction`: a deletion that a disruption budget may refuse.
pub(super) async fn run(mut call: Call) -> Result<Response<Body>, Status> {
    let asked = WriteOptions::parse(&call.query, "CreateOptions")?;
    let eviction = call.document_of(("policy", "v1", "Eviction"))?;
    let named = eviction["metadata"]["name"].as_str().unwrap_or_default();
    if !named.is_empty() && named != call.name() {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let mut options =
        Options::from_value(&eviction["deleteOptions"].as_object().map_or(json!({}), |map| map.clone().into()))?;
    options.dry |= asked.dry_run;
    let pod = call.renderer().stored_value(&*call.current()?)?;
    let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed" | "Pending"));
    let going = !pod["metadata"]["deletionTimestamp"].is_null();
    if !ended && !going {
        take_disruption(&call, &pod, options.dry).await?;
    }
    delete::delete(&mut call, &options).await?;
    let success = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 });
    call.answer_value(StatusCode::CREATED, &success)
}

/// Takes one of the disruptions that the pod's budget still allows; a dry run only looks whether there is one.
async fn take_disruption(call: &Call, pod: &Value, dry: bool) -> Result<(), Status> {
    let registry = call.server.registry.load_full();
    let Some(budgets) = registry.get("policy", "poddisruptionbudgets") else { return Ok(()) };
    for _ in 0..ATTEMPTS {
        let snapshot = call.server.store.snapshot();
        let objects = snapshot.objects(&budgets.table);
        let own = objects.iter().filter(|(key, object)| *key.namespace == *call.namespace() && covers(object, pod));
        let own: Vec<_> = own.collect();
        let (key, object) = match own.as_slice() {
            [] => return Ok(()),
            [one] => *one,
            _ => {
                let problem =
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
                return Err(Status::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", problem));
            }
        };
        let mut budget = object.value().map_err(Status::internal)?;
        let allowed = budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0);
        if allowed <= 0 {
            return Err(refused(key, &budget));
        }
        if dry {
            return Ok(());
        }
        budget["status"]["disruptionsAllowed"] = (allowed - 1).into();
        let now = crate::clock::text(call.server.clock.now());
        budget["status"]["disruptedPods"][call.name()] = now.into();
        let draft = Draft::new(&budget, &budgets.fields).map_err(Status::internal)?;
        let write = Write {
            table: budgets.table.clone(),
            key: key.clone(),
            expect: Expect::Revision(object.revision),
            put: Some(draft),
            in_living_namespace: false,
            of_definition: None,
        };
        // Whoever was faster may have taken the last one: look again.
        if call.server.store.write(write).await.is_ok() {
            return Ok(());
        }
    }
    Err(Status::too_many_requests("couldn't update PodDisruptionBudget, it changes too often"))
}

fn refused(key: &Key, budget: &Value) -> Status {
    let number = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    let cause = format!(
        "The disruption budget {} needs {} healthy pods and has {} currently",
        key.name,
        number("desiredHealthy"),
        number("currentHealthy")
    );
    Status::too_many_requests(message).with_cause("DisruptionBudget", &cause)
}

/// Whether a budget selects the pod. One that selects nothing by name selects all of its namespace.
fn covers(budget: &Object, pod: &Value) -> bool {
    let Ok(budget) = budget.value() else { return false };
    let label = |key: &str| pod["metadata"]["labels"][key].as_str();
    let selector = LabelSelector::text_of(&budget["spec"]["selector"]);
    selector.is_some_and(|text| LabelSelector::parse(&text).is_ok_and(|selector| selector.matches(label)))
}
