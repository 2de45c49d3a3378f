//! Answers and refusals on the wire, as Kubernetes' clients read them.

use std::fmt;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use serde_json::{Value, json};

/// Where VMs and instances are.
const VIRT: &str = "kubevirt.io";
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A refusal: a `Status`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Problem {
    code: StatusCode,
    reason: String,
    message: String,
    details: Value,
    /// Told as these words alone.
    is_plain: bool,
}

/// What a refusal is about, in KubeVirt's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Vm,
    Instance,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vm => "virtualmachine",
            Self::Instance => "virtualmachineinstance",
        })
    }
}

impl Problem {
    pub(super) fn new(code: StatusCode, reason: &str, message: impl Into<String>) -> Self {
        Self { code, reason: reason.to_owned(), message: message.into(), details: Value::Null, is_plain: false }
    }

    fn about(self, subject: Subject, name: &str) -> Self {
        let details = json!({ "name": name, "group": VIRT, "kind": subject.to_string() });
        Self { details, ..self }
    }

    pub(super) fn conflict(subject: Subject, name: &str, why: impl fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {subject}.{VIRT} \"{name}\": {why}");
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(subject, name)
    }

    pub(super) fn forbidden(subject: Subject, name: &str, why: impl fmt::Display) -> Self {
        let message = format!("{subject}.{VIRT} \"{name}\" is forbidden: {why}");
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(subject, name)
    }

    pub(super) fn not_found(subject: Subject, name: &str) -> Self {
        let message = format!("{subject}.{VIRT} \"{name}\" not found");
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(subject, name)
    }

    pub(super) fn bad_request(why: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", why)
    }

    pub(super) fn internal(why: impl fmt::Display) -> Self {
        let details = json!({ "causes": [{ "message": why.to_string() }] });
        let message = format!("Internal error occurred: {why}");
        Self { details, ..Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message) }
    }

    /// A feature that is not built yet.
    pub(super) fn later(feature: &str, instead: &str) -> Self {
        let message = format!("{feature} is not supported yet; {instead}");
        Self::new(StatusCode::NOT_IMPLEMENTED, "NotImplemented", message)
    }

    /// As KubeVirt refuses whoever only reads from a guest: the words alone, whatever is wrong under the same code.
    pub(super) fn in_plain_words(self) -> Self {
        Self { is_plain: true, code: StatusCode::INTERNAL_SERVER_ERROR, ..self }
    }

    /// With what is wrong with each field.
    pub(super) fn with_causes(self, causes: impl IntoIterator<Item = String>) -> Self {
        let causes: Vec<Value> = causes.into_iter().map(|message| json!({ "message": message })).collect();
        Self { details: json!({ "causes": causes }), ..self }
    }

    /// What the API server answered: its refusals are handed on, its failures are told as such.
    pub(super) fn of_server(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if (400..500).contains(&status.code) => {
                let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                let details = status.details.as_ref().and_then(|details| serde_json::to_value(details).ok());
                let details = details.unwrap_or_default();
                Self { details, ..Self::new(code, &status.reason, &status.message) }
            }
            other => Self::internal(other),
        }
    }

    pub(super) fn into_response(self) -> Response<Full<Bytes>> {
        let Self { code, reason, message, details, is_plain } = self;
        if is_plain {
            return plain(code, message);
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code.as_u16(),
        });
        if !details.is_null() {
            status["details"] = details;
        }
        let mut response = self::json(&status);
        *response.status_mut() = code;
        response
    }
}

/// An object.
pub(super) fn json(value: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(format!("{value}\n"))));
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}

/// Words for people.
fn plain(code: StatusCode, words: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(words)));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// A picture.
pub(super) fn png(bytes: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(bytes));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("image/png"));
    response
}

/// Nothing more than a code.
pub(super) fn empty(code: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::new()));
    *response.status_mut() = code;
    response
}
