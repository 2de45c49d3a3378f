//! Refusals, as `Status` objects in the words that clients of Kubernetes know and match.

use std::fmt;

use http::StatusCode;
use serde_json::{Map, Value, json};
use structural::FieldError;

use crate::bounds::{DEEPEST, MOST_TOLD, cut, cut_at};

/// Bytes of a message: what a client sent, it may repeat, but not many times.
const LONGEST_MESSAGE: usize = 128 << 10;

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// The HTTP status.
    pub code: StatusCode,
    /// The machine-readable reason, such as `NotFound`.
    pub reason: &'static str,
    /// The human-readable one.
    pub message: String,
    details: Map<String, Value>,
    /// Seconds after which a retry makes sense.
    pub retry_after: Option<u32>,
    /// Kubernetes writes `details: {}` where its router refuses, and leaves it out elsewhere.
    empty_details: bool,
    /// How to go on with a list whose moment is forgotten.
    pub(crate) metadata_continue: Option<String>,
}

/// What was asked for, as details name it: the group, and the resource or kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) kind: &'a str,
}

impl Subject<'_> {
    /// `deployments.apps`, or `pods`.
    fn qualified(&self) -> String {
        if self.group.is_empty() { self.resource.to_owned() } else { format!("{}.{}", self.resource, self.group) }
    }

    fn details(&self, name: &str, kind: &str) -> Map<String, Value> {
        let mut details = Map::new();
        for (key, value) in [("name", name), ("group", self.group), ("kind", kind)] {
            if !value.is_empty() {
                details.insert(key.to_owned(), value.into());
            }
        }
        details
    }
}

impl Status {
    pub(crate) fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        let fits = message.len() <= LONGEST_MESSAGE;
        Self {
            code,
            reason,
            message: if fits { message } else { cut_at(&message, LONGEST_MESSAGE).into_owned() },
            details: Map::new(),
            retry_after: None,
            empty_details: false,
            metadata_continue: None,
        }
    }

    /// Refuses a write for a reason of one's own; for whoever has a say in admission.
    #[must_use]
    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message)
    }

    /// Refuses an object, by its group, kind and name, for what stands in its fields: the reason, message and path of each.
    /// For whoever has a say in admission.
    #[must_use]
    pub fn unprocessable<'a>(
        message: impl Into<String>,
        (group, kind, name): (&str, &str, &str),
        causes: impl IntoIterator<Item = (&'a str, &'a str, &'a str)>,
    ) -> Self {
        let mut status = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                status.details.insert(key.to_owned(), value.into());
            }
        }
        let causes = causes
            .into_iter()
            .map(|(reason, message, field)| json!({ "reason": reason, "message": message, "field": field }));
        status.details.insert("causes".to_owned(), causes.collect());
        status
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub(crate) fn internal(message: impl fmt::Display) -> Self {
        let message = format!("Internal error occurred: {message}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    /// Kubernetes has no word of its own for it: what etcd says, it hands on as an internal error.
    pub(crate) fn no_room(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INSUFFICIENT_STORAGE, "InsufficientStorage", message)
    }

    pub(crate) fn not_served() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).with_empty_details()
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).with_empty_details()
    }

    pub(crate) fn not_acceptable(accepted: &[&str]) -> Self {
        let message = format!("only the following media types are accepted: {}", accepted.join(", "));
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    pub(crate) fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// Whoever it is, it is not who it says.
    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// What is being taken away takes nothing in.
    pub(crate) fn definition_terminating(subject: Subject<'_>) -> Self {
        let message = "create not allowed while custom resource definition is terminating";
        let details = subject.details("", subject.resource);
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).about(details)
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// Nobody could read it back.
    pub(crate) fn too_deep() -> Self {
        Self::bad_request(format!("the object is nested deeper than {DEEPEST} levels"))
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// The client is ahead of the server: it saw another server's revisions, or those of a store that is gone.
    pub(crate) fn too_large_resource_version(asked: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {asked}, current: {current}");
        let mut status = Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", format!("Timeout: {message}"));
        let cause = json!({ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" });
        status.details.insert("causes".to_owned(), json!([cause]));
        status.retry_after = Some(1);
        status
    }

    pub(crate) fn not_found(subject: Subject<'_>, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", subject.qualified());
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(subject.details(name, subject.resource))
    }

    pub(crate) fn already_exists(subject: Subject<'_>, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", subject.qualified());
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(subject.details(name, subject.resource))
    }

    pub(crate) fn conflict(subject: Subject<'_>, name: &str, problem: impl fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {problem}", subject.qualified());
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(subject.details(name, subject.resource))
    }

    pub(crate) fn modified(subject: Subject<'_>, name: &str) -> Self {
        let problem = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(subject, name, problem)
    }

    pub(crate) fn forbidden(subject: Subject<'_>, name: &str, problem: impl fmt::Display) -> Self {
        let message = if name.is_empty() {
            format!("{} is forbidden: {problem}", subject.qualified())
        } else {
            format!("{} \"{name}\" is forbidden: {problem}", subject.qualified())
        };
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(subject.details(name, subject.resource))
    }

    /// Refuses a request that may be granted later. For whoever has a say in admission.
    #[must_use]
    pub fn too_many_requests(message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
    }

    /// Refuses an object for what stands in its fields. Of many problems the first are told.
    pub(crate) fn invalid(subject: Subject<'_>, name: &str, errors: &[FieldError]) -> Self {
        let errors = errors.get(..MOST_TOLD).unwrap_or(errors);
        let texts: Vec<String> = errors.iter().map(|error| cut(&error.to_string()).into_owned()).collect();
        let all = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let kind = if subject.group.is_empty() {
            subject.kind.to_owned()
        } else {
            format!("{}.{}", subject.kind, subject.group)
        };
        let mut status =
            Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", format!("{kind} \"{name}\" is invalid: {all}"))
                .about(subject.details(name, subject.kind));
        let causes = errors
            .iter()
            .map(|error| json!({ "reason": error.reason.as_str(), "message": cut(&error.message), "field": cut(&error.field) }));
        status.details.insert("causes".to_owned(), causes.collect());
        status
    }

    fn about(mut self, details: Map<String, Value>) -> Self {
        self.details = details;
        self
    }

    pub(crate) fn with_empty_details(self) -> Self {
        Self { empty_details: true, ..self }
    }

    pub(crate) fn with_cause(mut self, reason: &str, message: &str) -> Self {
        self.details.insert("causes".to_owned(), json!([{ "reason": reason, "message": message }]));
        self
    }

    pub(crate) fn with_field_cause(mut self, reason: &str, message: &str, field: &str) -> Self {
        self.details.insert("causes".to_owned(), json!([{ "reason": reason, "message": message, "field": field }]));
        self
    }

    /// The object that the client gets.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut details = self.details.clone();
        if let Some(seconds) = self.retry_after {
            details.insert("retryAfterSeconds".to_owned(), seconds.into());
        }
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code.as_u16(),
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(token) = &self.metadata_continue {
            status["metadata"] = json!({ "continue": token });
        }
        if !details.is_empty() || self.empty_details {
            status["details"] = details.into();
        }
        status
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

/// The answer of a deletion that left nothing to show.
pub(crate) fn success(subject: Subject<'_>, name: &str, uid: &str) -> Value {
    let mut details = subject.details(name, subject.resource);
    details.insert("uid".to_owned(), uid.into());
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details })
}
