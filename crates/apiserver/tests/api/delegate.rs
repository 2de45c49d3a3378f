use apiserver::{ApiServer, Body, Place, RequestBody};
use serde_json::json;
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
