//! Evictions of launchers: a guest is moved rather than shut down, where its instance wants that.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use virt_api::review::answer;
use virt_api::{Mark, Operation, Request, Requester, Response, admit};

use crate::support::{Cluster, changed, denied, vmi};

const TRIGGERED: &str = "Eviction triggered evacuation of VMI \"default/v\"";

fn condition(status: &str) -> Value {
    json!({ "conditions": [{ "type": "LiveMigratable", "status": status }] })
}

fn pod(name: &str, node: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "labels": { "kubevirt.io": "virt-launcher" }, "annotations": { "kubevirt.io/domain": "v" },
            "ownerReferences": [{
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "v", "uid": "u", "controller": true,
            }],
        },
        "spec": { "nodeName": node, "containers": [] }, "status": { "phase": "Running" },
    })
}

/// The instance `v` on node `one`, with its launcher `p` and the given changes.
fn cluster(strategy: &str, instance: &Value) -> Cluster {
    let base = json!({
        "metadata": { "name": "v", "uid": "u", "resourceVersion": "7" }, "spec": { "evictionStrategy": strategy },
        "status": { "phase": "Running", "nodeName": "one", "conditions": [{ "type": "LiveMigratable", "status": "True" }] },
    });
    let instance = changed(&changed(&vmi(), &base), instance);
    let mut cluster = Cluster::new();
    cluster.instances.insert("v".to_owned(), Arc::new(serde_json::from_value(instance).unwrap()));
    with(cluster, &pod("p", "one"))
}

fn with(mut cluster: Cluster, pod: &Value) -> Cluster {
    cluster
        .pods
        .insert(pod["metadata"]["name"].as_str().unwrap().to_owned(), serde_json::from_value(pod.clone()).unwrap());
    cluster
}

fn evict_with(cluster: &Cluster, pod: &str, eviction: &Value, dry_run: bool) -> Response {
    let request = Request {
        operation: Operation::Create,
        group: "",
        resource: "pods",
        subresource: "eviction",
        namespace: "default",
        name: pod,
        requester: Requester::User,
        object: Some(eviction),
        old: None,
        dry_run,
    };
    admit(&request, cluster)
}

fn evict(cluster: &Cluster, pod: &str) -> Response {
    evict_with(cluster, pod, &json!({ "metadata": { "name": pod } }), false)
}

fn refusal(cluster: &Cluster, pod: &str) -> String {
    let response = evict(cluster, pod);
    assert_eq!(response.mark, None);
    let denial = denied(response);
    assert_eq!(denial.code, 429);
    denial.message
}

#[test]
fn an_instance_that_can_move_is_marked_and_the_client_asks_again() {
    for strategy in ["LiveMigrate", "LiveMigrateIfPossible", "External"] {
        let response = evict(&cluster(strategy, &json!({})), "p");
        let patch =
            json!({ "metadata": { "uid": "u", "resourceVersion": "7" }, "status": { "evacuationNodeName": "one" } });
        assert_eq!(response.mark, Some(Mark { instance: "v".to_owned(), patch }), "{strategy}");
        let denial = denied(response);
        assert_eq!((denial.code, denial.message.as_str()), (429, TRIGGERED));
    }
}

#[test]
fn strategies_of_instances_that_cannot_move() {
    let unable = json!({ "status": condition("False") });
    let stays = "VMI v is configured with an eviction strategy but is not live-migratable";
    assert_eq!(refusal(&cluster("LiveMigrate", &unable), "p"), stays);
    assert_eq!(evict(&cluster("LiveMigrateIfPossible", &unable), "p").outcome, Ok(None));
    assert!(evict(&cluster("External", &unable), "p").mark.is_some());
    assert_eq!(evict(&cluster("None", &json!({})), "p").outcome, Ok(None));
}

#[test]
fn the_cluster_says_what_an_instance_does_not() {
    let unsaid = json!({ "spec": { "evictionStrategy": null } });
    assert_eq!(evict(&cluster("", &unsaid), "p").outcome, Ok(None));
    let configured = cluster("", &unsaid).configured(&json!({ "evictionStrategy": "LiveMigrate" }));
    assert!(evict(&configured, "p").mark.is_some());
}

#[test]
fn a_dry_run_leaves_no_mark() {
    let cluster = cluster("LiveMigrate", &json!({}));
    let in_options = json!({ "metadata": { "name": "p" }, "deleteOptions": { "dryRun": ["All"] } });
    for response in [evict_with(&cluster, "p", &in_options, false), evict_with(&cluster, "p", &json!({}), true)] {
        assert_eq!(response.mark, None);
        assert_eq!(denied(response).message, TRIGGERED);
    }
}

#[test]
fn an_eviction_by_the_descheduler_is_told_apart() {
    let eviction = json!({ "metadata": { "name": "p", "annotations": { "requested-by": "sigs.k8s.io/descheduler" } } });
    let mark = evict_with(&cluster("LiveMigrate", &json!({})), "p", &eviction, false).mark.unwrap();
    assert_eq!(mark.patch["metadata"]["annotations"], json!({ "kubevirt.io/eviction-source": "descheduler" }));
}

