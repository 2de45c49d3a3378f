//! Roles and bindings, and what they let whom do.

use std::path::Path;

use apiserver::{ApiServer, Identity, OpenError, Place};
use serde_json::{Value, json};

use crate::support::{MAPS, PODS, Server, map, server};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1";

/// The same server, asked by somebody else.
pub(crate) fn by(server: &Server, user: &str, groups: &[&str]) -> Server {
    let identity = Identity::new(user, groups.iter().map(|&group| group.to_owned()));
    Server { client: kube::Client::new(server.server.for_identity(identity), "default"), server: server.server.clone() }
}

fn rule(verbs: &[&str], group: &str, resources: &[&str]) -> Value {
    json!({ "verbs": verbs, "apiGroups": [group], "resources": resources })
}

fn role(name: &str, rules: &[Value]) -> Value {
    json!({ "metadata": { "name": name }, "rules": rules })
}

fn binding(name: &str, (kind, role): (&str, &str), subjects: &Value) -> Value {
    json!({ "metadata": { "name": name }, "roleRef": { "kind": kind, "name": role }, "subjects": subjects })
}

fn user(name: &str) -> Value {
    json!([{ "kind": "User", "name": name }])
}

/// Binds a user to a new cluster role.
async fn grant(server: &Server, name: &str, rules: &[Value]) -> Server {
    server.post(&format!("{RBAC}/clusterroles"), &role(name, rules)).await.expect(201);
    let bound = binding(name, ("ClusterRole", name), &user(name));
    server.post(&format!("{RBAC}/clusterrolebindings"), &bound).await.expect(201);
    by(server, name, &[])
}

#[tokio::test]
async fn a_binding_counts_from_the_moment_it_is_there_to_the_moment_it_goes() {
    let server = server().await;
    let somebody = by(&server, "somebody", &[]);
    somebody.get("/apis").await.expect(200);
    let refused = somebody.get(MAPS).await.expect(403);
    let expected = "configmaps is forbidden: User \"somebody\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\"";
    assert_eq!(refused["message"], expected);
    let roles = format!("{RBAC}/namespaces/default/roles");
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    server.post(&bindings, &binding("b", ("Role", "r"), &user("somebody"))).await.expect(201);
    let refused = somebody.get(MAPS).await.expect(403);
    let missing = ": RBAC: role.rbac.authorization.k8s.io \"r\" not found";
    assert_eq!(refused["message"], format!("{expected}{missing}"));
    server.post(&roles, &role("r", &[rule(&["get", "list"], "", &["configmaps"])])).await.expect(201);
    somebody.get(MAPS).await.expect(200);
    somebody.get("/api/v1/namespaces/kube-system/configmaps").await.expect(403);
    somebody.get("/api/v1/configmaps").await.expect(403);
    somebody.post(MAPS, &map("a")).await.expect(403);
    let more = json!({ "rules": [rule(&["*"], "", &["configmaps"])] });
    server.merge(&format!("{roles}/r"), &more).await.expect(200);
    somebody.post(MAPS, &map("a")).await.expect(201);
    server.delete(&format!("{bindings}/b"), &json!({})).await.expect(200);
    somebody.get(MAPS).await.expect(403);
}

#[tokio::test]
async fn groups_and_service_accounts_are_subjects_too() {
    let server = server().await;
    server.post(&format!("{RBAC}/clusterroles"), &role("r", &[rule(&["get"], "", &["pods/status"])])).await.expect(201);
    let subjects = json!([
        { "kind": "Group", "name": "readers" },
        { "kind": "ServiceAccount", "name": "here" },
        { "kind": "ServiceAccount", "name": "there", "namespace": "kube-system" },
    ]);
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    server.post(&bindings, &binding("b", ("ClusterRole", "r"), &subjects)).await.expect(201);
    for (name, groups, code) in [
        ("x", &["readers"][..], 404),
        ("system:serviceaccount:default:here", &[], 404),
        ("system:serviceaccount:kube-system:there", &[], 404),
        ("system:serviceaccount:kube-system:here", &[], 403),
        ("readers", &[], 403),
    ] {
        by(&server, name, groups).get(&format!("{PODS}/p/status")).await.expect(code);
    }
    by(&server, "x", &["readers"]).get(&format!("{PODS}/p")).await.expect(403);
}

#[tokio::test]
async fn names_limit_a_rule_where_a_request_has_one() {
    let server = server().await;
    let mut rule = rule(&["get", "list", "watch", "create", "deletecollection"], "", &["configmaps"]);
    rule["resourceNames"] = json!(["a"]);
    let somebody = grant(&server, "somebody", &[rule]).await;
    somebody.get(&format!("{MAPS}/a")).await.expect(404);
    somebody.get(&format!("{MAPS}/b")).await.expect(403);
    somebody.get(MAPS).await.expect(403);
    somebody.get(&format!("{MAPS}?fieldSelector=metadata.name%3Da")).await.expect(200);
    somebody.get(&format!("{MAPS}?fieldSelector=metadata.name!%3Da")).await.expect(403);
    somebody.post(MAPS, &map("a")).await.expect(403);
    somebody.delete(&format!("{MAPS}?fieldSelector=metadata.name%3Da"), &json!({})).await.expect(403);
}

