//! Requests of a form that nobody expects, and ways around what a request may do.

use http::{HeaderValue, Request};
use serde_json::{Value, json};

use crate::scene::Scene;
use crate::support::{MAPS, PODS, pod, server};

/// Each ended the task that worked on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_of_another_form_are_refused() {
    let scene = Scene::begin().await;
    let accounts = "/api/v1/namespaces/hostile/serviceaccounts";
    scene.server.post(accounts, &json!({ "metadata": { "name": "a" } })).await.expect(201);
    let token = format!("{accounts}/a/token");
    for body in
        [json!([]), json!("x"), json!(1), json!({ "spec": "x" }), json!({ "spec": [] }), json!({ "metadata": 1 })]
    {
        scene.post(&token, &body).await.expect(400);
    }
    let pods = "/api/v1/namespaces/hostile/pods";
    scene.server.post(pods, &pod("p", "")).await.expect(201);
    let deep = json!({ "metadata": { "annotations": { "a": { "b": 1 } } }, "target": { "name": "n" } });
    for body in [json!([]), json!({ "target": 1 }), deep] {
        scene.post(&format!("{pods}/p/binding"), &body).await.expect(400);
    }
    // None of them is an eviction without options, which would end the pod.
    for body in [json!([]), json!({ "deleteOptions": "x" }), json!({ "deleteOptions": { "dryRun": "All" } })] {
        scene.post(&format!("{pods}/p/eviction"), &body).await.expect(400);
    }
    scene.server.get(&format!("{pods}/p")).await.expect(200);
    scene.end(&[pods, accounts]).await;
}

/// The way to the replicas leads through what is no object.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scale_goes_through_no_number() {
    let server = server().await;
    let replicas = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let mut definition = crate::support::widgets();
    let version = &mut definition["spec"]["versions"][0];
    version["subresources"]["scale"]["specReplicasPath"] = ".spec.a.b".into();
    version["schema"] = json!({ "openAPIV3Schema": { "type": "object", "properties": { "spec": replicas, "status": {
        "type": "object", "properties": { "replicas": { "type": "integer" } } } } } });
    version["selectableFields"].take();
    version["additionalPrinterColumns"].take();
    server.define(&definition).await;
    let path = "/apis/example.com/v1/namespaces/default/widgets";
    let object =
        json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "w" }, "spec": { "a": 7 } });
    server.post(path, &object).await.expect(201);
    let scale = json!({ "metadata": { "name": "w" }, "spec": { "replicas": 3 } });
    let answer = server.put(&format!("{path}/w/scale"), &scale).await;
    assert!(answer.code < 500, "{}", answer.body);
}

#[tokio::test]
async fn a_user_that_cannot_be_read_is_nobody_to_act_as() {
    let server = server().await;
    for name in ["impersonate-user", "impersonate-group", "impersonate-extra-scopes"] {
        let value = HeaderValue::from_bytes("j\u{f6}rg".as_bytes()).unwrap();
        let request = Request::get(MAPS).header(name, value).body(Vec::new()).unwrap();
        let refused = server.send(request).await.expect(400);
        assert!(refused["message"].as_str().unwrap().contains(name), "{refused}");
    }
}

#[tokio::test]
async fn methods_that_clients_invent_are_counted_as_one() {
    let server = server().await;
    for turn in 0..100 {
        let method = format!("INVENTED{turn}");
        for path in [MAPS, "/healthz", "/nowhere"] {
            server.send(Request::builder().method(method.as_str()).uri(path).body(Vec::new()).unwrap()).await;
        }
    }
    let metrics = server.get("/metrics").await.expect(200);
    let text = metrics.as_str().unwrap();
    assert!(!text.contains("INVENTED") && text.contains("verb=\"other\""), "{text}");
}

#[tokio::test]
async fn ephemeral_containers_are_all_that_comes_by_their_way() {
    let server = server().await;
    let made = server.post(PODS, &pod("p", "n")).await.expect(201);
    let path = format!("{PODS}/p/ephemeralcontainers");
    let mut wanted = made.clone();
    wanted["spec"]["containers"][0]["image"] = "registry.example/another:1".into();
    wanted["spec"]["hostNetwork"] = true.into();
    wanted["metadata"]["labels"] = json!({ "a": "b" });
    wanted["spec"]["ephemeralContainers"] = json!([{ "name": "e", "image": "registry.example/e:1" }]);
    let changed = server.put(&path, &wanted).await.expect(200);
    assert_eq!(changed["spec"]["ephemeralContainers"][0]["name"], "e");
    let without = |pod: &Value| {
        let mut spec = pod["spec"].clone();
        spec.as_object_mut().unwrap().remove("ephemeralContainers");
        (spec, pod["metadata"]["labels"].clone())
    };
    assert_eq!(without(&changed), without(&made));
    let mut without_any = changed.clone();
    without_any["spec"]["ephemeralContainers"] = json!([]);
    server.put(&path, &without_any).await.expect(422);
    let mut other = changed.clone();
    other["spec"]["ephemeralContainers"][0]["image"] = "registry.example/f:1".into();
    let refused = server.put(&path, &other).await.expect(422);
    let message = refused["details"]["causes"][0]["message"].as_str().unwrap();
    assert_eq!(message, "Forbidden: existing ephemeral containers \"e\" may not be changed");
}

#[tokio::test]
async fn an_eviction_that_is_only_tried_takes_nothing_from_the_budget() {
    let server = server().await;
    let mut running = pod("p", "n");
    running["metadata"]["labels"] = json!({ "app": "a" });
    server.post(PODS, &running).await.expect(201);
    server.patch("merge", &format!("{PODS}/p/status"), &json!({ "status": { "phase": "Running" } })).await.expect(200);
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let spec = json!({ "selector": { "matchLabels": { "app": "a" } }, "maxUnavailable": 1 });
    server.post(budgets, &json!({ "metadata": { "name": "b" }, "spec": spec })).await.expect(201);
    let allowed = json!({ "status": { "disruptionsAllowed": 1, "observedGeneration": 1 } });
    server.merge(&format!("{budgets}/b/status"), &allowed).await.expect(200);
    let before = server.get(&format!("{budgets}/b")).await.expect(200);
    for (query, options) in [("", json!({ "dryRun": ["All"] })), ("?dryRun=All", json!({}))] {
        let eviction = json!({ "metadata": { "name": "p" }, "deleteOptions": options });
        server.post(&format!("{PODS}/p/eviction{query}"), &eviction).await.expect(201);
    }
    assert_eq!(server.get(&format!("{budgets}/b")).await.expect(200), before);
    assert!(server.get(&format!("{PODS}/p")).await.expect(200)["metadata"]["deletionTimestamp"].is_null());
}
