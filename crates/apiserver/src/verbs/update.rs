//! PUT, and the cycle that every change of an existing object goes through: read, change, check, write if nobody else
//! did meanwhile.

use std::sync::Arc;

use http::{Response, StatusCode};
use serde_json::Value;
use structural::FieldError;

use super::{Call, create};
use crate::body::Body;
use crate::bounds;
use crate::meta;
use crate::registry::Content;
use crate::request::WriteOptions;
use crate::route::access::Asked;
use crate::status::{Status, Subject};
use crate::store::{Draft, Expect, LARGEST_OBJECT, Object, Write, WriteError};

/// Built-in kinds that are not replaced blindly.
const MUST_BE_READ: [&str; 9] = [
    "apiservices",
    "customresourcedefinitions",
    "flowschemas",
    "leases",
    "mutatingwebhookconfigurations",
    "poddisruptionbudgets",
    "prioritylevelconfigurations",
    "validatingadmissionpolicies",
    "validatingwebhookconfigurations",
];

/// A change that keeps losing to others is given up after this many tries.
const ATTEMPTS: usize = 20;

pub(super) async fn run(mut call: Call) -> Result<Response<Body>, Status> {
    let options = WriteOptions::parse(&call.query, "UpdateOptions")?;
    let object = call.object(options.validation)?;
    check_names(&call, &object)?;
    let exists = call.current().is_ok();
    if !exists && call.target.subresource.is_none() && call.resource.strategy.create_on_update() {
        let uid = meta::text(&object, "uid");
        if !uid.is_empty() {
            let problem = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: ");
            return Err(Status::conflict(call.resource.subject(), call.name(), problem));
        }
        check_revision(meta::text(&object, "resourceVersion"))?;
        // Who may replace may not create for that alone.
        Asked::of_resource("create", &call.target, &call.query).check(&call.server, &call.identity)?;
        let mut object = object;
        if let Some(metadata) = meta::of(&mut object) {
            metadata.remove("resourceVersion");
        }
        return create::create(&mut call, object, options).await;
    }
    let changed = change(&mut call, options, |_, _| Ok(object.clone())).await?;
    call.answer(StatusCode::OK, &changed)
}

fn check_names(call: &Call, object: &Value) -> Result<(), Status> {
    let name = meta::text(object, "name");
    if name.is_empty() {
        let problem =
            format!("the name of the object ({} based on URL) was undeterminable: name must be provided", call.name());
        return Err(Status::bad_request(problem));
    }
    if name != call.name() {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            call.name()
        )));
    }
    check_namespace(call, object)?;
    let unconditional = matches!(meta::text(object, "resourceVersion"), "" | "0");
    let careful = call.resource.is_custom() || MUST_BE_READ.contains(&call.resource.plural.as_str());
    if unconditional && careful && call.current().is_ok() {
        // Whoever replaces such an object must have read it.
        let error = FieldError {
            field: "metadata.resourceVersion".to_owned(),
            reason: structural::Reason::Invalid,
            message: "Invalid value: 0: must be specified for an update".to_owned(),
        };
        let subject = Subject { kind: &call.resource.plural, ..call.resource.subject() };
        return Err(Status::invalid(subject, name, &[error]));
    }
    Ok(())
}

/// The namespace in an object must be that of the path. Cluster-wide kinds do not look at it.
pub(super) fn check_namespace(call: &Call, object: &Value) -> Result<(), Status> {
    let given = meta::text(object, "namespace");
    if call.resource.namespaced && !given.is_empty() && given != call.namespace() {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(message));
    }
    Ok(())
}

/// Reads the object, has it changed, and writes it. `make` gets the object in the stored form and gives the new one; it
/// may be called several times.
pub(super) async fn change(
    call: &mut Call,
    options: WriteOptions,
    mut make: impl FnMut(&mut Call, &Value) -> Result<Value, Status>,
) -> Result<Arc<Object>, Status> {
    for _ in 0..ATTEMPTS {
        let current = call.current()?;
        let old = call.renderer().stored_value(&current)?;
        let warned = call.warnings.list().len();
        let new = make(call, &old)?;
        check_preconditions(call, &old, &new)?;
        let (object, draft) = prepare(call, &old, new, options)?;
        let unchanged = draft.same_content(&current.draft);
        if unchanged && current.revision >= call.resource.since {
            return Ok(current);
        }
        let finished = is_finished(call, &object);
        // One that was too large before the limit may shrink, and go.
        if !finished && draft.is_too_large() && draft.weight() > current.draft.weight() {
            return Err(Status::too_large(LARGEST_OBJECT));
        }
        if options.dry_run {
            return Ok(Arc::new(Object { revision: current.revision, draft }));
        }
        let name = call.name().to_owned();
        let write = Write {
            table: call.resource.table.clone(),
            key: call.key(),
            expect: Expect::Revision(current.revision),
            // The last finalizer of an object that was to be deleted takes the object with it.
            put: (!finished).then_some(draft.clone()),
            in_living_namespace: false,
            of_definition: None,
        };
        let removed = write.put.is_none();
        match call.server.store.write(write).await {
            // Shown as the change left it: the revision of the removal is for watchers.
            Ok(_) if removed => {
                call.written.deleted(&call.resource.plural, &object, true);
                return Ok(Arc::new(Object { revision: current.revision, draft }));
            }
            Ok(stored) => {
                call.written.changed(&call.resource.plural, &old, &object);
                return Ok(stored);
            }
            // A revision that was given is compared again, with what is there now.
            Err(WriteError::Changed) => call.warnings.list().truncate(warned),
            Err(error) => return Err(call.refusal(error, &name)),
        }
    }
    Err(Status::conflict(call.resource.subject(), call.name(), "it changes too often; please try again"))
}