#[test]
fn one_that_is_marked_is_not_marked_again() {
    let marked = cluster("LiveMigrate", &json!({ "status": { "evacuationNodeName": "one" } }));
    assert_eq!(refusal(&marked, "p"), format!("Evacuation in progress: {TRIGGERED}"));
}

/// The state of a migration from `p` to `q`.
fn moving(state: &Value) -> Value {
    let mut all = json!({
        "migrationUid": "m", "sourceNode": "one", "sourcePod": "p", "targetNode": "two", "targetPod": "q",
    });
    json_patch::merge(&mut all, state);
    json!({ "status": { "migrationState": all } })
}

fn target() -> Value {
    changed(&pod("q", "two"), &json!({ "metadata": { "labels": { "kubevirt.io/migrationJobUID": "m" } } }))
}

#[test]
fn the_target_of_a_migration_is_not_evicted_and_its_source_is_marked() {
    let cluster = with(cluster("LiveMigrate", &moving(&json!({}))), &target());
    assert_eq!(refusal(&cluster, "q"), "Eviction request for target Pod");
    assert!(evict(&cluster, "p").mark.is_some());
}

#[test]
fn a_pod_that_the_guest_has_left_goes() {
    let arrived = changed(&moving(&json!({ "completed": true })), &json!({ "status": { "nodeName": "two" } }));
    let cluster = with(cluster("LiveMigrate", &arrived), &target());
    assert_eq!(evict(&cluster, "p").outcome, Ok(None));
    assert_eq!(evict(&cluster, "q").mark.unwrap().patch["status"]["evacuationNodeName"], "two");
}

#[test]
fn what_holds_no_guest_goes() {
    let ended = changed(&pod("ended", "one"), &json!({ "status": { "phase": "Succeeded" } }));
    let plain = json!({ "metadata": { "name": "plain" }, "spec": { "containers": [] } });
    let mut strangers = pod("strangers", "one");
    strangers["metadata"]["ownerReferences"][0]["uid"] = json!("other");
    let cluster = [ended, plain, strangers].iter().fold(cluster("LiveMigrate", &json!({})), with);
    for name in ["ended", "plain", "strangers", "nobody"] {
        assert_eq!(evict(&cluster, name).outcome, Ok(None), "{name}");
    }
}

#[test]
fn one_that_is_about_to_end_keeps_no_pod() {
    for end in [
        json!({ "status": { "phase": "Failed" } }),
        json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }),
    ] {
        assert_eq!(evict(&cluster("LiveMigrate", &end), "p").outcome, Ok(None));
    }
}

#[test]
fn a_launcher_without_its_instance_waits() {
    let mut cluster = cluster("LiveMigrate", &json!({}));
    cluster.instances.clear();
    let missing = "kubevirt failed getting the vmi: virtualmachineinstances.kubevirt.io \"v\" not found";
    assert_eq!(refusal(&cluster, "p"), missing);
}

#[test]
fn what_is_attached_to_a_launcher_goes_with_it() {
    let attachment = json!({
        "metadata": {
            "name": "hp", "labels": { "kubevirt.io": "hotplug-disk" },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "x", "controller": true }],
        },
        "spec": { "containers": [] },
    });
    let mut cluster = with(cluster("None", &json!({})), &attachment);
    let refused = "cannot evict hotplug pod: hp associated with running vmi: v in namespace default";
    assert_eq!(refusal(&cluster, "hp"), refused);
    cluster.pods.remove("p");
    assert_eq!(evict(&cluster, "hp").outcome, Ok(None));
}

#[test]
fn a_webhook_learns_what_to_write_and_what_to_say_if_it_cannot() {
    let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u-1", "operation": "CREATE", "namespace": "default", "name": "p", "subResource": "eviction",
        "resource": { "group": "", "version": "v1", "resource": "pods" }, "object": { "metadata": { "name": "p" } },
    } });
    let answered = answer(&review, &cluster("LiveMigrate", &json!({})), |_| false).unwrap();
    assert!(answered.mark.is_some());
    let status = &answered.review["response"]["status"];
    assert_eq!((&status["code"], &status["reason"]), (&json!(429), &json!("TooManyRequests")));
    assert_eq!(status["message"], TRIGGERED);
    let failed = answered.unmarked("it changed");
    assert_eq!(failed["response"]["status"]["message"], "kubevirt failed marking the vmi for eviction: it changed");
    assert_eq!(failed["response"]["allowed"], false);
}

proptest! {
    /// Whoever is not refused goes; whoever is marked is refused, and was not marked.
    #[test]
    fn a_mark_comes_with_a_refusal_and_only_once(
        strategy in "None|LiveMigrate|LiveMigrateIfPossible|External|Later",
        able in "True|False",
        marked: bool,
        dry: bool,
        node in "one|two",
    ) {
        let mut status = condition(&able);
        status["nodeName"] = json!(node);
        status["evacuationNodeName"] = if marked { json!("one") } else { Value::Null };
        let response = evict_with(&cluster(&strategy, &json!({ "status": status })), "p", &json!({}), dry);
        if response.mark.is_some() {
            prop_assert!(!marked && !dry && node == "one");
            prop_assert_eq!(response.outcome.as_ref().unwrap_err().code, 429);
        }
        if strategy == "LiveMigrate" || strategy == "External" {
            prop_assert!(response.outcome.is_err());
        }
    }
}