#[tokio::test]
async fn a_namespace_is_in_itself() {
    let server = server().await;
    let roles = format!("{RBAC}/namespaces/default/roles");
    server.post(&roles, &role("r", &[rule(&["get"], "", &["namespaces"])])).await.expect(201);
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    server.post(&bindings, &binding("b", ("Role", "r"), &user("somebody"))).await.expect(201);
    let somebody = by(&server, "somebody", &[]);
    somebody.get("/api/v1/namespaces/default").await.expect(200);
    somebody.get("/api/v1/namespaces/kube-system").await.expect(403);
    somebody.get("/api/v1/namespaces").await.expect(403);
}

#[tokio::test]
async fn one_can_ask_what_others_may_and_why() {
    let server = server().await;
    let pods = json!({ "verb": "get", "resource": "pods", "namespace": "default" });
    let review = json!({ "spec": { "user": "u", "groups": ["g"], "resourceAttributes": pods } });
    let path = format!("{REVIEWS}/subjectaccessreviews");
    assert_eq!(server.post(&path, &review).await.expect(201)["status"], json!({ "allowed": false }));
    let group = json!([{ "kind": "Group", "name": "g" }]);
    let bound = binding("b", ("ClusterRole", "system:aggregate-to-view"), &group);
    server.post(&format!("{RBAC}/namespaces/default/rolebindings"), &bound).await.expect(201);
    let reason =
        "RBAC: allowed by RoleBinding \"b/default\" of ClusterRole \"system:aggregate-to-view\" to Group \"g\"";
    let status = json!({ "allowed": true, "reason": reason });
    assert_eq!(server.post(&path, &review).await.expect(201)["status"], status);
    let local = format!("{REVIEWS}/namespaces/default/localsubjectaccessreviews");
    assert_eq!(server.post(&local, &review).await.expect(201)["status"], status);
    let elsewhere = format!("{REVIEWS}/namespaces/kube-system/localsubjectaccessreviews");
    let refused = server.post(&elsewhere, &review).await.expect(422);
    assert_eq!(refused["details"]["causes"][0]["field"], "spec.resourceAttributes.namespace");
    server.post(&path, &json!({ "spec": { "user": "u" } })).await.expect(422);
}

#[tokio::test]
async fn one_can_list_what_one_may() {
    let server = server().await;
    let widgets = rule(&["get"], "example.com", &["widgets"]);
    let somebody = grant(&server, "somebody", std::slice::from_ref(&widgets)).await;
    let ask = json!({ "spec": { "namespace": "default" } });
    let path = format!("{REVIEWS}/selfsubjectrulesreviews");
    let status = &somebody.post(&path, &ask).await.expect(201)["status"];
    assert!(status["resourceRules"].as_array().unwrap().contains(&widgets), "{status}");
    assert_eq!((status["nonResourceRules"].as_array().unwrap().len(), &status["incomplete"]), (2, &json!(false)));
    somebody.post(&path, &json!({})).await.expect(400);
}

#[tokio::test]
async fn nobody_grants_what_they_do_not_have() {
    let server = server().await;
    let roles = format!("{RBAC}/clusterroles");
    let bindings = format!("{RBAC}/clusterrolebindings");
    let held = [rule(&["create", "patch"], "rbac.authorization.k8s.io", &["*"]), rule(&["get"], "", &["pods"])];
    let somebody = grant(&server, "somebody", &held).await;
    somebody.post(&roles, &role("less", &held)).await.expect(201);
    let refused = somebody.post(&roles, &role("more", &[rule(&["list", "get"], "", &["pods", "nodes"])])).await;
    let expected = "clusterroles.rbac.authorization.k8s.io \"more\" is forbidden: user \"somebody\" (groups=[\"system:authenticated\"]) \
        is attempting to grant RBAC permissions not currently held:\n\
        {APIGroups:[\"\"], Resources:[\"nodes\"], Verbs:[\"list\" \"get\"]}\n\
        {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\"]}";
    assert_eq!(refused.expect(403)["message"], expected);
    let more = json!({ "rules": [rule(&["*"], "*", &["*"])] });
    somebody.merge(&format!("{roles}/less"), &more).await.expect(403);
    let itself = binding("b", ("ClusterRole", "cluster-admin"), &user("somebody"));
    somebody.post(&bindings, &itself).await.expect(403);
    somebody.post(&bindings, &binding("b", ("ClusterRole", "less"), &user("other"))).await.expect(201);
    let bind = rule(&["bind"], "rbac.authorization.k8s.io", &["clusterroles"]);
    let escalate = rule(&["escalate"], "rbac.authorization.k8s.io", &["clusterroles"]);
    let [first, second] = held;
    let free = json!({ "rules": [first, second, bind, escalate] });
    server.merge(&format!("{roles}/somebody"), &free).await.expect(200);
    somebody.post(&bindings, &binding("c", ("ClusterRole", "cluster-admin"), &user("other"))).await.expect(201);
    somebody.merge(&format!("{roles}/less"), &more).await.expect(200);
}

