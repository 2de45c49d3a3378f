//! PATCH: JSON patch, merge patch and strategic merge. Apply comes with the second half.

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
/// A JSON patch of more operations is refused: each may copy the whole object.
const MOST_OPERATIONS: usize = 10_000;

/// What the copies of a JSON patch may weigh together: a copy of the whole into itself doubles it each time.
const MOST_COPIED: usize = 3 << 20;

const LONGEST_MANAGER: usize = 128;

/// A patch that was read.
pub(super) enum Patch {
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
        match call.content_type() {
            JSON => {
                let operations: Vec<Value> = serde_json::from_slice(&call.body)
                    .map_err(|error| Status::bad_request(format!("error decoding patch: {error}")))?;
                if operations.len() > MOST_OPERATIONS {
                    let count = operations.len();
                    let message =
                        format!("The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {count}");
                    return Err(Status::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message));
                }
                let read = operations.into_iter().map(serde_json::from_value).collect::<Result<Vec<_>, _>>();
                read.map(|read| Self::Json(json_patch::Patch(read))).map_err(|error| unprocessable(&error.to_string()))
            }
            kind @ (MERGE | STRATEGIC) => {
                let built_in = match &call.version.content {
                    Content::BuiltIn(id) => Some(*id),
                    Content::Custom(_) => None,
                };
                let document = json::parse(&call.body)
                    .map_err(|error| Status::bad_request(format!("error decoding patch: {error}")))?;
                if !document.value.is_object() {
                    return Err(Status::bad_request("error decoding patch: the patch is no object"));
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
    pub(super) fn apply(&self, object: &mut Value) -> Result<Vec<String>, Status> {
        match self {
            Self::Json(patch) => {
                let mut copied = 0;
                for operation in &patch.0 {
                    if let json_patch::PatchOperation::Copy(copy) = operation {
                        copied += object.pointer(copy.from.as_str()).map_or(0, weight);
                        if copied > MOST_COPIED {
                            return Err(copied_too_much());
                        }
                    }
                    apply_one(object, operation).map_err(|error| unprocessable(&error))?;
                }
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

/// One operation. Clients test for null to learn that nothing is there; by the letter of the RFC that test would fail.
fn apply_one(object: &mut Value, operation: &json_patch::PatchOperation) -> Result<(), String> {
    if let json_patch::PatchOperation::Test(test) = operation
        && test.value.is_null()
        && object.pointer(test.path.as_str()).is_none()
    {
        return Ok(());
    }
    // A replacement of what is not there adds it, where there is a place for it.
    if let json_patch::PatchOperation::Replace(replace) = operation
        && object.pointer(replace.path.as_str()).is_none()
    {
        let add = json_patch::AddOperation { path: replace.path.clone(), value: replace.value.clone() };
        return json_patch::patch(object, &[json_patch::PatchOperation::Add(add)]).map_err(|error| error.to_string());
    }
    json_patch::patch(object, std::slice::from_ref(operation)).map_err(|error| error.to_string())
}

/// Bytes of a value's text. Counted, not made.
fn weight(value: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Counting cannot fail, and every value can be written.
    drop(serde_json::to_writer(&mut count, value));
    count.0
}

fn copied_too_much() -> Status {
    let message = format!("Request entity too large: what the patch copies exceeds the limit of {MOST_COPIED} bytes");
    Status::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
}

/// What cannot be applied. Kubernetes' clients know the text; what went wrong is in the log.
fn unprocessable(problem: &str) -> Status {
    tracing::debug!(problem, "a patch was not applied");
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
