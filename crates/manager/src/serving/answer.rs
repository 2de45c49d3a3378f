//! Answers, in the forms that clients of Kubernetes know.

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use http_body_util::Full;
use serde_json::json;

/// An answer: whole and small.
pub(super) type Answer = Response<Full<Bytes>>;

pub(super) const TEXT: &str = "text/plain; charset=utf-8";
pub(super) const JSON: &str = "application/json";

pub(super) fn answer(code: StatusCode, kind: &'static str, body: String) -> Answer {
    let length = body.len();
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = code;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    // What one may see, others may not; and it is of this moment.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

/// A path that nothing is at.
pub(super) fn missing() -> Answer {
    answer(StatusCode::NOT_FOUND, TEXT, "404 page not found\n".to_owned())
}

/// Pages are looked at, not changed.
pub(super) fn wrong_method() -> Answer {
    let mut answer = answer(StatusCode::METHOD_NOT_ALLOWED, TEXT, "Method Not Allowed\n".to_owned());
    answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    answer
}

/// A token that nobody has.
pub(super) fn unauthorized() -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "Unauthorized", "reason": "Unauthorized", "code": 401,
    });
    answer(StatusCode::UNAUTHORIZED, JSON, format!("{status}\n"))
}

/// Somebody who may not see a path.
pub(super) fn forbidden(user: &str, verb: &str, path: &str) -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("forbidden: User {user:?} cannot {verb} path {path:?}"),
        "reason": "Forbidden", "details": {}, "code": 403,
    });
    answer(StatusCode::FORBIDDEN, JSON, format!("{status}\n"))
}

/// Nobody could tell who asks or whether they may. Why stands in the log: the asker is a stranger.
pub(super) fn unreviewed() -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "Internal error occurred: the request could not be reviewed",
        "reason": "InternalError", "code": 500,
    });
    answer(StatusCode::INTERNAL_SERVER_ERROR, JSON, format!("{status}\n"))
}

/// HEAD is told how long the body would be; over HTTP/2 nobody else takes it away.
pub(super) fn for_method(answer: Answer, method: &Method) -> Answer {
    if *method == Method::HEAD { answer.map(|_| Full::default()) } else { answer }
}
