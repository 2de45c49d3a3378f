use apiserver::{Admission, ApiServer, Attributes, Authorizer, Decision, Identity, Place, Review, Status, Stored};
use serde_json::{Value, json};

use crate::support::{MAPS, Server, map, server};

#[tokio::test]
async fn nobody_sees_health_and_version_only() {
    let known = server().await;
    let nobody = Server { client: kube::Client::new(known.server.clone(), "default"), server: known.server.clone() };
    for path in ["/healthz", "/readyz", "/version"] {
        nobody.get(path).await.expect(200);
    }
    for path in ["/api", "/metrics", "/openapi/v3", "/healthzz", "/readyz/store"] {
        let refused = nobody.get(path).await.expect(403);
        assert_eq!(refused["message"], format!("forbidden: User \"system:anonymous\" cannot get path \"{path}\""));
    }
    let refused = nobody.get(MAPS).await.expect(403);
    let expected = "configmaps is forbidden: User \"system:anonymous\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\"";
    assert_eq!(refused["message"], expected);
}

#[tokio::test]
async fn one_can_ask_who_one_is_and_what_one_may() {
    let server = server().await;
    let me = server.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({})).await.expect(201);
    assert_eq!(me["status"]["userInfo"]["username"], "kubernetes-admin");
    let spec = json!({ "spec": { "resourceAttributes": { "verb": "get", "resource": "pods" } } });
    let may = server.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &spec).await.expect(201);
    assert_eq!(may["status"]["allowed"], true);
}

struct ReadOnly;

impl Authorizer for ReadOnly {
    fn decide(&self, _who: &Identity, what: Attributes<'_>, _stored: Stored<'_>) -> Decision {
        let allowed = matches!(what.verb, "get" | "list" | "watch");
        Decision { allowed, reason: String::new() }
    }
}

#[tokio::test]
async fn another_authorizer_decides_otherwise() {
    let server = Server::on(ApiServer::builder(Place::Memory).authorizer(ReadOnly).start().await.unwrap());
    server.get(MAPS).await.expect(200);
    server.post(MAPS, &map("a")).await.expect(403);
}

struct Stamp;

impl Admission for Stamp {
    fn admit(&self, review: &Review<'_>, object: Option<&mut Value>, warnings: &mut Vec<String>) -> Result<(), Status> {
        match object {
            Some(object) => {
                object["metadata"]["annotations"]["seen-by"] = review.identity.user.clone().into();
                warnings.push(format!("{} was seen", review.attributes.verb));
                Ok(())
            }
            None => Err(Status::denied("nothing is deleted here")),
        }
    }
}

#[tokio::test]
async fn admission_changes_warns_and_refuses() {
    let server = Server::on(ApiServer::builder(Place::Memory).admission(Stamp).start().await.unwrap());
    let answer = server.post(MAPS, &map("a")).await;
    assert_eq!(answer.headers["warning"], "299 - \"create was seen\"");
    assert_eq!(answer.expect(201)["metadata"]["annotations"]["seen-by"], "kubernetes-admin");
    let refused = server.delete(&format!("{MAPS}/a"), &json!({})).await.expect(403);
    assert_eq!(refused["message"], "nothing is deleted here");
}

#[tokio::test]
async fn nobody_asks_for_a_certificate_in_the_name_of_another() {
    let server = server().await;
    let request = json!({
        "metadata": { "name": "r" },
        "spec": { "request": "eA==", "signerName": "example.com/s", "usages": ["client auth"], "username": "somebody", "groups": ["system:masters"] },
    });
    let base = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let made = server.post(base, &request).await.expect(201);
    assert_eq!(made["spec"]["username"], "kubernetes-admin");
    let changed = server.merge(&format!("{base}/r"), &json!({ "spec": { "username": "somebody" } })).await.expect(200);
    assert_eq!(changed["spec"]["username"], "kubernetes-admin");
}

#[tokio::test]
async fn an_unknown_token_is_not_nobody() {
    let known = server().await;
    let nobody = Server { client: kube::Client::new(known.server.clone(), "default"), server: known.server.clone() };
    let ask = async |server: &Server, path: &str, value: &str| {
        let request = http::Request::get(path).header("authorization", value);
        server.send(request.body(Vec::new()).unwrap()).await
    };
    for path in ["/api", MAPS, "/healthz", "/apis/example.com/v1/widgets"] {
        let refused = ask(&nobody, path, "Bearer abc").await.expect(401);
        let expected = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "Unauthorized", "reason": "Unauthorized", "code": 401,
        });
        assert_eq!(refused, expected, "{path}");
    }
    ask(&nobody, "/healthz", "bearer abc").await.expect(401);
    // Another kind of proof is none, and who is known already needs none.
    ask(&nobody, "/api", "Basic abc").await.expect(403);
    ask(&nobody, "/healthz", "Bearer ").await.expect(200);
    ask(&known, "/api", "Bearer abc").await.expect(200);
}
