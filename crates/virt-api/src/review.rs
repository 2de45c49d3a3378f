//! The same as a webhook speaks it: an `AdmissionReview` in, an `AdmissionReview` out.

use api::decode::DecodeError;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{Denial, Known, Mark, Operation, Request, Requester, Response, admit};

const VERSION: &str = "admission.k8s.io/v1";
/// Members may do everything.
const MASTERS: &str = "system:masters";

/// Why a review gets no answer.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// It is something else.
    #[error("expected an AdmissionReview of {VERSION}, got {found:?}")]
    Kind {
        /// `apiVersion, Kind=kind` of what was sent.
        found: String,
    },
    /// It is not as a review is.
    #[error("malformed AdmissionReview")]
    Malformed(#[source] DecodeError),
    /// It is about something that is not admitted here.
    #[error("the operation {0:?} is not supported; register the webhook for CREATE, UPDATE and DELETE")]
    Operation(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    uid: String,
    operation: String,
    resource: Resource,
    #[serde(default)]
    sub_resource: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    user_info: User,
    object: Option<Value>,
    old_object: Option<Value>,
    dry_run: Option<bool>,
}

#[derive(Deserialize)]
struct Resource {
    #[serde(default)]
    group: String,
    resource: String,
}

#[derive(Default, Deserialize)]
struct User {
    #[serde(default)]
    username: String,
    #[serde(default)]
    groups: Vec<String>,
}

/// What a webhook says, and what must be written before it does.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The review that goes back.
    pub review: Value,
    /// Where this cannot be written, [`Answer::unmarked`] goes back instead.
    pub mark: Option<Mark>,
}

impl Answer {
    /// The review that goes back when the mark could not be written.
    #[must_use]
    pub fn unmarked(mut self, error: impl std::fmt::Display) -> Value {
        self.review["response"]["status"] = status(&Denial::unmarked(error));
        self.review
    }
}

/// Answers a review. `is_component` knows our own programs by their user names.
///
/// # Errors
/// When it is no review that can be answered; an object that is refused is an answer.
pub fn answer(review: &Value, known: &dyn Known, is_component: impl Fn(&str) -> bool) -> Result<Answer, ReviewError> {
    let word = |field: &str| review.get(field).and_then(Value::as_str).unwrap_or_default();
    if (word("apiVersion"), word("kind")) != (VERSION, "AdmissionReview") {
        return Err(ReviewError::Kind { found: format!("{}, Kind={}", word("apiVersion"), word("kind")) });
    }
    let asked = api::decode::part::<Asked>(review.get("request").cloned().unwrap_or_default());
    let asked = asked.map_err(ReviewError::Malformed)?.object;
    let operation = match asked.operation.as_str() {
        "CREATE" => Operation::Create,
        "UPDATE" => Operation::Update,
        "DELETE" => Operation::Delete,
        other => return Err(ReviewError::Operation(other.to_owned())),
    };
    let requester = if is_component(&asked.user_info.username) {
        Requester::Component
    } else if asked.user_info.groups.iter().any(|group| group == MASTERS) {
        Requester::Admin
    } else {
        Requester::User
    };
    let request = Request {
        operation,
        group: &asked.resource.group,
        resource: &asked.resource.resource,
        subresource: &asked.sub_resource,
        namespace: &asked.namespace,
        name: &asked.name,
        requester,
        object: asked.object.as_ref().filter(|object| !object.is_null()),
        old: asked.old_object.as_ref().filter(|object| !object.is_null()),
        dry_run: asked.dry_run.unwrap_or_default(),
    };
    let admitted = admit(&request, known);
    let response = response(&request, &admitted, &asked.uid);
    let review = json!({ "apiVersion": VERSION, "kind": "AdmissionReview", "response": response });
    Ok(Answer { review, mark: admitted.mark })
}

fn response(request: &Request<'_>, response: &Response, uid: &str) -> Value {
    let mut answer = Map::new();
    answer.insert("uid".to_owned(), uid.into());
    answer.insert("allowed".to_owned(), response.outcome.is_ok().into());
    if !response.warnings.is_empty() {
        answer.insert("warnings".to_owned(), response.warnings.clone().into());
    }
    match &response.outcome {
        Ok(None) => {}
        Ok(Some(changed)) => {
            let patch = patch(request.object.unwrap_or(&Value::Null), changed);
            answer.insert("patchType".to_owned(), "JSONPatch".into());
            answer.insert("patch".to_owned(), encoded(&patch).into());
        }
        Err(denial) => {
            answer.insert("status".to_owned(), status(denial));
        }
    }
    Value::Object(answer)
}

/// One operation for each top-level part that differs.
#[must_use]
pub fn patch(original: &Value, changed: &Value) -> Value {
    let nothing = Map::new();
    let (original, changed) = (original.as_object().unwrap_or(&nothing), changed.as_object().unwrap_or(&nothing));
    let set = changed.iter().filter(|(part, value)| original.get(*part) != Some(*value)).map(|(part, value)| {
        let operation = if original.contains_key(part) { "replace" } else { "add" };
        json!({ "op": operation, "path": format!("/{part}"), "value": value })
    });
    let gone = original.keys().filter(|part| !changed.contains_key(*part));
    set.chain(gone.map(|part| json!({ "op": "remove", "path": format!("/{part}") }))).collect()
}

fn encoded(patch: &Value) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(patch.to_string())
}

/// The refusal as a `Status`.
#[must_use]
pub fn status(denial: &Denial) -> Value {
    let causes: Vec<Value> = denial
        .causes
        .iter()
        .map(|cause| json!({ "reason": cause.reason.as_str(), "message": cause.message, "field": cause.field }))
        .collect();
    let reason = match denial.code {
        422 => "Invalid",
        429 => "TooManyRequests",
        _ => "Forbidden",
    };
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": denial.code, "reason": reason, "message": denial.message,
    });
    if !causes.is_empty() {
        status["details"] = json!({ "causes": causes });
    }
    status
}
