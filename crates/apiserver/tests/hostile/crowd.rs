//! More requests than there are places, bodies that do not come, answers that nobody reads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use apiserver::logs::{LogRequest, LogStream, PodLogs};
use apiserver::{Admission, ApiServer, Builder, Identity, Place, RequestBody, Review, Status};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use serde_json::{Value, json};
use tower::Service as _;
use tower::util::BoxCloneSyncService;

use crate::support::{MAPS, PODS, Server, map, pod};

fn user(name: &str) -> Identity {
    Identity::new(name, [])
}

/// A request as it comes from outside: nothing but who asks is known.
async fn get(server: &ApiServer, who: Identity, path: &str) -> Response<apiserver::Body> {
    let mut request = Request::get(path).body(Full::new(Bytes::new())).unwrap();
    request.extensions_mut().insert(who);
    server.clone().call(request).await.unwrap()
}

async fn code(server: &ApiServer, who: Identity, path: &str) -> u16 {
    get(server, who, path).await.status().as_u16()
}

/// Two users who may read, and enough in the store that a list is sent in pieces.
async fn busy_server() -> Server {
    busy(ApiServer::builder(Place::Memory)).await
}

async fn busy(builder: Builder) -> Server {
    let server = Server::on(builder.seed(1).start().await.unwrap());
    let mut large = map("large");
    large["data"]["x"] = "x".repeat(200_000).into();
    server.post(MAPS, &large).await.expect(201);
    let subjects = json!([{ "kind": "Group", "name": "system:authenticated" }, { "kind": "Group", "name": "system:unauthenticated" }]);
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" });
    let binding = json!({ "metadata": { "name": "all" }, "roleRef": role, "subjects": subjects });
    server.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await.expect(201);
    server
}

/// Every level, from outside and from within, is answered.
async fn others_are_answered(server: &Server) {
    let node = Identity::new("system:node:n", ["system:nodes".to_owned()]);
    for who in [user("alice"), node, Identity::admin(), Identity::account("kube-system", "a"), Identity::anonymous()] {
        let name = who.user.clone();
        assert_eq!(code(&server.server, who, MAPS).await, 200, "{name}");
    }
    server.get(MAPS).await.expect(200);
    assert_eq!(code(&server.server, user("mallory"), "/healthz").await, 200);
}