/// Whether nothing keeps an object that is being deleted.
fn is_finished(call: &Call, object: &Value) -> bool {
    let deleting = !object["metadata"]["deletionTimestamp"].is_null();
    let waiting = object["metadata"]["deletionGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds > 0);
    deleting && !waiting && meta::list(object, "finalizers").is_empty() && !call.resource.strategy.is_held(object)
}

/// Revision and UID in the new object, where given, are those of the old.
fn check_preconditions(call: &Call, old: &Value, new: &Value) -> Result<(), Status> {
    let given = meta::text(new, "resourceVersion");
    if !matches!(given, "" | "0") && given != meta::text(old, "resourceVersion") {
        check_revision(given)?;
        return Err(Status::modified(call.resource.subject(), call.name()));
    }
    let uid = meta::text(new, "uid");
    let current = meta::text(old, "uid");
    if !uid.is_empty() && uid != current {
        let problem = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {current}");
        return Err(Status::conflict(call.resource.subject(), call.name(), problem));
    }
    Ok(())
}

/// A revision that is no number. Clients know the answer by its text; Kubernetes gives no reason with it.
fn check_revision(given: &str) -> Result<(), Status> {
    if given.is_empty() || given.parse::<u64>().is_ok() {
        return Ok(());
    }
    let message = format!("strconv.ParseUint: parsing \"{given}\": invalid syntax");
    Err(Status::new(StatusCode::INTERNAL_SERVER_ERROR, "", message))
}

/// Takes back what this request may not change, counts the generation, and checks the result.
fn prepare(call: &mut Call, old: &Value, mut new: Value, options: WriteOptions) -> Result<(Value, Draft), Status> {
    let resource = call.resource.clone();
    let sub = call.target.subresource.clone();
    let sub = sub.as_deref();
    meta::carry_over(old, &mut new);
    if let Some(metadata) = meta::of(&mut new) {
        match call.target.namespace.clone() {
            Some(namespace) => drop(metadata.insert("namespace".to_owned(), namespace.into())),
            None => drop(metadata.remove("namespace")),
        }
    }
    reset(call, old, &mut new, sub);
    resource.strategy.prepare_update(old, &mut new, sub);
    call.admit("update", Some(old), Some(&mut new), options.dry_run)?;
    call.confirm_grant(Some(old), &new)?;
    // Where a pod runs is no wish of its owner.
    let bound = sub == Some("binding");
    if resource.generation && !bound && has_new_intent(call, old, &new) {
        let next = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
        new["metadata"]["generation"] = next.into();
    }
    let errors = validate(call, old, &new, sub);
    if !errors.is_empty() {
        return Err(Status::invalid(resource.subject(), call.name(), &errors));
    }
    call.reshape_for_storage(&mut new);
    let deep = bounds::depth(&new);
    // One that was too deep before the limit may change, if it grows no deeper.
    if deep > bounds::DEEPEST && deep > bounds::depth(old) {
        return Err(Status::too_deep());
    }
    let draft = Draft::new(&new, &resource.fields).map_err(Status::internal)?;
    Ok((new, draft))
}

/// A status is written through its subresource alone, and nothing else is.
fn reset(call: &Call, old: &Value, new: &mut Value, sub: Option<&str>) {
    let has_status = call.version.subresources.iter().any(|one| one.name == "status");
    match sub {
        None if has_status => put(new, "status", old.get("status")),
        Some("status") => {
            let status = new.get("status").cloned();
            let metadata = new.get("metadata").cloned();
            *new = old.clone();
            put(new, "status", status.as_ref());
            // Built-in kinds let a status update touch labels and annotations; custom ones do not.
            if !call.resource.is_custom() {
                put(new, "metadata", metadata.as_ref());
            }
        }
        _ => {}
    }
}

fn put(object: &mut Value, field: &str, value: Option<&Value>) {
    let Some(map) = object.as_object_mut() else { return };
    match value {
        Some(value) => drop(map.insert(field.to_owned(), value.clone())),
        None => drop(map.remove(field)),
    }
}

/// Whether anything changed that a controller must act on: all but metadata, and the status where it is written apart.
fn has_new_intent(call: &Call, old: &Value, new: &Value) -> bool {
    let has_status = call.version.subresources.iter().any(|one| one.name == "status");
    let apart = |name: &str| {
        matches!(name, "metadata" | "apiVersion" | "kind")
            || (name == "status" && (has_status || !call.resource.is_custom()))
    };
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return false };
    let differs = |one: &serde_json::Map<String, Value>, other: &serde_json::Map<String, Value>| {
        one.iter().any(|(name, value)| !apart(name) && other.get(name) != Some(value))
    };
    differs(old, new) || differs(new, old)
}

fn validate(call: &Call, old: &Value, new: &Value, sub: Option<&str>) -> Vec<FieldError> {
    let mut errors = meta::validate_update(old, new);
    errors.extend(call.resource.strategy.validate_update(old, new, sub));
    if let Content::Custom(custom) = &call.version.content {
        errors.extend(custom.schema().validate(new, Some(old)));
    }
    errors
}
