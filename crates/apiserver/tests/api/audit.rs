use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apiserver::{ApiServer, AuditLog, Body, Identity, Place, RequestBody};
use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt as _;
use kube::Client;
use serde_json::Value;
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;

use crate::support::{MAPS, Server, map};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A server, and the events that it has written so far.
async fn audited() -> (ApiServer, impl Fn() -> Vec<Value>) {
    let lines = Lines::default();
    let log = AuditLog::new(lines.clone()).unwrap();
    let open =
        tower::service_fn(|_: Request<RequestBody>| async { Ok(http::Response::new(Body::from(String::new()))) });
    let builder = ApiServer::builder(Place::Memory).open("/open/", BoxCloneSyncService::new(open));
    let server = builder.audit(log.clone()).start().await.unwrap();
    let written = move || {
        log.flush(Duration::from_secs(60));
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    (server, written)
}

#[tokio::test]
async fn who_asks_in_the_same_process_is_written_down_too() {
    let (server, written) = audited().await;
    let controller = Identity::new("system:controller", []);
    let client = Client::new(server.for_identity(controller), "default");
    Server { client, server }.post(MAPS, &map("a")).await.expect(403);
    let event = &written()[0];
    assert_eq!((&event["user"]["username"], event.get("sourceIPs")), (&"system:controller".into(), None));
    assert_eq!(event["annotations"]["authorization.k8s.io/decision"], "forbid");
}

/// A service that knows its callers by itself may take their tokens in the query.
#[tokio::test]
async fn what_is_asked_of_another_service_is_written_down_without_its_query() {
    let (server, written) = audited().await;
    for uri in ["/open/file?token=secret", "/version?pretty=true"] {
        let mut request = Request::get(uri).body(http_body_util::Empty::<Bytes>::new().boxed()).unwrap();
        request.extensions_mut().insert(Identity::admin());
        assert_eq!(server.clone().oneshot(request).await.unwrap().status(), 200);
    }
    let events = written();
    assert!(!format!("{events:?}").contains("secret"), "{events:?}");
    assert!(events.iter().any(|event| event["requestURI"] == "/version?pretty=true"), "{events:?}");
}

/// What is asked for may be done although nobody waits for the answer any more.
#[tokio::test(start_paused = true)]
async fn a_client_that_goes_before_its_answer_is_written_down() {
    let (server, written) = audited().await;
    let endless = http_body_util::StreamBody::new(futures_util::stream::pending::<
        Result<http_body::Frame<Bytes>, std::convert::Infallible>,
    >());
    let mut request = Request::post(MAPS).body(endless.boxed()).unwrap();
    request.extensions_mut().insert(Identity::admin());
    let answered = tokio::time::timeout(Duration::from_secs(1), server.oneshot(request)).await;
    assert!(answered.is_err());
    let events = written();
    assert_eq!((events.len(), &events[0]["verb"]), (1, &"create".into()));
    assert_eq!(events[0]["responseStatus"]["message"], "Connection closed early");
}
