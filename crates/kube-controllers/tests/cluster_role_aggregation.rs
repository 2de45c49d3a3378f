//! Aggregated cluster roles on the embedded API server.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use kube_controllers::cluster_role_aggregation;
use serde_json::json;
use testkit::world::{self, World};
use tokio::time::sleep;

async fn settle() {
    sleep(Duration::from_secs(2)).await;
}

fn allows(role: &ClusterRole, verb: &str, resource: &str) -> bool {
    let has = |list: &[String], word: &str| list.iter().any(|one| one == word);
    let matches = |rule: &PolicyRule| has(&rule.verbs, verb) && has(rule.resources.as_deref().unwrap(), resource);
    role.rules.iter().flatten().any(matches)
}

#[tokio::test(start_paused = true)]
async fn admin_edit_and_view_follow_their_parts() {
    let world = World::start().await;
    let context = world.kubernetes("clusterrole-aggregation-controller");
    tokio::spawn(cluster_role_aggregation::start(&context).run);
    world::watch(&context);
    settle().await;
    let roles: Api<ClusterRole> = Api::all(world.client());
    let read = async |name: &str| roles.get(name).await.unwrap();
    let (admin, edit, view) = (read("admin").await, read("edit").await, read("view").await);
    assert!(allows(&view, "get", "pods") && !allows(&view, "create", "pods") && !allows(&view, "get", "secrets"));
    assert!(allows(&edit, "get", "pods") && allows(&edit, "create", "pods") && !allows(&edit, "create", "roles"));
    assert!(allows(&admin, "get", "pods") && allows(&admin, "create", "pods") && allows(&admin, "create", "roles"));
    let part: ClusterRole = serde_json::from_value(json!({
        "metadata": { "name": "part", "labels": { "rbac.authorization.k8s.io/aggregate-to-view": "true" } },
        "rules": [{ "verbs": ["get"], "apiGroups": ["example.com"], "resources": ["widgets"] }],
    }))
    .unwrap();
    roles.create(&PostParams::default(), &part).await.unwrap();
    settle().await;
    for name in ["admin", "edit", "view"] {
        assert!(allows(&read(name).await, "get", "widgets"), "{name}");
    }
    let before = read("admin").await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(read("admin").await.resource_version(), before.resource_version(), "at rest nothing is written");
    roles.delete("part", &DeleteParams::default()).await.unwrap();
    settle().await;
    assert_eq!(read("admin").await.rules, admin.rules);
}
