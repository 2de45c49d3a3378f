//! PATCH: JSON patch, merge patch and strategic merge. Apply comes with the second half.

mod strategic;

use http::{Response, StatusCode};
use serde_json::Value;

use super::{Call, update};
use crate::body::Body;
use crate::convert;
use crate::facts::TypeId;
use crate::json::{self, Document};
use crate::registry::Content;
use crate::request::WriteOptions;
use crate::status::Status;

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
/// A JSON patch of more operations is refused: each may copy the whole object.
const MOST_OPERATIONS: usize = 10_000;

/// A patch that was read.
pub(super) enum Patch {
    Json(json_patch::Patch),
    Merge(Value, Vec<String>),
    Strategic(TypeId, Value, Vec<String>),
}

pub(super) async fn run(mut call: Call) -> Result<Response<Body>, Status> {
    let patch = Patch::read(&call)?;
    let options = WriteOptions::parse(&call.query, "PatchOptions")?;
    let changed = update::change(&mut call, options, |call, old| {
        let mut object = old.clone();
        convert::from_storage(&call.resource, &call.version.name, &mut object);
        let duplicates = patch.apply(call, &mut object)?;
        check(call, &object)?;
        call.fit(object, duplicates, options.validation)
    });
    let object = changed.await?;
    call.answer(StatusCode::OK, &object)
}

impl Patch {
    pub(super) fn read(call: &Call) -> Result<Self, Status> {
        match call.content_type() {
            JSON => {
                let patch: json_patch::Patch = serde_json::from_slice(&call.body)
                    .map_err(|error| Status::bad_request(format!("error decoding patch: {error}")))?;
                if patch.0.len() > MOST_OPERATIONS {
                    let message = format!(
                        "The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {}",
                        patch.0.len()
                    );
                    return Err(Status::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message));
                }
                Ok(Self::Json(patch))
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
            _ => Err(Status::unsupported_media_type(&[JSON, MERGE, STRATEGIC])),
        }
    }

    /// Applies it; gives the paths that it names twice.
    pub(super) fn apply(&self, call: &Call, object: &mut Value) -> Result<Vec<String>, Status> {
        match self {
            Self::Json(patch) => {
                for operation in &patch.0 {
                    apply_one(object, operation).map_err(|error| unprocessable(call, &error))?;
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
    json_patch::patch(object, std::slice::from_ref(operation)).map_err(|error| error.to_string())
}

fn unprocessable(call: &Call, problem: &str) -> Status {
    let message = format!("the server rejected our request due to an error in our request: {problem}");
    Status::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).about_object(call.resource.subject(), call.name())
}

/// A patch changes an object; it does not make it another one.
fn check(call: &Call, object: &Value) -> Result<(), Status> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let expected = call.renderer().api_version();
    if kind != call.resource.kind || version != expected {
        return Err(Status::bad_request(format!(
            "the API version and kind in the patched object ({version}, {kind}) do not match the expected ones \
             ({expected}, {})",
            call.resource.kind
        )));
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
