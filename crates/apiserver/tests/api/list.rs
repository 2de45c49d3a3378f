use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{MAPS, PODS, Server, labelled, map, pod, server};

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

async fn pages(server: &Server, limit: usize, mut between: impl AsyncFnMut()) -> Vec<Value> {
    let mut pages = Vec::new();
    let mut next = String::new();
    loop {
        let page = server.get(&format!("{MAPS}?limit={limit}&continue={next}")).await.expect(200);
        between().await;
        next = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        pages.push(page);
        if next.is_empty() {
            return pages;
        }
    }
}

#[tokio::test]
async fn pages_are_of_one_moment() {
    let server = server().await;
    for index in 0..5 {
        server.post(MAPS, &map(&format!("m{index}"))).await.expect(201);
    }
    let mut count = 0;
    let all = pages(&server, 2, async || {
        // Gone, new and changed ones while the pages are turned.
        count += 1;
        server.delete(&format!("{MAPS}/m{count}"), &json!({})).await;
        server.post(MAPS, &map(&format!("m3-{count}"))).await;
        server.merge(&format!("{MAPS}/m4"), &json!({ "data": { "x": count.to_string() } })).await;
    })
    .await;
    let found: Vec<&str> = all.iter().flat_map(names).collect();
    assert_eq!(found, ["m0", "m1", "m2", "m3", "m4"]);
    assert_eq!(all[2]["items"][0]["data"]["x"], "1");
    let revisions: Vec<&Value> = all.iter().map(|page| &page["metadata"]["resourceVersion"]).collect();
    assert!(revisions.windows(2).all(|pair| pair[0] == pair[1]));
    assert_eq!(all[0]["metadata"]["remainingItemCount"], 3);
    assert!(all[2]["metadata"].get("remainingItemCount").is_none());
}

#[tokio::test]
async fn an_earlier_moment_can_be_asked_for() {
    let server = server().await;
    let made = server.post(MAPS, &map("a")).await.expect(201);
    let then = made["metadata"]["resourceVersion"].as_str().unwrap();
    server.merge(&format!("{MAPS}/a"), &json!({ "data": { "x": "2" } })).await.expect(200);
    server.post(MAPS, &map("b")).await.expect(201);
    let exact = server.get(&format!("{MAPS}?resourceVersion={then}&resourceVersionMatch=Exact")).await.expect(200);
    assert_eq!(names(&exact), ["a"]);
    assert_eq!(exact["items"][0]["data"]["x"], "1");
    assert_eq!(names(&server.get(&format!("{MAPS}?resourceVersion={then}")).await.expect(200)), ["a", "b"]);
    server.get(&format!("{MAPS}?resourceVersionMatch=Exact")).await.expect(422);
    server.get(&format!("{MAPS}?resourceVersion=1&resourceVersionMatch=Never")).await.expect(422);
    server.get(&format!("{MAPS}?resourceVersion=x")).await.expect(400);
    let ahead = server.get(&format!("{MAPS}?resourceVersion=99999999")).await.expect(504);
    assert_eq!(ahead["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    assert_eq!(ahead["details"]["retryAfterSeconds"], 1);
    server.get(&format!("{MAPS}?limit=1&continue=nonsense")).await.expect(400);
}

#[tokio::test]
async fn labels_and_fields_select() {
    let server = server().await;
    server.post(MAPS, &labelled("a", &json!({ "app": "web", "tier": "1" }))).await.expect(201);
    server.post(MAPS, &labelled("b", &json!({ "app": "db" }))).await.expect(201);
    for (query, expected) in [
        ("labelSelector=app%3Dweb", vec!["a"]),
        ("labelSelector=app+in+(web,db),!tier", vec!["b"]),
        ("fieldSelector=metadata.name%3Db", vec!["b"]),
        ("fieldSelector=metadata.name!%3Db", vec!["a"]),
        ("labelSelector=app&fieldSelector=metadata.namespace%3Dother", vec![]),
    ] {
        let list = server.get(&format!("{MAPS}?{query}")).await.expect(200);
        assert_eq!(names(&list), expected, "{query}");
    }
    server.get(&format!("{MAPS}?labelSelector=a%3D%3D%3Db")).await.expect(400);
    let refused = server.get(&format!("{MAPS}?fieldSelector=data.x%3D1")).await.expect(400);
    assert!(refused["message"].as_str().unwrap().contains("\"data.x\" is not a known field selector"), "{refused}");
}

#[tokio::test]
async fn pods_are_selected_by_node_and_phase() {
    let server = server().await;
    server.post(PODS, &pod("a", "one")).await.expect(201);
    server.post(PODS, &pod("b", "two")).await.expect(201);
    server.merge(&format!("{PODS}/b/status"), &json!({ "status": { "phase": "Running" } })).await.expect(200);
    let all = "/api/v1/pods?fieldSelector=";
    assert_eq!(names(&server.get(&format!("{all}spec.nodeName%3Done")).await.expect(200)), ["a"]);
    assert_eq!(names(&server.get(&format!("{all}status.phase%3DRunning")).await.expect(200)), ["b"]);
    assert_eq!(names(&server.get(&format!("{all}spec.hostNetwork%3Dfalse")).await.expect(200)), ["a", "b"]);
}

#[tokio::test]
async fn a_large_list_is_whole() {
    let server = server().await;
    let text = "x".repeat(4000);
    for index in 0..100 {
        let mut big = map(&format!("m{index:03}"));
        big["data"]["x"] = text.as_str().into();
        server.post(MAPS, &big).await.expect(201);
    }
    let list = server.get(MAPS).await.expect(200);
    assert_eq!(list["items"].as_array().unwrap().len(), 100);
    assert_eq!(list["kind"], "ConfigMapList");
    assert!(
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .all(|item| item["data"]["x"] == text.as_str() && item.get("kind").is_none())
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: testkit::soak::cases(16), failure_persistence: None, ..ProptestConfig::default() })]

    /// However the pages are cut, together they are the list.
    #[test]
    fn pages_are_the_list(count in 0_usize..12, limit in 1_usize..6) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = server().await;
            for index in 0..count {
                server.post(MAPS, &map(&format!("m{index:02}"))).await.expect(201);
            }
            let whole = server.get(MAPS).await.expect(200);
            let all = pages(&server, limit, async || ()).await;
            let together: Vec<&Value> = all.iter().flat_map(|page| page["items"].as_array().unwrap()).collect();
            prop_assert_eq!(together, whole["items"].as_array().unwrap().iter().collect::<Vec<_>>());
            Ok(())
        })?;
    }
}
