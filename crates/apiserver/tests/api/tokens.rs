use std::time::Duration;

use apiserver::{ApiServer, Clock, Identity, Place, ServiceAccounts};
use serde_json::{Value, json};

use crate::support::{MAPS, Server, server};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const PODS: &str = "/api/v1/namespaces/default/pods";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

async fn account(server: &Server, name: &str) -> Value {
    server.post(ACCOUNTS, &json!({ "metadata": { "name": name } })).await.expect(201)
}

async fn request(server: &Server, account: &str, spec: Value) -> Value {
    server.post(&format!("{ACCOUNTS}/{account}/token"), &json!({ "spec": spec })).await.expect(201)
}

fn token(answer: &Value) -> &str {
    answer["status"]["token"].as_str().unwrap()
}

async fn review(server: &Server, token: &str) -> Value {
    server.post(REVIEWS, &json!({ "spec": { "token": token } })).await.expect(201)["status"].clone()
}

fn nobody(server: &Server) -> Server {
    Server { client: kube::Client::new(server.server.clone(), "default"), server: server.server.clone() }
}

async fn who(server: &Server, headers: &[(&str, &str)]) -> crate::support::Answer {
    let mut request = http::Request::post(WHO);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    server.send(request.body(b"{}".to_vec()).unwrap()).await
}

#[tokio::test]
async fn who_shows_a_token_is_its_account() {
    let server = server().await;
    let uid = account(&server, "robot").await["metadata"]["uid"].clone();
    let answer = request(&server, "robot", json!({})).await;
    assert_eq!(answer["kind"], "TokenRequest");
    assert_eq!(answer["spec"]["expirationSeconds"], 3600);
    let bearer = format!("Bearer {}", token(&answer));
    let me = who(&nobody(&server), &[("authorization", &bearer)]).await.expect(201);
    let user = &me["status"]["userInfo"];
    assert_eq!(user["username"], "system:serviceaccount:default:robot");
    assert_eq!(user["uid"], uid);
    let groups = ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"];
    assert_eq!(user["groups"], json!(groups));
    let reviewed = review(&server, token(&answer)).await;
    assert_eq!(reviewed["authenticated"], true);
    assert_eq!(reviewed["user"], *user);
    assert_eq!(reviewed["audiences"], json!(["https://kubernetes.default.svc.cluster.local"]));
}

#[tokio::test(start_paused = true)]
async fn a_token_ends_by_itself() {
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let server = Server::on(ApiServer::builder(Place::Memory).clock(clock).start().await.unwrap());
    account(&server, "robot").await;
    let answer = request(&server, "robot", json!({ "expirationSeconds": 600 })).await;
    assert_eq!(answer["status"]["expirationTimestamp"], "2026-01-01T00:10:00Z");
    tokio::time::advance(Duration::from_secs(599)).await;
    assert_eq!(review(&server, token(&answer)).await["authenticated"], true);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(review(&server, token(&answer)).await, json!({ "user": {}, "error": "invalid bearer token" }));
}

#[tokio::test]
async fn a_token_ends_with_its_account_and_comes_not_back_with_the_name() {
    let server = server().await;
    account(&server, "robot").await;
    let answer = request(&server, "robot", json!({})).await;
    server.delete(&format!("{ACCOUNTS}/robot"), &json!({})).await.expect(200);
    assert_eq!(review(&server, token(&answer)).await["error"], "invalid bearer token");
    account(&server, "robot").await;
    assert_eq!(review(&server, token(&answer)).await["error"], "invalid bearer token");
    let bearer = format!("Bearer {}", token(&answer));
    who(&nobody(&server), &[("authorization", &bearer)]).await.expect(401);
}

