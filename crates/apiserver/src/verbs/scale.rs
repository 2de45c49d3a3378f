//! The scale subresource: how many replicas are wanted and how many there are, for any kind that has them.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::{Call, patch, update};
use crate::body::Body;
use crate::bounds::DEEPEST;
use crate::meta;
use crate::registry::{Content, ScalePaths};
use crate::request::WriteOptions;
use crate::selector::LabelSelector;
use crate::status::Status;

pub(super) async fn run(mut call: Call, verb: &str) -> Result<Response<Body>, Status> {
    let paths = paths(&call);
    let read = |call: &Call, object: &Value| scale_of(call, object, &paths);
    let changed = match verb {
        "get" => call.current()?,
        "update" => {
            let options = WriteOptions::parse(&call.query, "UpdateOptions")?;
            let scale = call.document()?.value;
            check_name(&call, &scale)?;
            update::change(&mut call, options, |call, old| with_replicas(call, old, &scale, &paths)).await?
        }
        _ => {
            let options = WriteOptions::parse(&call.query, "PatchOptions")?;
            let patch = patch::Patch::read(&call)?;
            update::change(&mut call, options, |call, old| {
                let mut scale = read(call, old);
                patch.apply(&mut scale)?;
                with_replicas(call, old, &scale, &paths)
            })
            .await?
        }
    };
    let object = call.renderer().stored_value(&changed)?;
    call.answer_value(StatusCode::OK, &read(&call, &object))
}

fn paths(call: &Call) -> ScalePaths {
    match &call.version.content {
        Content::Custom(custom) if custom.scale.is_some() => custom.scale.clone().unwrap_or_else(usual),
        _ => usual(),
    }
}

fn usual() -> ScalePaths {
    ScalePaths {
        spec_replicas_path: ".spec.replicas".to_owned(),
        status_replicas_path: ".status.replicas".to_owned(),
        label_selector_path: None,
    }
}

fn check_name(call: &Call, scale: &Value) -> Result<(), Status> {
    let kind = scale["kind"].as_str().unwrap_or("Scale");
    if kind != "Scale" {
        return Err(Status::bad_request(format!(
            "{kind} in version \"v1\" cannot be handled as a Scale: no kind \"{kind}\" is registered for version \"autoscaling/v1\""
        )));
    }
    let name = meta::text(scale, "name");
    if name == call.name() {
        return Ok(());
    }
    let problem = format!("the name of the object ({name}) does not match the name on the URL ({})", call.name());
    Err(Status::bad_request(problem))
}

fn pointer(path: &str) -> String {
    path.replace('.', "/")
}

fn scale_of(call: &Call, object: &Value, paths: &ScalePaths) -> Value {
    let number = |path: &str| object.pointer(&pointer(path)).and_then(Value::as_i64).unwrap_or(0);
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(field) {
            metadata[field] = value.clone();
        }
    }
    let mut scale = json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {},
        "status": { "replicas": number(&paths.status_replicas_path) },
    });
    let wanted = number(&paths.spec_replicas_path);
    if wanted != 0 {
        scale["spec"]["replicas"] = wanted.into();
    }
    if let Some(selector) = selector(call, object, paths) {
        scale["status"]["selector"] = selector.into();
    }
    scale
}

fn selector(call: &Call, object: &Value, paths: &ScalePaths) -> Option<String> {
    if call.resource.is_custom() {
        let path = paths.label_selector_path.as_deref()?;
        return object.pointer(&pointer(path)).and_then(Value::as_str).map(str::to_owned);
    }
    LabelSelector::text_of(&object["spec"]["selector"])
}

/// The object with the replicas of a scale, and its preconditions.
fn with_replicas(call: &Call, old: &Value, scale: &Value, paths: &ScalePaths) -> Result<Value, Status> {
    let replicas = match &scale["spec"]["replicas"] {
        Value::Null => 0,
        value => value.as_i64().filter(|number| i32::try_from(*number).is_ok()).ok_or_else(|| {
            Status::bad_request(format!(
                "json: cannot unmarshal {value} into Go struct field ScaleSpec.spec.replicas of type int32"
            ))
        })?,
    };
    if replicas < 0 {
        let custom = call.resource.is_custom();
        let problem = if custom { "should be a non-negative integer" } else { "must be greater than or equal to 0" };
        let error = structural::FieldError {
            field: if custom { paths.spec_replicas_path.clone() } else { "spec.replicas".to_owned() },
            reason: structural::Reason::Invalid,
            message: format!("Invalid value: {replicas}: {problem}"),
        };
        let scale_kind = crate::status::Subject { group: "autoscaling", resource: "", kind: "Scale" };
        let subject = if custom { call.resource.subject() } else { scale_kind };
        return Err(Status::invalid(subject, call.name(), &[error]));
    }
    let mut new = old.clone();
    put(&mut new, &paths.spec_replicas_path, replicas)?;
    for field in ["resourceVersion", "uid"] {
        new["metadata"][field] = scale["metadata"][field].clone();
    }
    Ok(new)
}

/// Puts the number at its place. Nothing is made that is too deep to be dropped again: a definition may be from before there was
/// a limit for its paths.
fn put(object: &mut Value, path: &str, replicas: i64) -> Result<(), Status> {
    let steps = || path.split('.').filter(|step| !step.is_empty());
    if steps().count() >= DEEPEST {
        return Err(Status::too_deep());
    }
    let mut place = object;
    for step in steps() {
        // What is in the way is no object: whether it may become one is for the schema to say.
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[step];
    }
    *place = replicas.into();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_come_to_no_place_that_is_too_deep() {
        let mut object = json!({ "spec": { "a": 1 } });
        put(&mut object, ".spec.a.b", 3).unwrap();
        assert_eq!(object, json!({ "spec": { "a": { "b": 3 } } }));
        for steps in [DEEPEST, 1_000_000] {
            assert_eq!(put(&mut object, &".a".repeat(steps), 3).unwrap_err(), Status::too_deep());
        }
        put(&mut object, &".a".repeat(DEEPEST - 1), 3).unwrap();
    }
}
