//! Values within values, beyond what anyone can read.

use http::Request;
use serde_json::{Value, json};

use crate::scene::{SHRUBS, Scene, TREES, nested, shrubs, tree};
use crate::support::DEFINITIONS;

/// What an object may have.
const DEEPEST: usize = 100;

/// Whoever got an object must be able to read it, in a list, in a watch, and as rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_deepest_object_can_be_read_everywhere() {
    let scene = Scene::begin().await;
    scene.post(TREES, &tree("t", &nested(DEEPEST - 1))).await.expect(201);
    let one = scene.server.get(&format!("{TREES}/t")).await.expect(200);
    assert_eq!(one["spec"], nested(DEEPEST - 1));
    assert_eq!(scene.server.get(TREES).await.expect(200)["items"][0], one);
    let mut frames = scene.server.watch(&format!("{TREES}?watch=1")).await;
    assert_eq!(frames.next().await["object"], one);
    drop(frames);
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let rows = scene.server.get_as(&format!("{TREES}?includeObject=Object"), table).await.expect(200);
    assert_eq!(rows["rows"][0]["object"], one);
    scene.end(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_bodies_are_refused_in_every_form() {
    let scene = Scene::begin().await;
    let deep = tree("t", &nested(DEEPEST));
    scene.post(TREES, &deep).await.expect(400);
    scene.request("POST", TREES, "application/yaml", &deep).await.expect(400);
    scene.post(TREES, &tree("t", &json!({}))).await.expect(201);
    let path = format!("{TREES}/t");
    scene.request("PUT", &path, "application/json", &deep).await.expect(400);
    scene.patch("merge", &path, &json!({ "spec": nested(DEEPEST) })).await.expect(400);
    let endless = "{\"a\":".repeat(500_000).into_bytes();
    let request = Request::post(TREES).header("content-type", "application/json").body(endless).unwrap();
    scene.send(request).await.expect(400);
    scene.end(&[]).await;
}

/// Sixteen copies, each of the whole into its own deepest place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_that_double_the_depth_are_refused() {
    let scene = Scene::begin().await;
    scene.post(TREES, &tree("t", &nested(1))).await.expect(201);
    let path = format!("{TREES}/t");
    for doublings in [10, 16] {
        let copies = (0..doublings)
            .map(|turn| json!({ "op": "copy", "from": "/spec", "path": format!("/spec{}", "/a".repeat(1 << turn)) }));
        scene.patch("json", &path, &copies.collect()).await.expect(400);
    }
    assert_eq!(scene.server.get(&path).await.expect(200)["spec"], nested(1));
    scene.end(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn additions_and_moves_do_not_reach_deeper_than_bodies() {
    let scene = Scene::begin().await;
    scene.post(TREES, &tree("t", &json!({ "a": nested(60), "b": nested(60) }))).await.expect(201);
    let path = format!("{TREES}/t");
    let deep = format!("/spec{}", "/a".repeat(61));
    for operation in [
        json!({ "op": "add", "path": &deep, "value": nested(60) }),
        json!({ "op": "replace", "path": &deep, "value": nested(60) }),
        json!({ "op": "move", "from": "/spec/b", "path": &deep }),
        json!({ "op": "copy", "from": "/spec/b", "path": &deep }),
    ] {
        scene.patch("json", &path, &json!([operation])).await.expect(400);
    }
    scene.end(&[]).await;
}

/// A default is in the schema once, and in the object wherever it has a place for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defaults_make_no_object_larger_than_bodies() {
    let large = json!({ "type": "string", "default": "x".repeat(100_000) });
    let items = json!({ "type": "object", "properties": { "a": large } });
    let list = json!({ "type": "array", "items": items });
    let scene = Scene::with(&json!({ "type": "object", "properties": { "list": list } })).await;
    let many: Value = std::iter::repeat_n(json!({}), 500_000).collect();
    scene.post(TREES, &tree("t", &json!({ "list": many }))).await.expect(400);
    let two = scene.post(TREES, &tree("t", &json!({ "list": [{}, {}] }))).await.expect(201);
    assert_eq!(two["spec"]["list"][1]["a"].as_str().map(str::len), Some(100_000));
    // Built-in kinds have defaults, too.
    let pods = "/api/v1/namespaces/hostile/pods";
    let pod = json!({ "metadata": { "name": "p" }, "spec": { "containers": many } });
    scene.post(pods, &pod).await.expect(400);
    scene.end(&[]).await;
}

/// Replicas were put into a place 20,000 levels deep, and the process ended when the object was dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_leads_to_no_place_that_is_too_deep() {
    let scene = Scene::begin().await;
    let paths = |steps: usize| json!({ "specReplicasPath": format!(".spec{}", ".a".repeat(steps - 1)), "statusReplicasPath": ".status.n" });
    let define = |scale: &Value| {
        let mut definition = shrubs();
        definition["spec"]["versions"][0]["subresources"] = json!({ "scale": scale });
        definition
    };
    let mut deep = vec![paths(65), paths(20_000)];
    for field in ["statusReplicasPath", "labelSelectorPath"] {
        let mut scale = paths(2);
        scale[field] = format!(".status{}", ".a".repeat(20_000)).into();
        deep.push(scale);
    }
    for scale in deep {
        let refused = scene.post(DEFINITIONS, &define(&scale)).await.expect(422);
        assert!(refused["message"].as_str().unwrap().contains("must have at most 64 steps"), "{refused}");
    }
    scene.server.define(&define(&paths(64))).await;
    let shrub = json!({ "apiVersion": "example.com/v1", "kind": "Shrub", "metadata": { "name": "s" } });
    scene.server.post(SHRUBS, &shrub).await.expect(201);
    scene.patch("merge", &format!("{SHRUBS}/s/scale"), &json!({ "spec": { "replicas": 3 } })).await.expect(200);
    assert_eq!(scene.server.get(&format!("{SHRUBS}/s/scale")).await.expect(200)["spec"]["replicas"], 3);
    scene.server.delete(&format!("{DEFINITIONS}/shrubs.example.com"), &json!({})).await.expect(200);
    scene.end(&[]).await;
}