#[tokio::test]
async fn a_token_ends_with_the_pod_that_it_is_bound_to() {
    let server = server().await;
    account(&server, "robot").await;
    account(&server, "other").await;
    let node = server.post("/api/v1/nodes", &json!({ "metadata": { "name": "n" } })).await.expect(201);
    let pod = json!({
        "metadata": { "name": "p" },
        "spec": { "serviceAccountName": "robot", "nodeName": "n", "containers": [{ "name": "c", "image": "i" }] },
    });
    let pod = server.post(PODS, &pod).await.expect(201);
    let bound =
        |uid: &Value| json!({ "boundObjectRef": { "kind": "Pod", "apiVersion": "v1", "name": "p", "uid": uid } });
    let answer = request(&server, "robot", bound(&pod["metadata"]["uid"])).await;
    let reviewed = review(&server, token(&answer)).await;
    let extra = &reviewed["user"]["extra"];
    assert_eq!(extra["authentication.kubernetes.io/pod-name"], json!(["p"]));
    assert_eq!(extra["authentication.kubernetes.io/pod-uid"], json!([pod["metadata"]["uid"]]));
    assert_eq!(extra["authentication.kubernetes.io/node-name"], json!(["n"]));
    assert_eq!(extra["authentication.kubernetes.io/node-uid"], json!([node["metadata"]["uid"]]));
    let post = |account: &str, spec: Value| {
        let (path, body) = (format!("{ACCOUNTS}/{account}/token"), json!({ "spec": spec }));
        let server = server.clone();
        async move { server.post(&path, &body).await }
    };
    post("other", bound(&pod["metadata"]["uid"])).await.expect(400);
    post("robot", bound(&json!("another"))).await.expect(409);
    post("robot", json!({ "boundObjectRef": { "kind": "ConfigMap", "apiVersion": "v1", "name": "x" } }))
        .await
        .expect(400);
    post("robot", json!({ "boundObjectRef": { "kind": "Secret", "apiVersion": "v1", "name": "x" } })).await.expect(404);
    post("robot", json!({ "expirationSeconds": 599 })).await.expect(422);
    post("absent", json!({})).await.expect(404);
    server.delete(&format!("{PODS}/p"), &json!({ "gracePeriodSeconds": 0 })).await.expect(200);
    assert_eq!(review(&server, token(&answer)).await["error"], "invalid bearer token");
}

#[tokio::test]
async fn a_token_for_others_is_of_no_use_here() {
    let server = server().await;
    account(&server, "robot").await;
    let answer = request(&server, "robot", json!({ "audiences": ["vault"] })).await;
    let bearer = format!("Bearer {}", token(&answer));
    who(&nobody(&server), &[("authorization", &bearer)]).await.expect(401);
    let asked = json!({ "spec": { "token": token(&answer), "audiences": ["vault", "another"] } });
    let reviewed = server.post(REVIEWS, &asked).await.expect(201);
    assert_eq!(reviewed["status"]["audiences"], json!(["vault"]));
}

#[tokio::test]
async fn tokens_outlive_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let start = async || Server::on(ApiServer::builder(Place::Folder(folder.path().into())).start().await.unwrap());
    let first = start().await;
    account(&first, "robot").await;
    let answer = request(&first, "robot", json!({})).await;
    drop(first);
    let second = loop {
        // The store is free when the last of the first server is gone.
        match ApiServer::builder(Place::Folder(folder.path().into())).start().await {
            Ok(server) => break Server::on(server),
            Err(_) => tokio::task::yield_now().await,
        }
    };
    assert_eq!(review(&second, token(&answer)).await["authenticated"], true);
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&folder.path().join("pki/sa.key").metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn an_administrator_may_act_as_anybody() {
    let server = server().await;
    let me =
        who(&server, &[("impersonate-user", "jane"), ("impersonate-group", "devs"), ("impersonate-extra-a%2fb", "c")]);
    let me = me.await.expect(201);
    let expected = json!({ "username": "jane", "groups": ["devs", "system:authenticated"], "extra": { "a/b": ["c"] } });
    assert_eq!(me["status"]["userInfo"], expected);
    let account = who(&server, &[("impersonate-user", "system:serviceaccount:n:a")]).await.expect(201);
    let groups = ["system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated"];
    assert_eq!(account["status"]["userInfo"]["groups"], json!(groups));
    who(&server, &[("impersonate-group", "devs")]).await.expect(400);
}

