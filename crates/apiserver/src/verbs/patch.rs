//! PATCH: JSON patch, merge patch and strategic merge. Apply comes with the second half.

mod operations;
mod strategic;

use http::{Response, StatusCode};
use serde_json::Value;
use structural::{FieldError, Reason};

use super::{Call, update};
use crate::body::Body;
use crate::convert;
use crate::facts::TypeId;
use crate::json::{self, Document};
use crate::registry::Content;
use crate::request::WriteOptions;
use crate::status::{Status, Subject};

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const LONGEST_MANAGER: usize = 128;

/// A patch that was read.
pub(crate) enum Patch {
    Json(json_patch::Patch),
    Merge(Value, Vec<String>),
    Strategic(TypeId, Value, Vec<String>),
}

pub(super) async fn run(mut call: Call) -> Result<Response<Body>, Status> {
    let patch = Patch::read(&call)?;
    let options = WriteOptions::parse(&call.query, "PatchOptions")?;
    check_options(&call)?;
    let changed = update::change(&mut call, options, |call, old| {
        let mut object = old.clone();
        convert::from_storage(&call.resource, &call.version.name, &mut object);
        let duplicates = patch.apply(&mut object)?;
        check(call, old, &mut object)?;
        update::check_namespace(call, &object)?;
        call.fit(object, duplicates, options.validation).map_err(|status| in_patch(&status))
    });
    let object = changed.await?;
    call.answer(StatusCode::OK, &object)
}

/// Options of apply have no meaning here.
fn check_options(call: &Call) -> Result<(), Status> {
    let invalid = |field: &str, reason: Reason, message: &str| {
        let error = FieldError { field: field.to_owned(), reason, message: message.to_owned() };
        Err(Status::invalid(Subject { group: "meta.k8s.io", resource: "", kind: "PatchOptions" }, "", &[error]))
    };
    if call.query.get("fieldManager").is_some_and(|name| name.len() > LONGEST_MANAGER) {
        return invalid("fieldManager", Reason::TooLong, "Too long: may not be more than 128 bytes");
    }
    if call.query.get("force").is_some() {
        return invalid("force", Reason::Forbidden, "Forbidden: may not be specified for non-apply patch");
    }
    Ok(())
}

impl Patch {
    pub(super) fn read(call: &Call) -> Result<Self, Status> {
        let built_in = match &call.version.content {
            Content::BuiltIn(id) => Some(*id),
            Content::Custom(_) => None,
        };
        Self::of(call.content_type(), built_in, &call.body)
    }

    /// Reads a body of a media type; `built_in` is the kind that it changes, unless that is a custom one.
    pub(crate) fn of(media_type: &str, built_in: Option<TypeId>, body: &[u8]) -> Result<Self, Status> {
        match media_type {
            JSON => operations::read(body).map(Self::Json),
            kind @ (MERGE | STRATEGIC) => {
                let document =
                    json::parse(body).map_err(|error| Status::bad_request(format!("error decoding patch: {error}")))?;
                if !document.value.is_object() {
                    return Err(Status::bad_request("error decoding patch: the patch is not an object"));
                }
                let Document { value, duplicates } = document;
                match (kind, built_in) {
                    (STRATEGIC, Some(id)) => Ok(Self::Strategic(id, value, duplicates)),
                    // Nothing is known of how the lists of custom objects merge.
                    (STRATEGIC, None) => Err(Status::unsupported_media_type(&[JSON, MERGE])),
                    _ => Ok(Self::Merge(value, duplicates)),
                }
            }
            _ => {
                let message = "415: Unsupported Media Type";
                Err(Status::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
                    .with_empty_details())
            }
        }
    }

    /// Applies it; gives the paths that it names twice.
    pub(crate) fn apply(&self, object: &mut Value) -> Result<Vec<String>, Status> {
        match self {
            Self::Json(patch) => {
                operations::apply(object, patch)?;
                Ok(Vec::new())
            }
            Self::Merge(patch, duplicates) => {
                json_patch::merge(object, patch);
                Ok(duplicates.clone())
            }
            Self::Strategic(kind, patch, duplicates) => {
                strategic::apply(*kind, object, patch).map_err(Status::bad_request)?;
                Ok(duplicates.clone())
            }
        }
    }
}

/// What cannot be applied. Kubernetes' clients know the text; what went wrong is in the log.
fn unprocessable(problem: &str) -> Status {
    tracing::debug!(problem, "cannot apply a patch");
    let message = "the server rejected our request due to an error in our request";
    Status::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).with_empty_details()
}

/// What came of a patch and does not fit the kind is told as a problem of the patch.
fn in_patch(status: &Status) -> Status {
    let problem = status.message.split_once(" cannot be handled as a ").and_then(|(_, rest)| rest.split_once(": "));
    let problem = problem.map_or(status.message.as_str(), |(_, problem)| problem);
    invalid_patch(&format!("Invalid value: <object>: {problem}"))
}

fn invalid_patch(message: &str) -> Status {
    let error = FieldError { field: "patch".to_owned(), reason: Reason::Invalid, message: message.to_owned() };
    Status::invalid(Subject { group: "", resource: "", kind: "" }, "", &[error])
}

/// A patch changes an object; it does not make it another one.
fn check(call: &Call, old: &Value, object: &mut Value) -> Result<(), Status> {
    call.check_type(object, true)
        .map_err(|status| if call.resource.is_custom() { status } else { in_patch(&status) })?;
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    if !uid.is_empty() && object["metadata"]["uid"] != old["metadata"]["uid"] {
        let message = format!("Invalid value: \"{uid}\": field is immutable");
        let error = FieldError { field: "metadata.uid".to_owned(), reason: Reason::Invalid, message };
        return Err(Status::invalid(call.resource.subject(), call.name(), &[error]));
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if name != call.name() {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            call.name()
        )));
    }
    Ok(())
}
