use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apiserver::{ApiServer, AuditLog, Identity, Place};
use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt as _;
use kube::Client;
use serde_json::Value;
use tower::ServiceExt as _;

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
    let server = ApiServer::builder(Place::Memory).audit(log.clone()).start().await.unwrap();
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
