//! POST of a new object.

use http::{Response, StatusCode};
use serde_json::{Map, Value};
use structural::FieldError;

use super::Call;
use crate::body::Body;
use crate::bounds;
use crate::facts::{self, Field, Shape, facts};
use crate::meta;
use crate::registry::Content;
use crate::render::NOT_STORED;
use crate::request::WriteOptions;
use crate::status::Status;
use crate::store::{Draft, Expect, Key, LARGEST_OBJECT, Object, Write, WriteError};

/// Generated names that collide are drawn again this often.
const ATTEMPTS: usize = 8;

pub(super) async fn run(mut call: Call) -> Result<Response<Body>, Status> {
    if call.target.name.is_some() {
        return Err(Status::method_not_allowed());
    }
    if call.resource.namespaced && call.target.namespace.is_none() {
        return Err(Status::method_not_allowed());
    }
    let options = WriteOptions::parse(&call.query, "CreateOptions")?;
    let object = call.object(options.validation)?;
    create(&mut call, object, options).await
}

/// Makes an object of the call's kind.
pub(super) async fn create(call: &mut Call, object: Value, options: WriteOptions) -> Result<Response<Body>, Status> {
    super::update::check_namespace(call, &object)?;
    let generated = meta::text(&object, "name").is_empty() && !meta::text(&object, "generateName").is_empty();
    if !matches!(meta::text(&object, "resourceVersion"), "" | "0") {
        return Err(Status::bad_request("resourceVersion should not be set on objects to be created"));
    }
    let mut attempts = if generated { ATTEMPTS } else { 1 };
    loop {
        attempts -= 1;
        let (name, draft) = prepare(call, object.clone(), options)?;
        if options.dry_run {
            let snapshot = call.server.store.snapshot();
            if call.resource.namespaced {
                snapshot.check_namespace(call.namespace()).map_err(|error| call.refusal(error, &name))?;
            }
            if let Some(uid) = &call.resource.definition {
                snapshot.check_definition(&call.resource.table, uid).map_err(|error| call.refusal(error, &name))?;
            }
            if snapshot.get(&call.resource.table, &Key::new(call.namespace(), &name)).is_some() {
                return Err(exists(call, &name));
            }
            return call.answer(StatusCode::CREATED, &Object { revision: NOT_STORED, draft });
        }
        let write = Write {
            table: call.resource.table.clone(),
            key: Key::new(call.namespace(), &name),
            expect: Expect::Absent,
            put: Some(draft),
            in_living_namespace: call.resource.namespaced,
            of_definition: call.resource.definition.clone(),
        };
        match call.server.store.write(write).await {
            Ok(object) => {
                call.written.created(&call.resource.plural, &object.draft.metadata());
                return call.answer(StatusCode::CREATED, &object);
            }
            Err(WriteError::Exists) if attempts > 0 => {}
            Err(WriteError::Exists) => return Err(exists(call, &name)),
            // It was there when the request came.
            Err(WriteError::NoDefinition) => return Ok(crate::route::missing()),
            Err(error) => return Err(call.refusal(error, &name)),
        }
    }
}

/// There is one already; one that is on its way out is told as such.
fn exists(call: &Call, name: &str) -> Status {
    let mut status = Status::already_exists(call.resource.subject(), name);
    let snapshot = call.server.store.snapshot();
    let old = snapshot.get(&call.resource.table, &Key::new(call.namespace(), name)).and_then(|old| old.value().ok());
    if old.is_some_and(|old| !old["metadata"]["deletionTimestamp"].is_null()) {
        status.message.insert_str(0, "object is being deleted: ");
    }
    status
}

/// Names the object, sets what the server sets, and checks it.
fn prepare(call: &mut Call, mut object: Value, options: WriteOptions) -> Result<(String, Draft), Status> {
    let resource = call.resource.clone();
    meta::initialize(&resource, &mut object, call.server.clock.now(), &call.server.chance);
    if let Some(metadata) = meta::of(&mut object) {
        match call.target.namespace.clone().filter(|_| resource.namespaced) {
            Some(namespace) => drop(metadata.insert("namespace".to_owned(), namespace.into())),
            None => drop(metadata.remove("namespace")),
        }
    }
    clear_status(call, &mut object);
    resource.strategy.prepare_create(&mut object);
    resource.strategy.sign(&mut object, &call.identity);
    call.admit("create", None, Some(&mut object), options.dry_run)?;
    call.confirm_grant(None, &object)?;
    let name = meta::text(&object, "name").to_owned();
    let errors = validate(call, &object);
    if !errors.is_empty() {
        return Err(Status::invalid(resource.subject(), &name, &errors));
    }
    call.reshape_for_storage(&mut object);
    // Defaults and admission may have added to what the client sent.
    if bounds::depth(&object) > bounds::DEEPEST {
        return Err(Status::too_deep());
    }
    let draft = Draft::new(&object, &resource.fields).map_err(Status::internal)?;
    if draft.is_too_large() {
        return Err(Status::too_large(LARGEST_OBJECT));
    }
    Ok((name, draft))
}

/// A status is written through its subresource alone.
fn clear_status(call: &Call, object: &mut Value) {
    let has_status = call.version.subresources.iter().any(|sub| sub.name == "status");
    if !has_status || call.resource.strategy.keeps_status_on_create() {
        return;
    }
    let Some(map) = object.as_object_mut() else { return };
    map.remove("status");
    let stored = call.resource.version(&call.resource.storage_version).unwrap_or(&call.version);
    match &stored.content {
        // Kinds whose status is never absent start with an empty one, and its own defaults.
        Content::BuiltIn(id) => {
            if let Some(Field { shape: Shape::Struct(status), default: Some(_), .. }) = facts().get(*id).field("status")
            {
                let mut empty = Value::Object(Map::new());
                // Nothing in it can be of a wrong type.
                drop(facts::decode(*status, &mut empty));
                map.insert("status".to_owned(), empty);
            }
        }
        // What the schema sets in a status, it sets in an empty one too; one that does not fit is left out.
        Content::Custom(custom) => {
            custom.schema().default(object);
        }
    }
}

fn validate(call: &Call, object: &Value) -> Vec<FieldError> {
    let mut errors = meta::validate(&call.resource, object);
    errors.extend(call.resource.strategy.validate_create(object));
    if let Content::Custom(custom) = &call.version.content {
        errors.extend(custom.schema().validate(object, None));
    }
    errors
}