#[tokio::test]
async fn others_may_act_as_nobody() {
    let server = server().await;
    let jane = Identity::new("jane", []);
    let jane = Server { client: kube::Client::new(server.server.for_identity(jane), "default"), ..server.clone() };
    let refused =
        who(&jane, &[("impersonate-user", "root"), ("impersonate-group", "system:masters")]).await.expect(403);
    let expected = "users \"root\" is forbidden: User \"jane\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope";
    assert_eq!(refused["message"], expected);
    let request = http::Request::get(MAPS).header("impersonate-user", "system:serviceaccount:n:a");
    let refused = jane.send(request.body(Vec::new()).unwrap()).await.expect(403);
    let expected = "serviceaccounts \"a\" is forbidden: User \"jane\" cannot impersonate resource \"serviceaccounts\" in API group \"\" in the namespace \"n\"";
    assert_eq!(refused["message"], expected);
}

fn pod(spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["containers"] = json!([{ "name": "c", "image": "i" }]);
    json!({ "metadata": { "name": "p" }, "spec": spec })
}

#[tokio::test]
async fn a_pod_gets_the_token_of_its_account_unless_somebody_refuses_it() {
    let admission = ServiceAccounts::new(Some(1));
    let server = Server::on(ApiServer::builder(Place::Memory).admission(admission).start().await.unwrap());
    let refused = server.post(PODS, &pod(&json!({}))).await.expect(403);
    let expected = "pods \"p\" is forbidden: error looking up service account default/default: serviceaccount \"default\" not found";
    assert_eq!(refused["message"], expected);
    // Nothing of the account is needed.
    let dry = format!("{PODS}?dryRun=All");
    server.post(&dry, &pod(&json!({ "automountServiceAccountToken": false }))).await.expect(201);
    let secrets = json!([{ "name": "registry" }]);
    server.post(ACCOUNTS, &json!({ "metadata": { "name": "default" }, "imagePullSecrets": secrets })).await.expect(201);
    let quiet = json!({ "metadata": { "name": "quiet" }, "automountServiceAccountToken": false });
    server.post(ACCOUNTS, &quiet).await.expect(201);
    let made = server.post(&dry, &pod(&json!({}))).await.expect(201);
    let spec = &made["spec"];
    // It is a pod like any other: nothing in it is there and null, which a later change would take for another spec.
    assert!(spec.as_object().unwrap().values().all(|value| !value.is_null()), "{spec}");
    assert_eq!((&spec["serviceAccountName"], &spec["serviceAccount"]), (&json!("default"), &json!("default")));
    assert_eq!(spec["imagePullSecrets"], secrets);
    let mount = &spec["containers"][0]["volumeMounts"][0];
    assert_eq!(mount["mountPath"], "/var/run/secrets/kubernetes.io/serviceaccount");
    assert_eq!((&mount["name"], &mount["readOnly"]), (&spec["volumes"][0]["name"], &json!(true)));
    assert_eq!(spec["volumes"][0]["projected"]["sources"][0]["serviceAccountToken"]["path"], "token");
    for refusing in [json!({ "automountServiceAccountToken": false }), json!({ "serviceAccountName": "quiet" })] {
        let made = server.post(&dry, &pod(&refusing)).await.expect(201);
        assert_eq!(made["spec"]["volumes"], Value::Null, "{refusing}");
    }
    let wanting = json!({ "serviceAccountName": "quiet", "automountServiceAccountToken": true });
    assert!(server.post(&dry, &pod(&wanting)).await.expect(201)["spec"]["volumes"][0].is_object());
    let absent = json!({ "serviceAccountName": "absent", "automountServiceAccountToken": false });
    server.post(&dry, &pod(&absent)).await.expect(403);
    // One that has a mount there has a reason.
    let mut own = pod(&json!({ "volumes": [{ "name": "own", "emptyDir": {} }] }));
    own["spec"]["containers"][0]["volumeMounts"] =
        json!([{ "name": "own", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount" }]);
    let made = server.post(&dry, &own).await.expect(201);
    assert_eq!(made["spec"]["volumes"].as_array().unwrap().len(), 1);
}
