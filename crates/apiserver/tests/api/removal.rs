//! Definitions that go while others still write: no object is left behind.

use serde_json::{Value, json};

use crate::support::{DEFINITIONS, Server, WIDGETS, server, widget, widgets};

const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";

async fn gone(server: &Server) {
    while server.get(DEFINITION).await.code != 404 {
        tokio::task::yield_now().await;
    }
}

/// Whatever is left in the table would show under a recreated definition.
async fn left(server: &Server) -> Value {
    server.define(&widgets()).await;
    server.get(WIDGETS).await.expect(200)["items"].clone()
}

#[tokio::test]
async fn who_creates_while_a_definition_goes_leaves_nothing_behind() {
    for round in 0..5 {
        let server = server().await;
        server.define(&widgets()).await;
        let creators: Vec<_> = (0..8)
            .map(|creator| {
                let server = server.clone();
                tokio::spawn(async move {
                    let mut codes = Vec::new();
                    for number in 0.. {
                        let made = widget(&format!("w-{creator}-{number}"), &json!({}));
                        let code = server.post(WIDGETS, &made).await.code;
                        codes.push(code);
                        if code == 404 {
                            break;
                        }
                        tokio::task::yield_now().await;
                    }
                    codes
                })
            })
            .collect();
        for _ in 0..round * 10 {
            tokio::task::yield_now().await;
        }
        server.delete(DEFINITION, &json!({})).await.expect(200);
        gone(&server).await;
        for creator in creators {
            let codes = creator.await.unwrap();
            assert!(codes.iter().all(|code| matches!(code, 201 | 404 | 405)), "{codes:?}");
        }
        assert_eq!(left(&server).await, json!([]), "round {round}");
    }
}

#[tokio::test]
async fn nothing_new_comes_while_a_definition_goes() {
    let server = server().await;
    server.define(&widgets()).await;
    let mut held = widget("held", &json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.post(WIDGETS, &held).await.expect(201);
    server.delete(DEFINITION, &json!({})).await.expect(200);
    let refused = server.post(WIDGETS, &widget("late", &json!({}))).await.expect(405);
    assert_eq!(refused["reason"], "MethodNotAllowed");
    assert_eq!(refused["message"], "create not allowed while custom resource definition is terminating");
    // What is there can still be changed, and so let go.
    let free = json!({ "metadata": { "finalizers": null } });
    while server.merge(&format!("{WIDGETS}/held"), &free).await.code != 404 {
        tokio::task::yield_now().await;
    }
    gone(&server).await;
    assert_eq!(server.post(WIDGETS, &widget("late", &json!({}))).await.expect(404), json!("404 page not found\n"));
    assert_eq!(left(&server).await, json!([]));
}

/// Who takes the clean-up from a definition does not get its objects with the next one.
#[tokio::test]
async fn a_definition_that_is_torn_away_takes_its_objects_along() {
    let server = server().await;
    server.define(&widgets()).await;
    let mut held = widget("held", &json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.post(WIDGETS, &held).await.expect(201);
    server.delete(DEFINITION, &json!({})).await.expect(200);
    server.merge(DEFINITION, &json!({ "metadata": { "finalizers": null } })).await.expect(200);
    gone(&server).await;
    while server.get(WIDGETS).await.code != 404 {
        tokio::task::yield_now().await;
    }
    server.get(DEFINITIONS).await.expect(200);
    assert_eq!(left(&server).await, json!([]));
}
