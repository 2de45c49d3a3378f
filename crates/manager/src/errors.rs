//! Errors in words: for the log, for events and for people.

use std::error::Error;

use kube::core::Status;
use kube::runtime::watcher;

/// An error and all that caused it, in one line, each thing once.
///
/// What the API server refused is told in its own words: `kube::Error` would repeat the whole status, as Rust sees it.
#[must_use]
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&cause| cause.source());
    let mut text = String::new();
    for cause in causes {
        let (words, is_all) = words(cause);
        // Many errors of libraries say what caused them, and name it as their source, too.
        if !words.is_empty() && !text.ends_with(&words) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&words);
        }
        if is_all {
            break;
        }
    }
    text
}

/// What an error itself has to say, and whether that is all there is.
fn words(error: &(dyn Error + 'static)) -> (String, bool) {
    if let Some(kube::Error::Api(status)) = error.downcast_ref() {
        return (refusal(status), true);
    }
    match error.downcast_ref::<watcher::Error>() {
        Some(watcher::Error::InitialListFailed(_)) => ("the list failed".to_owned(), false),
        Some(watcher::Error::WatchStartFailed(_)) => ("cannot start the watch".to_owned(), false),
        Some(watcher::Error::WatchError(status)) => (format!("the watch was ended: {}", refusal(status)), true),
        Some(watcher::Error::WatchFailed(_)) => ("the watch broke".to_owned(), false),
        Some(watcher::Error::NoResourceVersion) | None => (error.to_string(), false),
    }
}

fn refusal(status: &Status) -> String {
    match (status.message.as_str(), status.reason.as_str()) {
        ("", "") => format!("the API server answered with {}", status.code),
        ("", reason) => reason.to_owned(),
        (message, _) => message.to_owned(),
    }
}

/// Whether the server refused because the object is another by now, or gone.
#[must_use]
pub fn is_race(error: &(dyn Error + 'static)) -> bool {
    let causes = std::iter::successors(Some(error), |&cause| cause.source());
    let mut of_server = causes.filter_map(|cause| cause.downcast_ref::<kube::Error>());
    of_server.any(|error| match error {
        kube::Error::Api(status) if status.code == 409 => true,
        // Without a name it is the resource that is not there: that is no race.
        kube::Error::Api(status) if status.code == 404 => {
            status.details.as_ref().is_some_and(|details| !details.name.is_empty())
        }
        _ => false,
    })
}

/// Whether a watch only fell behind, which happens to everybody: it lists anew.
#[must_use]
pub fn is_late(error: &watcher::Error) -> bool {
    let code = match error {
        watcher::Error::WatchError(status) => status.code,
        watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status.code,
        _ => return false,
    };
    code == 410
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("bind the pod")]
    struct Bind(#[source] kube::Error);

    fn status(message: &str) -> Box<Status> {
        let status = json!({ "code": 409, "reason": "Conflict", "message": message, "details": { "name": "a" } });
        Box::new(serde_json::from_value(status).unwrap())
    }

    #[test]
    fn what_the_server_refused_is_told_once_in_its_own_words() {
        let message = "pods \"a\" already exists";
        let error = Bind(kube::Error::Api(status(message)));
        assert_eq!(chain(&error), format!("bind the pod: {message}"));
        assert_eq!(chain(&kube::Error::Api(status(""))), "Conflict");
        let ended = watcher::Error::WatchError(status("too old"));
        assert_eq!(chain(&ended), "the watch was ended: too old");
        let listed = watcher::Error::InitialListFailed(kube::Error::Api(status("no")));
        assert_eq!(chain(&listed), "the list failed: no");
    }

    #[test]
    fn a_cause_that_was_told_is_not_told_again() {
        let refused = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "refused");
        let error = kube::Error::Service(Box::new(refused));
        assert_eq!(chain(&Bind(error)), "bind the pod: ServiceError: refused");
    }

    #[test]
    fn a_watch_that_fell_behind_is_no_trouble() {
        let gone: Status = serde_json::from_value(json!({ "code": 410, "reason": "Expired" })).unwrap();
        assert!(is_late(&watcher::Error::WatchError(Box::new(gone.clone()))));
        assert!(is_late(&watcher::Error::WatchStartFailed(kube::Error::Api(Box::new(gone)))));
        assert!(!is_late(&watcher::Error::WatchError(status("other"))));
    }
}