#[tokio::test(start_paused = true)]
async fn bodies_that_do_not_come_keep_nobody_waiting() {
    let server = busy_server().await;
    let slow = || {
        let start = stream::iter([Ok::<_, std::io::Error>(Frame::data(Bytes::from("{")))]);
        let body = StreamBody::new(start.chain(stream::pending()));
        let mut request = Request::post(MAPS).header("content-type", "application/json").body(body).unwrap();
        request.extensions_mut().insert(user("mallory"));
        let mut server = server.server.clone();
        tokio::spawn(async move {
            let answer = server.call(request).await.unwrap();
            (answer.status().as_u16(), answer.headers().get("retry-after").cloned())
        })
    };
    let all: Vec<_> = (0..500).map(|_| slow()).collect();
    // Once they have begun, of which the last tells.
    tokio::time::sleep(Duration::from_secs(1)).await;
    others_are_answered(&server).await;
    assert_eq!(code(&server.server, user("mallory"), MAPS).await, 200, "reading takes no place of other work");
    let mut refused = 0;
    for one in all {
        match one.await.unwrap() {
            (408, None) => {}
            (429, Some(seconds)) if seconds == "1" => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(refused, 400);
}

/// Asks until there is no place left, and reads nothing of what it is answered.
async fn unread(server: &Server, path: &str) -> Vec<Response<apiserver::Body>> {
    let mut unread = Vec::new();
    loop {
        let answer = get(&server.server, user("mallory"), path).await;
        if answer.status() == 429 {
            return unread;
        }
        assert_eq!(answer.status(), 200, "{path}");
        unread.push(answer);
        assert!(unread.len() < 400, "places without end");
    }
}

#[tokio::test(start_paused = true)]
async fn answers_that_nobody_reads_are_their_readers_own_loss() {
    let server = busy_server().await;
    let mut unread = unread(&server, MAPS).await;
    assert_eq!(unread.len(), 60);
    others_are_answered(&server).await;
    // One turn for one that is read.
    unread.pop();
    assert_eq!(code(&server.server, user("mallory"), &format!("{MAPS}/large")).await, 200);
}

/// Documents for all take places like objects.
#[tokio::test(start_paused = true)]
async fn pages_that_nobody_reads_are_counted() {
    let server = busy_server().await;
    let unread = unread(&server, "/openapi/v2").await;
    assert_eq!(unread.len(), 60);
    others_are_answered(&server).await;
}

/// A log that tells how much of it was asked for.
#[derive(Clone, Default)]
struct LongLog(Arc<AtomicUsize>);

impl PodLogs for LongLog {
    fn open(&self, _: &LogRequest) -> Result<LogStream, String> {
        let asked = self.0.clone();
        let pieces = stream::iter(0..1000).map(move |_| {
            asked.fetch_add(1, Ordering::Relaxed);
            Bytes::from_static(&[b'x'; 4096])
        });
        Ok(Box::pin(pieces))
    }
}

/// They are sent as they come, and their places are taken until then.
#[tokio::test(start_paused = true)]
async fn logs_that_nobody_reads_are_not_held_and_hold_their_places() {
    let log = LongLog::default();
    let server = busy(ApiServer::builder(Place::Memory).logs(log.clone())).await;
    server.post(PODS, &pod("p", "n")).await.expect(201);
    let path = format!("{PODS}/p/log");
    let unread = unread(&server, &path).await;
    assert_eq!((unread.len(), log.0.load(Ordering::Relaxed)), (60, 0));
    others_are_answered(&server).await;
    drop(unread);
    // Those that go on are counted as watches are.
    let answer = get(&server.server, user("mallory"), &path).await;
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes().len(), 4_096_000);
    let mut open = Vec::new();
    for _ in 0..100 {
        open.push(get(&server.server, user("mallory"), &format!("{path}?follow=true")).await);
        assert_eq!(open[open.len() - 1].status(), 200);
    }
    assert_eq!(code(&server.server, user("mallory"), MAPS).await, 200);
}

/// Whoever answers for a group may take its time; who asks it takes places meanwhile.
#[tokio::test(start_paused = true)]
async fn what_is_handed_to_others_is_counted() {
    let service = tower::service_fn(|_: Request<RequestBody>| std::future::pending());
    let resources = vec![json!({ "name": "things", "namespaced": true, "kind": "Thing", "verbs": ["get"] })];
    let builder = ApiServer::builder(Place::Memory);
    let builder = builder.delegate("sub.example.com", "v1", resources, BoxCloneSyncService::new(service));
    let server = busy(builder).await;
    let path = "/apis/sub.example.com/v1/namespaces/n/things/a/console";
    let asking: Vec<_> = (0..60)
        .map(|_| {
            let server = server.server.clone();
            tokio::spawn(async move { code(&server, user("mallory"), path).await })
        })
        .collect();
    // Once they have begun, of which the last tells.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(code(&server.server, user("mallory"), path).await, 429);
    others_are_answered(&server).await;
    assert!(asking.iter().all(|one| !one.is_finished()));
    asking.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn watches_are_counted() {
    let server = busy_server().await;
    let mut open = Vec::new();
    loop {
        let answer = get(&server.server, user("mallory"), &format!("{MAPS}?watch=1")).await;
        if answer.status() == 429 {
            break;
        }
        open.push(answer);
        assert!(open.len() < 10_000, "watches without end");
    }
    others_are_answered(&server).await;
    assert_eq!(code(&server.server, user("alice"), &format!("{MAPS}?watch=1")).await, 200);
    assert_eq!(code(&server.server, user("mallory"), MAPS).await, 200);
}

/// The document is made once, and anew when there is a new kind.
#[tokio::test]
async fn the_large_document_follows_the_definitions() {
    let server = busy_server().await;
    let before = server.get("/openapi/v2").await.expect(200);
    assert_eq!(server.get("/openapi/v2").await.expect(200), before);
    server.define(&crate::support::widgets()).await;
    let after = server.get("/openapi/v2").await.expect(200);
    let paths = |document: &serde_json::Value| document["paths"].as_object().unwrap().len();
    assert!(paths(&after) > paths(&before));
}

#[tokio::test]
async fn openapi_is_told_as_json_alone() {
    let server = busy_server().await;
    for path in ["/openapi/v2", "/openapi/v3/apis/apps/v1"] {
        let document = server.get(path).await.expect(200);
        assert_eq!(server.get_as(path, "application/yaml,application/json").await.expect(200), document);
        server.get_as(path, "application/yaml").await.expect(406);
    }
    server.get("/openapi/v3/apis/none.example.com/v1").await;
}

/// Holds whoever sends an object until it is let go of.
#[derive(Clone, Default)]
struct Slow(Arc<(Mutex<bool>, Condvar)>, Arc<AtomicUsize>);

impl Slow {
    fn let_go(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

impl Admission for Slow {
    fn admit(&self, review: &Review<'_>, _: Option<&mut Value>, _: &mut Vec<String>) -> Result<(), Status> {
        if review.identity.user == "mallory" {
            self.1.fetch_add(1, Ordering::Relaxed);
            drop(self.0.1.wait_while(self.0.0.lock().unwrap(), |gone| !*gone).unwrap());
        }
        Ok(())
    }
}

/// All work on them is done without a pause: as many as there are threads left nobody to answer others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_leave_a_thread_to_others() {
    let slow = Slow::default();
    let server = busy(ApiServer::builder(Place::Memory).admission(slow.clone())).await;
    let mut large = map("m");
    large["data"]["x"] = "x".repeat(100_000).into();
    let sending: Vec<_> = (0..20)
        .map(|_| {
            let mut request = Request::post(MAPS).header("content-type", "application/json");
            let mut server = server.server.clone();
            request.extensions_mut().unwrap().insert(user("mallory"));
            let request = request.body(Full::new(Bytes::from(large.to_string()))).unwrap();
            tokio::spawn(async move { server.call(request).await.unwrap().status().as_u16() })
        })
        .collect();
    while slow.1.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // On a thread of the runtime, of which one is kept.
    let others = tokio::spawn({
        let server = server.server.clone();
        async move { code(&server, user("alice"), MAPS).await }
    });
    assert_eq!(others.await.unwrap(), 200);
    assert_eq!(slow.1.load(Ordering::Relaxed), 1);
    slow.let_go();
    let mut codes = Vec::new();
    for one in sending {
        codes.push(one.await.unwrap());
    }
    codes.sort_unstable();
    assert_eq!((codes[0], codes[1], codes[19]), (201, 409, 409));
}
