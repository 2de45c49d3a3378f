use serde_json::json;

use crate::support::{WIDGETS, server, widget, widgets};

#[tokio::test]
async fn deployments_and_custom_objects_scale_alike() {
    let server = server().await;
    server.define(&widgets()).await;
    server.post(WIDGETS, &widget("w", &json!({}))).await.expect(201);
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let given = json!({
        "metadata": { "name": "w" },
        "spec": { "selector": { "matchLabels": { "a": "b" } }, "template": { "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [] } } },
    });
    server.post(deployments, &given).await.expect(201);
    for base in [WIDGETS, deployments] {
        let path = format!("{base}/w/scale");
        let mut scale = server.get(&path).await.expect(200);
        assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(1)));
        scale["spec"]["replicas"] = 3.into();
        assert_eq!(server.put(&path, &scale).await.expect(200)["spec"]["replicas"], 3);
        server.put(&path, &scale).await.expect(409);
        server.merge(&path, &json!({ "spec": { "replicas": 2 } })).await.expect(200);
        assert_eq!(server.get(&format!("{base}/w")).await.expect(200)["spec"]["replicas"], 2);
        server.merge(&path, &json!({ "spec": { "replicas": -1 } })).await.expect(422);
        server.merge(&path, &json!({ "spec": { "replicas": 0 } })).await.expect(200);
        assert_eq!(server.get(&path).await.expect(200)["spec"], json!({}));
    }
    assert_eq!(server.get(&format!("{deployments}/w/scale")).await.expect(200)["status"]["selector"], "a=b");
}