#[tokio::test]
async fn what_a_binding_binds_stays() {
    let server = server().await;
    let bindings = format!("{RBAC}/clusterrolebindings");
    let made = server.post(&bindings, &binding("b", ("ClusterRole", "view"), &user("u"))).await.expect(201);
    assert_eq!(made["subjects"][0]["apiGroup"], "rbac.authorization.k8s.io");
    let refused = server.merge(&format!("{bindings}/b"), &json!({ "roleRef": { "name": "edit" } })).await.expect(422);
    assert_eq!(refused["details"]["causes"][0]["field"], "roleRef");
    server.merge(&format!("{bindings}/b"), &json!({ "subjects": null })).await.expect(200);
}

#[tokio::test]
async fn whoever_may_only_replace_does_not_create() {
    let server = server().await;
    let rules = [rule(&["update"], "coordination.k8s.io", &["leases"])];
    let somebody = grant(&server, "somebody", &rules).await;
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let lease = json!({ "metadata": { "name": "l" }, "spec": {} });
    let refused = somebody.put(path, &lease).await.expect(403);
    let expected = "leases.coordination.k8s.io \"l\" is forbidden: User \"somebody\" cannot create resource \"leases\" in API group \"coordination.k8s.io\" in the namespace \"default\"";
    assert_eq!(refused["message"], expected);
    server.put(path, &lease).await.expect(201);
}

async fn open(folder: &Path) -> Server {
    loop {
        match ApiServer::builder(Place::Folder(folder.to_owned())).start().await {
            Ok(server) => return Server::on(server),
            // The writer of the last one lets go of the lock when its task has ended.
            Err(OpenError::InUse { .. }) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn the_policy_is_put_right_at_the_next_start_unless_it_is_not_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let path = |plural: &str, name: &str| format!("{RBAC}/{plural}/{name}");
    let first = open(folder.path()).await;
    let whole = first.get(&path("clusterroles", "system:discovery")).await.expect(200);
    let own = json!({ "rules": [rule(&["get"], "", &["pods"])], "metadata": { "labels": null } });
    first.merge(&path("clusterroles", "system:discovery"), &own).await.expect(200);
    let nobody = json!({ "subjects": null });
    first.merge(&path("clusterrolebindings", "system:basic-user"), &nobody).await.expect(200);
    let left = json!({ "metadata": { "annotations": { "rbac.authorization.kubernetes.io/autoupdate": "false" } }, "subjects": null });
    first.merge(&path("clusterrolebindings", "system:discovery"), &left).await.expect(200);
    first.delete(&path("clusterroles", "view"), &json!({})).await.expect(200);
    first.delete(&path("clusterrolebindings", "system:monitoring"), &json!({})).await.expect(200);
    let other = binding("system:monitoring", ("ClusterRole", "view"), &user("u"));
    first.post(&format!("{RBAC}/clusterrolebindings"), &other).await.expect(201);
    drop(first);
    let second = open(folder.path()).await;
    let mended = second.get(&path("clusterroles", "system:discovery")).await.expect(200);
    assert_eq!(mended["metadata"]["labels"], whole["metadata"]["labels"]);
    assert_eq!(mended["rules"][0], rule(&["get"], "", &["pods"]), "what others added stays");
    by(&second, "u", &[])
        .post(&format!("{REVIEWS}/selfsubjectaccessreviews"), &json!({ "spec": { "resourceAttributes": {} } }))
        .await
        .expect(201);
    let bound = second.get(&path("clusterrolebindings", "system:monitoring")).await.expect(200);
    assert_eq!(bound["roleRef"]["name"], "system:monitoring");
    second.get(&path("clusterroles", "view")).await.expect(200);
    let kept = second.get(&path("clusterrolebindings", "system:discovery")).await.expect(200);
    assert_eq!(kept.get("subjects"), None);
    let version = |list: &Value| list["metadata"]["resourceVersion"].clone();
    let before = version(&second.get(&format!("{RBAC}/clusterroles")).await.expect(200));
    drop(second);
    let third = open(folder.path()).await;
    let after = version(&third.get(&format!("{RBAC}/clusterroles")).await.expect(200));
    assert_eq!(before, after, "what is right is not written");
}
