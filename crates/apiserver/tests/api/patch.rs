use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{MAPS, Server, map, server};

#[tokio::test]
async fn json_patches_are_applied_or_refused_whole() {
    let server = server().await;
    let path = format!("{MAPS}/a");
    server.post(MAPS, &map("a")).await.expect(201);
    let good =
        json!([{ "op": "test", "path": "/data/x", "value": "1" }, { "op": "add", "path": "/data/y", "value": "2" }]);
    assert_eq!(server.patch("json", &path, &good).await.expect(200)["data"], json!({ "x": "1", "y": "2" }));
    let bad =
        json!([{ "op": "add", "path": "/data/z", "value": "3" }, { "op": "test", "path": "/data/x", "value": "0" }]);
    assert_eq!(server.patch("json", &path, &bad).await.expect(422)["reason"], "Invalid");
    assert!(server.get(&path).await.expect(200)["data"].get("z").is_none());
    server.patch("json", &path, &json!({ "op": "add" })).await.expect(400);
}

#[tokio::test]
async fn merge_patches_remove_by_null() {
    let server = server().await;
    let path = format!("{MAPS}/a");
    server.post(MAPS, &map("a")).await.expect(201);
    let changed = server.merge(&path, &json!({ "data": { "x": null, "y": "2" } })).await.expect(200);
    assert_eq!(changed["data"], json!({ "y": "2" }));
    server.merge(&path, &json!([1])).await.expect(400);
}

#[tokio::test]
async fn strategic_patches_merge_lists_by_their_key() {
    let server = server().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let given = json!({ "metadata": { "name": "s" }, "secrets": [{ "name": "one" }] });
    server.post(accounts, &given).await.expect(201);
    let patch = json!({ "secrets": [{ "name": "two" }] });
    let changed = server.patch("strategic-merge", &format!("{accounts}/s"), &patch).await.expect(200);
    assert_eq!(changed["secrets"], json!([{ "name": "two" }, { "name": "one" }]));
}

#[tokio::test]
async fn a_patch_of_another_kind_is_no_patch() {
    let server = server().await;
    let path = format!("{MAPS}/a");
    server.post(MAPS, &map("a")).await.expect(201);
    assert_eq!(server.patch("something", &path, &json!({})).await.expect(415)["reason"], "UnsupportedMediaType");
    server.merge(&format!("{MAPS}/gone"), &json!({})).await.expect(404);
    server.merge(&path, &json!({ "metadata": { "name": "b" } })).await.expect(400);
}

#[tokio::test]
async fn a_revision_in_a_patch_is_a_condition() {
    let server = server().await;
    let path = format!("{MAPS}/a");
    server.post(MAPS, &map("a")).await.expect(201);
    let stale = json!({ "metadata": { "resourceVersion": "1" }, "data": { "x": "2" } });
    server.merge(&path, &stale).await.expect(409);
}

#[tokio::test]
async fn patches_that_meet_are_all_applied() {
    let server = server().await;
    server.post(MAPS, &map("a")).await.expect(201);
    let patch = async |server: Server, index: usize| {
        let change = json!({ "data": { format!("k{index}"): "v" } });
        server.merge(&format!("{MAPS}/a"), &change).await.expect(200);
    };
    let all: Vec<_> = (0..8).map(|index| tokio::spawn(patch(server.clone(), index))).collect();
    for one in all {
        one.await.unwrap();
    }
    let data = server.get(&format!("{MAPS}/a")).await.expect(200)["data"].clone();
    assert_eq!(data.as_object().unwrap().len(), 9, "{data}");
}

fn data() -> impl Strategy<Value = Value> {
    prop::collection::btree_map("[a-c]", prop::option::of("[xy]"), 0..4).prop_map(|map| json!({ "data": map }))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: testkit::soak::cases(24), failure_persistence: None, ..ProptestConfig::default() })]

    /// What merge patches do to a map, against the rule of RFC 7396.
    #[test]
    fn merge_patches_follow_their_rule(patches in prop::collection::vec(data(), 1..4)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (found, expected) = runtime.block_on(async {
            let server = server().await;
            let mut expected = serde_json::Map::from_iter([("x".to_owned(), json!("1"))]);
            server.post(MAPS, &map("a")).await.expect(201);
            for patch in &patches {
                server.merge(&format!("{MAPS}/a"), patch).await.expect(200);
                for (key, value) in patch["data"].as_object().unwrap() {
                    match value {
                        Value::Null => drop(expected.remove(key)),
                        value => drop(expected.insert(key.clone(), value.clone())),
                    }
                }
            }
            let found = server.get(&format!("{MAPS}/a")).await.expect(200)["data"].as_object().cloned().unwrap_or_default();
            (found, expected)
        });
        prop_assert_eq!(found, expected);
    }
}

/// Each copy of the whole into itself doubles it. Sixteen make 64 MiB, forty would fill any memory.
#[tokio::test]
async fn what_a_patch_copies_is_bounded() {
    let server = server().await;
    let mut made = map("a");
    made["data"]["x"] = "x".repeat(1000).into();
    server.post(MAPS, &made).await.expect(201);
    let doubling: Vec<Value> =
        (0..16).map(|step| json!({ "op": "copy", "from": "/data", "path": format!("/data/{step}") })).collect();
    let refused = server.patch("json", &format!("{MAPS}/a"), &json!(doubling)).await.expect(413);
    assert_eq!(refused["reason"], "RequestEntityTooLarge");
    let some = json!([{ "op": "copy", "from": "/data/x", "path": "/data/y" }, { "op": "copy", "from": "/data/x", "path": "/data/z" }]);
    let patched = server.patch("json", &format!("{MAPS}/a"), &some).await.expect(200);
    assert_eq!(patched["data"]["z"], made["data"]["x"]);
}
