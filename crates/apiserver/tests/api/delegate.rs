use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use apiserver::serve::Listening;
use apiserver::{ApiServer, Body, Delegation, Identity, Place, RequestBody, StreamPlace};
use http_body_util::{BodyExt as _, Empty};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tower::Service as _;
use tower::util::BoxCloneSyncService;

use crate::rbac::by;
use crate::support::Server;

#[tokio::test]
async fn a_group_can_be_handed_to_another_service() {
    let service = tower::service_fn(|request: http::Request<RequestBody>| async move {
        Ok(http::Response::new(Body::from(format!("\"{} {}\"", request.method(), request.uri().path()))))
    });
    let resources = vec![
        json!({ "name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": ["get"] }),
    ];
    let server = ApiServer::builder(Place::Memory)
        .delegate("sub.example.com", "v1", resources, BoxCloneSyncService::new(service))
        .start()
        .await
        .unwrap();
    let server = Server::on(server);
    let path = "/apis/sub.example.com/v1/namespaces/n/things/a/console";
    assert_eq!(server.get(path).await.expect(200), json!(format!("GET {path}")));
    // It is a request for a resource to whoever authorizes it, whatever follows the subresource.
    let somebody = by(&server, "somebody", &[]);
    let refused = somebody.get(&format!("{path}/x/y")).await.expect(403);
    let expected = "things.sub.example.com \"a\" is forbidden: User \"somebody\" cannot get resource \"things/console\" in API group \"sub.example.com\" in the namespace \"n\"";
    assert_eq!(refused["message"], expected);
    somebody.get("/apis/sub.example.com/v1/namespaces//things/a/console").await.expect(404);
    let listed = server.get("/apis/sub.example.com/v1").await.expect(200);
    assert_eq!(listed["resources"][0]["kind"], "Thing");
    let groups = server.get("/apis").await.expect(200);
    assert!(groups["groups"].as_array().unwrap().iter().any(|group| group["name"] == "sub.example.com"));
}

#[tokio::test]
async fn paths_are_open_to_everybody_and_an_answer_that_breaks_off_is_an_error() {
    let service = tower::service_fn(|request: http::Request<RequestBody>| async move {
        let path = request.uri().path().to_owned();
        let pieces = [Ok(http_body::Frame::data("part".into())), Err(std::io::Error::other("gone"))];
        let broken = Body::passed(http_body_util::StreamBody::new(futures_util::stream::iter(pieces)));
        Ok(http::Response::new(if path.ends_with("/broken") { broken } else { Body::from(format!("{path:?}")) }))
    });
    let builder = ApiServer::builder(Place::Memory).open("/api/open.example.com/", BoxCloneSyncService::new(service));
    let server = Server::on(builder.start().await.unwrap());
    let somebody = by(&server, "somebody", &[]);
    // Also with a token that the server would not know.
    let request = http::Request::get("/api/open.example.com/v1/x").header("authorization", "Bearer unknown");
    assert_eq!(somebody.send(request.body(Vec::new()).unwrap()).await.expect(200), "/api/open.example.com/v1/x");
    somebody.get("/api/open.example.org/v1/x").await.expect(403);
    let broken = http::Request::get("/api/open.example.com/broken").body(kube::client::Body::empty()).unwrap();
    let answer = somebody.client.send(broken).await.unwrap();
    assert!(answer.into_body().collect().await.is_err(), "a part was taken for the whole");
}

/// A service that answers nothing in particular.
fn silent() -> apiserver::Delegate {
    BoxCloneSyncService::new(tower::service_fn(|_: http::Request<RequestBody>| async {
        Ok(http::Response::new(Body::from("")))
    }))
}

fn says(verb: &str, path: &str) -> Delegation {
    let resources =
        vec![json!({ "name": format!("things/{verb}"), "namespaced": true, "kind": "", "verbs": ["update"] })];
    let paths = [(path.to_owned(), json!({ "put": { "responses": { "200": { "description": "OK" } } } }))];
    Delegation { resources, paths: paths.into_iter().collect() }
}

