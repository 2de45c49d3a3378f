use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher;
use serde_json::{Value, json};

use crate::support::{MAPS, Server, labelled, map, server};

#[tokio::test]
async fn what_is_there_comes_first_then_changes_in_order() {
    let server = server().await;
    server.post(MAPS, &map("a")).await.expect(201);
    let mut frames = server.watch(&format!("{MAPS}?watch=1")).await;
    server.post(MAPS, &map("b")).await.expect(201);
    server.merge(&format!("{MAPS}/a"), &json!({ "data": { "x": "2" } })).await.expect(200);
    server.delete(&format!("{MAPS}/b"), &json!({})).await.expect(200);
    assert_eq!(frames.names(4).await, ["ADDED a", "ADDED b", "MODIFIED a", "DELETED b"]);
}

#[tokio::test]
async fn a_watch_goes_on_where_another_ended() {
    let server = server().await;
    let made = server.post(MAPS, &map("a")).await.expect(201);
    let revision = made["metadata"]["resourceVersion"].as_str().unwrap();
    server.post(MAPS, &map("b")).await.expect(201);
    let mut frames = server.watch(&format!("{MAPS}?watch=1&resourceVersion={revision}")).await;
    assert_eq!(frames.names(1).await, ["ADDED b"]);
}

#[tokio::test]
async fn a_deletion_carries_its_own_revision() {
    let server = server().await;
    let made = server.post(MAPS, &map("a")).await.expect(201);
    let number = |value: &Value| value["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    let mut frames = server.watch(&format!("{MAPS}?watch=1&resourceVersion={}", number(&made))).await;
    server.delete(&format!("{MAPS}/a"), &json!({})).await.expect(200);
    let frame = frames.next().await;
    assert_eq!(frame["type"], "DELETED");
    assert!(number(&frame["object"]) > number(&made));
    assert_eq!(frame["object"]["data"], made["data"]);
}

#[tokio::test]
async fn what_enters_a_selection_is_added_and_what_leaves_is_deleted() {
    let server = server().await;
    server.post(MAPS, &labelled("a", &json!({ "app": "web" }))).await.expect(201);
    let mut frames = server.watch(&format!("{MAPS}?watch=1&labelSelector=app%3Dweb")).await;
    let relabel = async |value: &str| {
        let change = json!({ "metadata": { "labels": { "app": value } } });
        server.merge(&format!("{MAPS}/a"), &change).await.expect(200)
    };
    let left = relabel("db").await;
    relabel("db2").await;
    relabel("web").await;
    server.merge(&format!("{MAPS}/a"), &json!({ "data": { "x": "3" } })).await.expect(200);
    server.post(MAPS, &labelled("b", &json!({ "app": "db" }))).await.expect(201);
    server.delete(&format!("{MAPS}/a"), &json!({})).await.expect(200);
    assert_eq!(frames.next().await["type"], "ADDED");
    let gone = frames.next().await;
    assert_eq!(gone["type"], "DELETED");
    assert_eq!(gone["object"]["metadata"]["resourceVersion"], left["metadata"]["resourceVersion"]);
    assert_eq!(gone["object"]["metadata"]["labels"]["app"], "web", "the last state that was selected");
    assert_eq!(frames.names(3).await, ["ADDED a", "MODIFIED a", "DELETED a"]);
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark() {
    let server = server().await;
    server.post(MAPS, &map("a")).await.expect(201);
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut frames = server.watch(&format!("{MAPS}?{query}")).await;
    assert_eq!(frames.names(1).await, ["ADDED a"]);
    let bookmark = frames.next().await;
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    server.post(MAPS, &map("b")).await.expect(201);
    assert_eq!(frames.names(1).await, ["ADDED b"]);
    server.get(&format!("{MAPS}?watch=1&sendInitialEvents=true")).await.expect(422);
    server.get(&format!("{MAPS}?watch=1&resourceVersionMatch=NotOlderThan")).await.expect(422);
}

/// What happened to other kinds meanwhile is no reason to start anew.
#[tokio::test]
async fn a_kind_to_which_nothing_happened_is_watched_from_any_point() {
    let server = server().await;
    let listed = server.get("/api/v1/secrets").await.expect(200);
    let then = listed["metadata"]["resourceVersion"].as_str().unwrap();
    server.post(MAPS, &map("a")).await.expect(201);
    server.post(MAPS, &map("b")).await.expect(201);
    let mut frames = server.watch(&format!("/api/v1/secrets?watch=1&resourceVersion={then}")).await;
    server.post("/api/v1/namespaces/default/secrets", &json!({ "metadata": { "name": "s" } })).await.expect(201);
    assert_eq!(frames.names(1).await, ["ADDED s"]);
}

/// A client that reads nothing while a history goes by loses its place, and nobody else waits for it.
#[tokio::test]
async fn a_slow_watcher_is_cut() {
    let server = server().await;
    let made = server.post(MAPS, &map("a")).await.expect(201);
    let revision = made["metadata"]["resourceVersion"].as_str().unwrap();
    let mut slow = server.watch(&format!("{MAPS}?watch=1&resourceVersion={revision}")).await;
    for index in 0..10_050 {
        server.merge(&format!("{MAPS}/a"), &json!({ "data": { "x": index.to_string() } })).await.expect(200);
    }
    let frame = slow.next().await;
    assert_eq!(frame["object"]["code"], 410, "{frame}");
    assert_eq!(slow.next().await, Value::Null);
}

#[tokio::test]
async fn all_watchers_see_one_order() {
    let server = server().await;
    let mut watchers = Vec::new();
    for _ in 0..5 {
        watchers.push(server.watch(&format!("{MAPS}?watch=1")).await);
    }
    let write = async |server: Server, index: usize| {
        server.post(MAPS, &map(&format!("m{index}"))).await.expect(201);
    };
    let writers: Vec<_> = (0..20).map(|index| tokio::spawn(write(server.clone(), index))).collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let first = watchers[0].names(20).await;
    for watcher in &mut watchers[1..] {
        assert_eq!(watcher.names(20).await, first);
    }
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_while_nothing_happens_and_a_watch_ends_in_time() {
    let server = server().await;
    let mut frames = server.watch(&format!("{MAPS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=100")).await;
    server.post("/api/v1/namespaces", &json!({ "metadata": { "name": "n" } })).await.expect(201);
    assert_eq!(frames.next().await["type"], "BOOKMARK");
    let last = frames.next().await;
    assert_eq!(last["type"], "BOOKMARK", "so that the next watch starts from the end of this one");
    assert_eq!(frames.next().await, Value::Null);
}

#[tokio::test]
async fn the_watcher_of_kube_follows_in_both_modes() {
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let server = server().await;
        server.post(MAPS, &map("a")).await.expect(201);
        let api = kube::Api::<ConfigMap>::default_namespaced(server.client.clone());
        let mut stream = watcher(api, config).boxed();
        let mut seen = Vec::new();
        while seen.len() < 4 {
            let event =
                tokio::time::timeout(Duration::from_secs(20), stream.try_next()).await.unwrap().unwrap().unwrap();
            match event {
                watcher::Event::Init => seen.push("init".to_owned()),
                watcher::Event::InitApply(map) => seen.push(format!("initial {}", map.metadata.name.unwrap())),
                watcher::Event::InitDone => {
                    seen.push("done".to_owned());
                    server.post(MAPS, &crate::support::map("b")).await.expect(201);
                }
                watcher::Event::Apply(map) => seen.push(format!("apply {}", map.metadata.name.unwrap())),
                watcher::Event::Delete(_) => seen.push("delete".to_owned()),
            }
        }
        assert_eq!(seen, ["init", "initial a", "done", "apply b"]);
    }
}
