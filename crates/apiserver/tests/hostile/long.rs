//! Small requests that ask for much work, and answers that would repeat much of what was sent.

use apiserver::Identity;
use http::Request;
use serde_json::{Value, json};

use crate::scene::{Scene, TREES, tree};
use crate::support::{Server, map};

const HOSTILE_MAPS: &str = "/api/v1/namespaces/hostile/configmaps";
/// What is told of problems fits into a small part of what a request may have.
const LONGEST_ANSWER: usize = 1 << 20;

fn many(count: usize, make: impl FnMut(usize) -> Value) -> Value {
    (0..count).map(make).collect()
}

/// Each of them is in the message about each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_that_all_control_are_told_once() {
    let scene = Scene::begin().await;
    let mut owned = map("owned");
    owned["metadata"]["ownerReferences"] = many(
        5000,
        |turn| json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": format!("owner-{turn}"), "uid": format!("u{turn}"), "controller": true }),
    );
    let refused = scene.post(HOSTILE_MAPS, &owned).await.expect(422);
    let causes = refused["details"]["causes"].as_array().unwrap();
    let start = "Invalid value: [{\"apiVersion\":\"v1\"";
    assert!(causes.iter().all(|cause| cause["message"].as_str().unwrap().starts_with(start)), "{}", causes[0]);
    assert!(causes.len() <= 100 && refused.to_string().len() < LONGEST_ANSWER, "{}", refused.to_string().len());
    scene.end(&[HOSTILE_MAPS]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_lists_are_merged_in_one_go() {
    let scene = Scene::begin().await;
    let finalizers = |count: usize| many(count, |turn| format!("a/{turn}").into());
    scene.server.post(HOSTILE_MAPS, &map("held")).await.expect(201);
    let path = format!("{HOSTILE_MAPS}/held");
    let patch = json!({ "metadata": { "finalizers": finalizers(100_000) } });
    let held = scene.patch("strategic-merge", &path, &patch).await.expect(200);
    assert_eq!(held["metadata"]["finalizers"].as_array().map(Vec::len), Some(100_000));
    // In another order, and without them all.
    let order: Value = finalizers(100_000).as_array().unwrap().iter().rev().cloned().collect();
    let patch = json!({ "metadata": { "$setElementOrder/finalizers": order } });
    let turned = scene.patch("strategic-merge", &path, &patch).await.expect(200);
    assert_eq!(turned["metadata"]["finalizers"][0], "a/99999");
    // An update that was to add some to an object on its way out compares them all.
    scene.server.delete(&path, &json!({})).await.expect(200);
    let more = json!({ "metadata": { "finalizers": finalizers(100_001) } });
    scene.patch("merge", &path, &more).await.expect(422);
    let patch = json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": finalizers(100_000) } });
    scene.patch("strategic-merge", &path, &patch).await.expect(200);
    scene.server.get(&path).await.expect(404);
    // Items with a key.
    let pods = "/api/v1/namespaces/hostile/podtemplates";
    let container = |turn: usize| json!({ "name": format!("c{turn}"), "image": "i" });
    let template = json!({ "metadata": { "name": "t" }, "template": { "spec": { "containers": [container(0)] } } });
    scene.server.post(pods, &template).await.expect(201);
    let deleted = many(60_000, |turn| json!({ "name": format!("c{turn}"), "$patch": "delete" }));
    let patch = json!({ "template": { "spec": { "containers": deleted } } });
    let left = scene.patch("strategic-merge", &format!("{pods}/t"), &patch).await;
    assert!(matches!(left.code, 200 | 422), "{}", left.body);
    scene.end(&[HOSTILE_MAPS, pods]).await;
}

/// Every removal moves all that follows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removals_from_the_front_of_a_long_list_are_counted() {
    let scene = Scene::begin().await;
    scene.server.post(TREES, &tree("t", &json!({ "list": many(700_000, |_| 0.into()) }))).await.expect(201);
    let path = format!("{TREES}/t");
    let removals = many(10_000, |_| json!({ "op": "remove", "path": "/spec/list/0" }));
    assert_eq!(scene.patch("json", &path, &removals).await.expect(413)["reason"], "RequestEntityTooLarge");
    let few = many(10, |_| json!({ "op": "remove", "path": "/spec/list/0" }));
    let shorter = scene.patch("json", &path, &few).await.expect(200);
    assert_eq!(shorter["spec"]["list"].as_array().map(Vec::len), Some(699_990));
    scene.end(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_odd_is_told_without_repeating_the_body() {
    let scene = Scene::begin().await;
    let key = "k".repeat(2_900_000);
    let twice: Vec<String> = (0..90).map(|turn| format!("\"f{turn}\":1,\"f{turn}\":2")).collect();
    let body = format!("{{\"metadata\":{{\"name\":\"a\"}},\"{key}\":{{{}}}}}", twice.join(","));
    let strictly = format!("{HOSTILE_MAPS}?fieldValidation=Strict");
    for path in [strictly.as_str(), HOSTILE_MAPS] {
        let request = Request::post(path).header("content-type", "application/json");
        let answer = scene.send(request.body(body.clone().into_bytes()).unwrap()).await;
        let told: usize = answer.headers.get_all("warning").iter().map(http::HeaderValue::len).sum();
        assert!(answer.body.to_string().len() < LONGEST_ANSWER && told < 8192, "{told}");
        assert_eq!(answer.code, if path == strictly { 400 } else { 201 });
    }
    let unknown: serde_json::Map<String, Value> = (0..200_000).map(|turn| (format!("u{turn}"), 1.into())).collect();
    let mut odd = map("b");
    odd["odd"] = json!({ "x": 1 });
    odd.as_object_mut().unwrap().extend(unknown.clone());
    assert!(scene.post(&strictly, &odd).await.expect(400).to_string().len() < LONGEST_ANSWER);
    // The same for a kind whose schema drops them.
    let mut odd = tree("t", &json!({}));
    odd.as_object_mut().unwrap().extend(unknown);
    let answer = scene.post(&format!("{TREES}?fieldValidation=Strict"), &odd).await;
    assert!(answer.expect(400).to_string().len() < LONGEST_ANSWER);
    // Without its type an object is told whole.
    let nameless = json!({ "metadata": { "name": "t" }, "spec": { "text": "x".repeat(2_900_000) } });
    assert!(scene.post(TREES, &nameless).await.expect(400).to_string().len() < LONGEST_ANSWER);
    scene.end(&[HOSTILE_MAPS]).await;
}

/// A few lists of words make a rule for each combination of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_that_cannot_be_compared_are_refused() {
    let scene = Scene::begin().await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/hostile/roles";
    let rule = json!({ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"] });
    let own = json!({ "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["create"] });
    let role = json!({ "metadata": { "name": "writer" }, "rules": [rule, own] });
    scene.server.post(roles, &role).await.expect(201);
    let binding = json!({
        "metadata": { "name": "writer" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "writer" },
        "subjects": [{ "kind": "User", "name": "mallory" }],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/hostile/rolebindings";
    scene.server.post(bindings, &binding).await.expect(201);
    let mallory = Identity { user: "mallory".to_owned(), ..Identity::default() };
    let server = Server {
        client: kube::Client::new(scene.server.server.for_identity(mallory), "hostile"),
        server: scene.server.server.clone(),
    };
    let words = |what: &str| many(10_000, |turn| format!("{what}{turn}").into());
    let rule = json!({ "apiGroups": words("g"), "resources": words("r"), "verbs": words("v") });
    let refused = server.post(roles, &json!({ "metadata": { "name": "huge" }, "rules": [rule] })).await.expect(403);
    assert!(refused["message"].as_str().unwrap().contains("too many rules to compare"), "{refused}");
    drop(server);
    scene.end(&[roles, bindings]).await;
}