#[tokio::test]
async fn versions_of_a_group_are_one_group() {
    let group = "sub.example.com";
    let path = |version: &str| format!("/apis/{group}/{version}/namespaces/{{namespace}}/things/{{name}}/start");
    let server = ApiServer::builder(Place::Memory)
        .delegate(group, "v1", says("start", &path("v1")), silent())
        .delegate("other.example.com", "v1", says("stop", "/apis/other.example.com/v1/x"), silent())
        .delegate(group, "v1alpha3", says("start", &path("v1alpha3")), silent())
        .start()
        .await
        .unwrap();
    let server = Server::on(server);
    let groups = server.get("/apis").await.expect(200);
    let own = |list: &Value, name: &str| -> Vec<Value> {
        list.as_array().unwrap().iter().filter(|one| one.pointer(name) == Some(&json!(group))).cloned().collect()
    };
    let expected = json!({
        "name": group,
        "preferredVersion": { "groupVersion": "sub.example.com/v1", "version": "v1" },
        "versions": [
            { "groupVersion": "sub.example.com/v1", "version": "v1" },
            { "groupVersion": "sub.example.com/v1alpha3", "version": "v1alpha3" },
        ],
    });
    assert_eq!(own(&groups["groups"], "/name"), [expected]);
    let page = server.get("/apis/sub.example.com").await.expect(200);
    assert_eq!((&page["kind"], page["versions"].as_array().unwrap().len()), (&json!("APIGroup"), 2));
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let aggregated = server.get_as("/apis", accept).await.expect(200);
    let found = own(&aggregated["items"], "/metadata/name");
    let versions: Vec<&Value> = found.iter().flat_map(|one| one["versions"].as_array().unwrap()).collect();
    let names: Vec<&Value> = versions.iter().map(|one| &one["version"]).collect();
    assert_eq!((found.len(), names), (1, vec![&json!("v1"), &json!("v1alpha3")]));
    let sub = json!({
        "subresource": "start", "verbs": ["update"],
        "responseKind": { "group": group, "version": "v1", "kind": "" },
    });
    assert_eq!(versions[0]["resources"][0]["subresources"], json!([sub]));
    // OpenAPI has what each of them has.
    let index = server.get("/openapi/v3").await.expect(200);
    let url = index["paths"]["apis/sub.example.com/v1alpha3"]["serverRelativeURL"].as_str().unwrap();
    let document = server.get(url).await.expect(200);
    let paths: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
    assert_eq!(paths, [&path("v1alpha3")]);
    let everything = server.get("/openapi/v2").await.expect(200);
    assert!(everything["paths"][path("v1")]["put"].is_object());
    let listed = server.get("/").await.expect(200);
    let listed = listed["paths"].as_array().unwrap();
    for path in ["/apis/sub.example.com", "/apis/sub.example.com/v1", "/apis/sub.example.com/v1alpha3"] {
        assert_eq!(listed.iter().filter(|one| **one == path).count(), 1, "{path}");
    }
}

/// A request that goes on as something else, from outside the process.
fn upgrade(path: &str, who: &str) -> http::Request<Empty<bytes::Bytes>> {
    let request = http::Request::get(path).header("connection", "keep-alive, Upgrade").header("upgrade", "websocket");
    let mut request = request.body(Empty::new()).unwrap();
    request.extensions_mut().insert(Identity::new(who, ["system:masters".to_owned()]));
    request
}

/// A server whose delegate hands the places of streams to the test.
async fn streaming() -> (ApiServer, mpsc::UnboundedReceiver<StreamPlace>) {
    let (places, taken) = mpsc::unbounded_channel();
    let service = tower::service_fn(move |request: http::Request<RequestBody>| {
        let places = places.clone();
        async move {
            if let Some(place) = request.extensions().get::<StreamPlace>() {
                places.send(place.clone()).unwrap();
            }
            Ok(http::Response::new(Body::from("")))
        }
    });
    let resources = vec![json!({ "name": "things/console", "namespaced": true, "kind": "", "verbs": ["get"] })];
    let builder = ApiServer::builder(Place::Memory);
    let builder = builder.delegate("sub.example.com", "v1", resources, BoxCloneSyncService::new(service));
    (builder.start().await.unwrap(), taken)
}

const CONSOLE: &str = "/apis/sub.example.com/v1/namespaces/n/things/a/console";

#[tokio::test]
async fn streams_take_leave_before_the_server_ends() {
    let (server, mut taken) = streaming().await;
    let folder = tempfile::tempdir().unwrap();
    let address: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
    let listening = Listening::on(address, folder.path(), &server).await.unwrap();
    server.clone().call(upgrade(CONSOLE, "somebody")).await.unwrap();
    let place = taken.recv().await.unwrap();
    let left = Arc::new(AtomicBool::new(false));
    let leaving = left.clone();
    let stream = tokio::spawn(async move {
        place.stopping().await;
        leaving.store(true, Ordering::SeqCst);
    });
    let (stop, stopped) = oneshot::channel::<()>();
    let running = listening.run(server, async move { drop(stopped.await) });
    let stopping = async {
        tokio::task::yield_now().await;
        assert!(!left.load(Ordering::SeqCst) && !stream.is_finished());
        stop.send(()).unwrap();
    };
    tokio::join!(running, stopping);
    assert!(left.load(Ordering::SeqCst), "the server did not wait for a stream");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_does_not_end_does_not_hold_the_server_up() {
    let (server, mut taken) = streaming().await;
    let folder = tempfile::tempdir().unwrap();
    let address: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
    let listening = Listening::on(address, folder.path(), &server).await.unwrap();
    server.clone().call(upgrade(CONSOLE, "somebody")).await.unwrap();
    let _place = taken.recv().await.unwrap();
    listening.run(server, std::future::ready(())).await;
}

#[tokio::test]
async fn streams_are_counted_until_they_end() {
    let (server, mut taken) = streaming().await;
    let mut open = Vec::new();
    loop {
        let answer = server.clone().call(upgrade(CONSOLE, "mallory")).await.unwrap();
        if answer.status() == 429 {
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            let status: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(status["reason"], "TooManyRequests");
            break;
        }
        open.push(taken.recv().await.unwrap());
        assert!(open.len() <= 20_000, "streams without end");
    }
    // Others have their own share, and whoever ends one may open another.
    let other = server.clone().call(upgrade(CONSOLE, "alice")).await.unwrap();
    assert_eq!(other.status(), 200);
    taken.recv().await.unwrap();
    open.pop();
    assert_eq!(server.clone().call(upgrade(CONSOLE, "mallory")).await.unwrap().status(), 200);
}
