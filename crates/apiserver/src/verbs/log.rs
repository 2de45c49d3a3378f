//! GET of a pod's log.

use http::{HeaderValue, Response, StatusCode, header};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use structural::{FieldError, Reason};

use super::Call;
use crate::body::Body;
use crate::logs::{LogRequest, StandardStream};
use crate::meta;
use crate::request::Query;
use crate::status::{Status, Subject};

pub(super) fn run(call: &Call) -> Result<Response<Body>, Status> {
    let Some(logs) = &call.server.logs else {
        return Err(Status::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", "this server has no node"));
    };
    let pod = call.current()?.value().map_err(Status::internal)?;
    let request = wanted(&pod, &call.query, call.server.clock.now())?;
    let stream = logs.open(&request).map_err(Status::bad_request)?;
    let mut response = Response::new(Body::stream(stream));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(response)
}

fn wanted(pod: &Value, query: &Query, now: Timestamp) -> Result<LogRequest, Status> {
    let number = |name: &str| -> Result<Option<u64>, Status> {
        let wrong = |text: &str| Status::bad_request(format!("{name}: {text:?} is not a number"));
        query.get(name).map(|text| text.parse().map_err(|_| wrong(text))).transpose()
    };
    let since_time = query.get("sinceTime").map(str::parse).transpose();
    let since_time = since_time.map_err(|error: jiff::Error| Status::bad_request(format!("sinceTime: {error}")))?;
    let ago = |seconds: u64| {
        let ago = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
        now.saturating_sub(ago).unwrap_or(Timestamp::MIN)
    };
    let container = container(pod, query.get("container").unwrap_or_default())?;
    Ok(LogRequest {
        image: image(pod, &container).to_owned(),
        namespace: meta::text(pod, "namespace").to_owned(),
        name: meta::text(pod, "name").to_owned(),
        uid: meta::text(pod, "uid").to_owned(),
        container,
        follow: query.flag("follow"),
        previous: query.flag("previous"),
        timestamps: query.flag("timestamps"),
        since: number("sinceSeconds")?.map(ago).or(since_time),
        tail_lines: number("tailLines")?.map(|lines| usize::try_from(lines).unwrap_or(usize::MAX)),
        limit_bytes: number("limitBytes")?,
        stream: stream(meta::text(pod, "name"), query.get("stream"))?,
    })
}

/// Kubernetes knows the words, behind a gate, and not together with `tailLines`; here both go together.
fn stream(pod: &str, asked: Option<&str>) -> Result<Option<StandardStream>, Status> {
    match asked {
        None | Some("All") => Ok(None),
        Some("Stdout") => Ok(Some(StandardStream::Out)),
        Some("Stderr") => Ok(Some(StandardStream::Error)),
        Some(other) => {
            let error = FieldError {
                field: "stream".to_owned(),
                reason: Reason::NotSupported,
                message: format!("Unsupported value: {other:?}: supported values: \"All\", \"Stderr\", \"Stdout\""),
            };
            Err(Status::invalid(Subject { group: "", resource: "", kind: "PodLogOptions" }, pod, &[error]))
        }
    }
}

/// The image of a container.
fn image<'a>(pod: &'a Value, container: &str) -> &'a str {
    let lists = ["containers", "initContainers"].into_iter();
    let mut all = lists.flat_map(|list| pod["spec"][list].as_array().into_iter().flatten());
    all.find(|one| one["name"] == container).and_then(|one| one["image"].as_str()).unwrap_or_default()
}

/// The container that is named, or the only one.
fn container(pod: &Value, named: &str) -> Result<String, Status> {
    let of = |list: &str| -> Vec<String> {
        let containers = pod["spec"][list].as_array().into_iter().flatten();
        containers.filter_map(|one| one["name"].as_str()).map(str::to_owned).collect()
    };
    let (containers, inits) = (of("containers"), of("initContainers"));
    let name = meta::text(pod, "name");
    if named.is_empty() {
        return match containers.as_slice() {
            [only] => Ok(only.clone()),
            [] => Err(Status::bad_request(format!("a container name must be specified for pod {name}"))),
            several => {
                let all = inits.iter().chain(several).map(String::as_str).collect::<Vec<_>>().join(" ");
                let text = format!("a container name must be specified for pod {name}, choose one of: [{all}]");
                Err(Status::bad_request(text))
            }
        };
    }
    let known = containers.iter().chain(&inits).any(|one| one == named);
    let unknown = || Status::bad_request(format!("container {named} is not valid for pod {name}"));
    known.then(|| named.to_owned()).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Value {
        json!({
            "metadata": { "namespace": "n", "name": "p", "uid": "u" },
            "spec": { "containers": [{ "name": "a", "image": "example.org/a" }, { "name": "b" }], "initContainers": [{ "name": "i" }] },
        })
    }

    #[test]
    fn a_container_is_named_unless_there_is_one() {
        let said = container(&pod(), "").unwrap_err().to_json();
        assert_eq!(said["message"], "a container name must be specified for pod p, choose one of: [i a b]");
        assert_eq!(container(&pod(), "i").unwrap(), "i");
        assert_eq!(container(&pod(), "x").unwrap_err().to_json()["message"], "container x is not valid for pod p");
        let single = json!({ "spec": { "containers": [{ "name": "a" }], "initContainers": [{ "name": "i" }] } });
        assert_eq!(container(&single, "").unwrap(), "a");
    }

    #[test]
    fn times_and_counts_are_read() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let query = Query::parse("container=a&follow=true&tailLines=3&sinceSeconds=60&limitBytes=9&timestamps=true");
        let request = wanted(&pod(), &query, now).unwrap();
        assert_eq!((request.tail_lines, request.limit_bytes), (Some(3), Some(9)));
        assert_eq!(request.since, Some("2026-01-01T00:00:00Z".parse().unwrap()));
        assert_eq!((request.container.as_str(), request.image.as_str()), ("a", "example.org/a"));
        assert!(request.follow && request.timestamps && !request.previous);
        assert!(wanted(&pod(), &Query::parse("container=a&tailLines=x"), now).is_err());
        for seconds in [i64::MAX.unsigned_abs(), u64::MAX, 900_000_000_000] {
            let query = Query::parse(&format!("container=a&sinceSeconds={seconds}"));
            assert_eq!(wanted(&pod(), &query, now).unwrap().since, Some(Timestamp::MIN), "{seconds}");
        }
    }

    #[test]
    fn a_stream_is_named_as_kubernetes_names_it() {
        let of = |text: &str| wanted(&pod(), &Query::parse(text), Timestamp::UNIX_EPOCH).map(|request| request.stream);
        assert_eq!(of("container=a&stream=Stderr&tailLines=3"), Ok(Some(StandardStream::Error)));
        assert_eq!(
            (of("container=a&stream=Stdout"), of("container=a&stream=All")),
            (Ok(Some(StandardStream::Out)), Ok(None))
        );
        let refused = of("container=a&stream=x").unwrap_err().to_json();
        let expected = "PodLogOptions \"p\" is invalid: stream: Unsupported value: \"x\": supported values: \"All\", \"Stderr\", \"Stdout\"";
        assert_eq!((refused["code"].as_u64(), refused["message"].as_str()), (Some(422), Some(expected)));
    }
}
