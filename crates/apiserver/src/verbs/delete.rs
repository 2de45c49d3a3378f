//! DELETE of one object or of many: grace periods, finalizers, dependents, preconditions.

mod options;

use std::sync::Arc;

use http::{Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

pub(super) use options::Options;

use super::Call;
use super::selection::Selection;
use crate::body::Body;
use crate::clock;
use crate::meta;
use crate::registry::Resource;
use crate::request;
use crate::served::Written;
use crate::server::Inner;
use crate::status::{self, Status};
use crate::store::{Draft, Expect, Key, Object, Write, WriteError};

const ATTEMPTS: usize = 20;
/// Without these there is no cluster.
const PERMANENT: [&str; 3] = ["default", "kube-public", "kube-system"];
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// What a deletion came to.
pub(super) enum Outcome {
    /// The object is gone.
    Gone(Arc<Object>),
    /// It is marked, and goes when whoever holds it lets it go.
    Marked(Arc<Object>),
}

pub(super) async fn run(mut call: Call) -> Result<Response<Body>, Status> {
    let options = Options::read(&call)?;
    if call.resource.strategy.orphans_by_default() && call.resource.group == "batch" && options.policy_is_unset() {
        let warning = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to \
                       remove them or set propagationPolicy=Orphan to suppress this warning";
        call.warnings.push(warning.to_owned());
    }
    let outcome = delete(&mut call, &options).await?;
    answer(&call, &options, outcome)
}

fn answer(call: &Call, options: &Options, outcome: Outcome) -> Result<Response<Body>, Status> {
    match outcome {
        Outcome::Gone(object) if !call.resource.strategy.returns_deleted() || !object.draft.is_readable() => {
            let metadata = object.draft.metadata();
            let uid = metadata["uid"].as_str().unwrap_or_default();
            let status = status::success(call.resource.subject(), call.name(), uid);
            call.answer_value(StatusCode::OK, &status)
        }
        Outcome::Gone(object) => call.answer(StatusCode::OK, &object),
        Outcome::Marked(object) => {
            // For the oldest clients alone, who asked in the oldest way.
            let accepted = options.orphan_dependents == Some(false);
            call.answer(if accepted { StatusCode::ACCEPTED } else { StatusCode::OK }, &object)
        }
    }
}

/// Deletes the call's object, or marks it for deletion.
pub(super) async fn delete(call: &mut Call, options: &Options) -> Result<Outcome, Status> {
    delete_saying(call, options, |_| ()).await
}

/// The same, and notes something in what stays of the object, in the same write.
pub(super) async fn delete_saying(
    call: &mut Call,
    options: &Options,
    say: impl Fn(&mut Value),
) -> Result<Outcome, Status> {
    for _ in 0..ATTEMPTS {
        let current = call.current()?;
        let readable = current.draft.is_readable();
        let old = if readable { call.renderer().stored_value(&current)? } else { rest_of(call, &current) };
        check(call, &old, options)?;
        call.admit("delete", Some(&old), None, options.dry)?;
        let mut new = mark(call, &old, options);
        say(&mut new);
        // Nobody could let go of what nobody can read.
        let gone = !readable || is_free(&call.resource, &new);
        let draft = Draft::new(&new, &call.resource.fields).map_err(Status::internal)?;
        if !gone && draft.same_content(&current.draft) {
            return Ok(Outcome::Marked(current));
        }
        if options.dry {
            let object = Arc::new(Object { revision: current.revision, draft });
            return Ok(if gone { Outcome::Gone(current) } else { Outcome::Marked(object) });
        }
        let name = call.name().to_owned();
        let write = Write {
            table: call.resource.table.clone(),
            key: call.key(),
            expect: Expect::Revision(current.revision),
            put: (!gone).then_some(draft),
            in_living_namespace: false,
            of_definition: None,
        };
        match call.server.store.write(write).await {
            Ok(object) => {
                call.written.deleted(&call.resource.plural, &new, gone);
                return match gone {
                    true if readable => last(call, &object, &new).map(Outcome::Gone),
                    true => Ok(Outcome::Gone(object)),
                    false => Ok(Outcome::Marked(object)),
                };
            }
            // Preconditions are looked at again, on what is there now.
            Err(WriteError::Changed) => {}
            Err(error) => return Err(call.refusal(error, &name)),
        }
    }
    Err(Status::conflict(call.resource.subject(), call.name(), "it changes too often; please try again"))
}

/// What is known of an object that cannot be read: its metadata, as far as that can.
fn rest_of(call: &Call, object: &Object) -> Value {
    let mut rest = json!({ "metadata": object.draft.metadata() });
    if let Some(metadata) = meta::of(&mut rest) {
        metadata.insert("name".to_owned(), call.name().into());
        metadata.insert("resourceVersion".to_owned(), object.revision.to_string().into());
        if let Some(namespace) = &call.target.namespace {
            metadata.insert("namespace".to_owned(), namespace.as_str().into());
        }
    }
    rest
}

/// What is shown of an object that is gone: kinds with a grace period show how it ended.
fn last(call: &Call, gone: &Arc<Object>, marked: &Value) -> Result<Arc<Object>, Status> {
    if call.resource.strategy.grace_period(marked, None).is_none() {
        return Ok(gone.clone());
    }
    let draft = Draft::new(marked, &call.resource.fields).map_err(Status::internal)?;
    Ok(Arc::new(Object { revision: gone.revision, draft }))
}

fn check(call: &Call, old: &Value, options: &Options) -> Result<(), Status> {
    let subject = call.resource.subject();
    let failed = |what: &str, given: &str, found: &str, perhaps: &str| {
        let problem = format!(
            "the {what} in the precondition ({given}) does not match the {what} in record ({found}). The object might \
             have been {perhaps}"
        );
        // Here Kubernetes names the kind, not the resource.
        let subject = status::Subject { resource: subject.kind, ..subject };
        Status::conflict(subject, call.name(), problem)
    };
    let is_namespace = &*call.resource.table == "namespaces";
    let preconditions = options.preconditions.clone().unwrap_or_default();
    if let Some(uid) = preconditions.uid.as_deref().filter(|uid| is_namespace && *uid != meta::text(old, "uid")) {
        let found = meta::text(old, "uid");
        let problem = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {found}");
        return Err(Status::conflict(subject, call.name(), problem));
    }
    if let Some(uid) = preconditions.uid.as_deref().filter(|uid| *uid != meta::text(old, "uid")) {
        return Err(failed("UID", uid, meta::text(old, "uid"), "deleted and then recreated"));
    }
    if let Some(version) = preconditions.resource_version.as_deref()
        && version != meta::text(old, "resourceVersion")
    {
        return Err(failed("ResourceVersion", version, meta::text(old, "resourceVersion"), "modified"));
    }
    if is_namespace && PERMANENT.contains(&call.name()) {
        return Err(Status::forbidden(subject, call.name(), "this namespace may not be deleted"));
    }
    Ok(())
}

/// The object as it is on its way out.
fn mark(call: &Call, old: &Value, options: &Options) -> Value {
    let resource = &call.resource;
    let mut new = old.clone();
    let marked = !old["metadata"]["deletionTimestamp"].is_null();
    let asked = resource.strategy.grace_period(old, options.grace_period_seconds);
    let grace = asked.unwrap_or(0);
    let now = call.server.clock.now();
    let Some(metadata) = meta::of(&mut new) else { return new };
    if !marked {
        let end = now.saturating_add(SignedDuration::from_secs(grace)).unwrap_or(now);
        metadata.insert("deletionTimestamp".to_owned(), clock::text(end).into());
        if &*resource.table != "namespaces" {
            metadata.insert("deletionGracePeriodSeconds".to_owned(), grace.into());
        }
        if let Some(generation) = metadata.get("generation").and_then(Value::as_i64).filter(|number| *number > 0) {
            metadata.insert("generation".to_owned(), (generation + 1).into());
        }
    } else if asked.is_some() {
        // A period can be cut short, never made longer; while it runs, nothing else about the deletion changes.
        let before = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
        let shorter = options.grace_period_seconds.is_some() && grace < before;
        if !shorter && before > 0 {
            return new;
        }
        if shorter {
            let start = metadata.get("deletionTimestamp").and_then(Value::as_str).and_then(|text| text.parse().ok());
            let start: Timestamp = start.unwrap_or(now);
            let end = start.saturating_sub(SignedDuration::from_secs(before - grace)).unwrap_or(now);
            metadata.insert("deletionTimestamp".to_owned(), clock::text(end).into());
            metadata.insert("deletionGracePeriodSeconds".to_owned(), grace.into());
        }
    }
    set_finalizers(metadata, options.policy(resource));
    if !marked {
        resource.strategy.deleting(&mut new);
    }
    new
}

/// What happens to dependents is somebody else's work; finalizers tell them, and keep the object until it is done.
fn set_finalizers(metadata: &mut serde_json::Map<String, Value>, policy: Option<&str>) {
    let Some(policy) = policy else { return };
    let list = metadata.entry("finalizers").or_insert_with(|| json!([]));
    let Some(list) = list.as_array_mut() else { return };
    list.retain(|one| one != ORPHAN && one != FOREGROUND);
    match policy {
        "Orphan" => list.push(ORPHAN.into()),
        "Foreground" => list.push(FOREGROUND.into()),
        _ => {}
    }
    if list.is_empty() {
        metadata.remove("finalizers");
    }
}

/// Whether nothing keeps a marked object.
fn is_free(resource: &Resource, object: &Value) -> bool {
    let waiting = object["metadata"]["deletionGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds > 0);
    !waiting && meta::list(object, "finalizers").is_empty() && !resource.strategy.is_held(object)
}

/// Deletes all objects of a selection, each on its own; the answer lists them.
pub(super) async fn collection(mut call: Call) -> Result<Response<Body>, Status> {
    if call.resource.namespaced && call.target.namespace.is_none() {
        return Err(Status::method_not_allowed());
    }
    let options = Options::read(&call)?;
    let selection = Selection::of(&call)?;
    let snapshot = call.server.store.snapshot();
    let objects = snapshot.objects(&call.resource.table);
    let found: Vec<(Key, Arc<Object>)> = objects
        .iter()
        .filter(|(key, object)| selection.takes(key, object))
        .map(|(key, object)| (key.clone(), object.clone()))
        .collect();
    let mut items = Vec::new();
    for (key, object) in found {
        call.target.name = Some(key.name.to_string());
        match delete(&mut call, &options).await {
            Ok(_) if !object.draft.is_readable() => {}
            Ok(_) => {
                // As they were found.
                let mut value = call.renderer().value(&object)?;
                if !call.resource.is_custom()
                    && let Some(map) = value.as_object_mut()
                {
                    map.remove("apiVersion");
                    map.remove("kind");
                }
                items.push(value);
            }
            // Somebody else was faster.
            Err(status) if status.code == StatusCode::NOT_FOUND => {}
            Err(status) => return Err(status),
        }
    }
    call.written.several();
    let mut metadata = json!({ "resourceVersion": snapshot.revision.to_string() });
    if call.resource.is_custom() {
        metadata["continue"] = "".into();
    }
    let list = json!({
        "kind": call.resource.list_kind,
        "apiVersion": call.renderer().api_version(),
        "metadata": metadata,
        "items": items,
    });
    call.answer_value(StatusCode::OK, &list)
}

/// Deletes every object of a resource, as far as nothing holds them. Tells whether none is left.
pub(crate) async fn delete_everything(server: &Arc<Inner>, resource: &Arc<Resource>) -> Result<bool, Status> {
    let objects = server.store.snapshot().objects(&resource.table);
    let Some(version) = resource.versions.first() else { return Ok(objects.is_empty()) };
    let mut left = 0;
    for (key, _) in &objects {
        let mut call = Call {
            server: server.clone(),
            resource: resource.clone(),
            version: version.clone(),
            target: request::Target {
                namespace: (!key.namespace.is_empty()).then(|| key.namespace.to_string()),
                name: Some(key.name.to_string()),
                ..request::Target::default()
            },
            query: request::Query::default(),
            identity: crate::identity::Identity::admin(),
            representation: crate::negotiate::objects("")?,
            headers: http::HeaderMap::new(),
            body: bytes::Bytes::new(),
            warnings: super::Warnings::default(),
            written: Written::default(),
        };
        match delete(&mut call, &Options::default()).await {
            Ok(Outcome::Gone(_)) => {}
            Ok(Outcome::Marked(_)) => left += 1,
            Err(status) if status.code == StatusCode::NOT_FOUND => {}
            Err(status) => return Err(status),
        }
    }
    Ok(left == 0)
}
