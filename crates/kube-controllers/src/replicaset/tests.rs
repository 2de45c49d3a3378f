use json_patch::merge;
use k8s_openapi::api::apps::v1::ReplicaSetCondition;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn replica_set(replicas: i32) -> ReplicaSet {
    serde_json::from_value(json!({
        "metadata": { "name": "web", "namespace": "shop", "uid": "u-web", "generation": 3 },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" }, "annotations": { "a": "b" }, "finalizers": ["shop/wait"] },
                "spec": { "containers": [{ "name": "web", "image": "web:1" }] },
            },
        },
    }))
    .unwrap()
}

/// A running, ready pod of the replica set, with `changes` merged in.
#[expect(clippy::needless_pass_by_value, reason = "what is written where it is used needs no borrow")]
fn pod(name: &str, changes: Value) -> Pod {
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u-web", "controller": true,
        "blockOwnerDeletion": true,
    });
    let mut pod = json!({
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("u-{name}"), "labels": { "app": "web" },
            "creationTimestamp": "2026-01-01T11:00:00Z", "ownerReferences": [owner],
        },
        "spec": { "nodeName": format!("node-{name}"), "containers": [] },
        "status": {
            "phase": "Running",
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T11:00:10Z" }],
        },
    });
    merge(&mut pod, &changes);
    serde_json::from_value(pod).unwrap()
}

fn observed<'a>(replica_set: &'a ReplicaSet, pods: &'a [Pod]) -> Observed<'a> {
    Observed {
        replica_set,
        pods: pods.iter().collect(),
        siblings: Vec::new(),
        taken_names: BTreeSet::new(),
        failure: None,
    }
}

fn plan(replica_set: &ReplicaSet, pods: &[Pod]) -> Plan {
    decide(&observed(replica_set, pods), now()).unwrap()
}

fn victims(pods: &[Pod], count: usize) -> Vec<String> {
    let set = replica_set(i32::try_from(pods.len() - count).unwrap());
    plan(&set, pods).delete.into_iter().map(|target| target.name).collect()
}

fn names(patches: &[OwnerPatch]) -> Vec<&str> {
    patches.iter().map(|patch| patch.target.name.as_str()).collect()
}

#[test]
fn missing_pods_are_made_from_the_template() {
    let plan = plan(&replica_set(3), &[]);
    let create = plan.create.unwrap();
    let pods: Vec<Pod> = create.pods().collect();
    assert_eq!(pods.len(), 3);
    for pod in &pods {
        let metadata = &pod.metadata;
        assert!(metadata.name.as_deref().unwrap().starts_with("web-"), "{metadata:?}");
        assert_eq!(metadata.name.as_ref().unwrap().len(), "web-".len() + 5);
        assert_eq!(metadata.generate_name.as_deref(), Some("web-"));
        assert_eq!(metadata.namespace.as_deref(), Some("shop"));
        assert_eq!(metadata.labels.as_ref().unwrap()["app"], "web");
        assert_eq!(metadata.annotations.as_ref().unwrap()["a"], "b");
        assert_eq!(metadata.finalizers.as_deref(), Some(&["shop/wait".to_owned()][..]));
        let owner = &metadata.owner_references.as_ref().unwrap()[0];
        assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("ReplicaSet", "u-web"));
        assert_eq!((owner.controller, owner.block_owner_deletion), (Some(true), Some(true)));
        assert_eq!(pod.spec.as_ref().unwrap().containers[0].image.as_deref(), Some("web:1"));
    }
}

#[test]
fn creation_starts_slowly() {
    for (total, batches) in [(0, vec![]), (1, vec![1]), (2, vec![1, 1]), (7, vec![1, 2, 4]), (10, vec![1, 2, 4, 3])] {
        assert_eq!(slow_start(total), batches, "{total}");
    }
}

#[test]
fn two_leaders_choose_the_same_names() {
    let set = replica_set(2);
    assert_eq!(plan(&set, &[]).create, plan(&set, &[]).create);
    let mut twin = replica_set(2);
    twin.metadata.uid = Some("u-other".to_owned());
    assert_ne!(plan(&set, &[]).create.unwrap().names, plan(&twin, &[]).create.unwrap().names);
}

#[test]
fn a_name_in_use_or_taken_is_not_chosen_again() {
    let first = plan(&replica_set(3), &[]).create.unwrap().names;
    let terminating = pod(&first[0], json!({ "metadata": { "deletionTimestamp": "2026-01-01T11:59:00Z" } }));
    let (set, pods) = (replica_set(2), [terminating]);
    let mut seen = observed(&set, &pods);
    seen.taken_names.insert(first[1].clone());
    let names = decide(&seen, now()).unwrap().create.unwrap().names;
    assert_eq!(names[0], first[2]);
    assert!(!names.contains(&first[0]) && !names.contains(&first[1]), "{names:?}");
}

#[test]
fn a_long_name_is_cut_as_the_server_cuts_it() {
    let mut set = replica_set(1);
    set.metadata.name = Some("x".repeat(200));
    assert_eq!(plan(&set, &[]).create.unwrap().names[0].len(), 63);
}

#[test]
fn matching_orphans_are_adopted_and_count() {
    let orphan = pod("orphan", json!({ "metadata": { "ownerReferences": [] } }));
    let foreign = pod(
        "foreign",
        json!({ "metadata": { "ownerReferences": [{
        "apiVersion": "v1", "kind": "Other", "name": "o", "uid": "u-o", "controller": true }] } }),
    );
    let leaving = pod(
        "leaving",
        json!({ "metadata": {
        "ownerReferences": [], "deletionTimestamp": "2026-01-01T11:59:00Z" } }),
    );
    let plan = plan(&replica_set(1), &[orphan, foreign, leaving]);
    assert_eq!(names(&plan.adopt), ["orphan"]);
    let metadata = &plan.adopt[0].patch["metadata"];
    assert_eq!((&metadata["uid"], &metadata["ownerReferences"][0]["uid"]), (&json!("u-orphan"), &json!("u-web")));
    assert_eq!((plan.create, plan.delete), (None, vec![]));
}

#[test]
fn a_pod_that_no_longer_matches_is_released_and_replaced() {
    let relabelled = pod("a", json!({ "metadata": { "labels": { "app": "debug" } } }));
    let plan = plan(&replica_set(1), &[relabelled]);
    assert_eq!(names(&plan.release), ["a"]);
    let reference = &plan.release[0].patch["metadata"]["ownerReferences"][0];
    assert_eq!(reference, &json!({ "$patch": "delete", "uid": "u-web" }));
    assert_eq!(plan.create.unwrap().names.len(), 1);
}

#[test]
fn a_replica_set_that_is_being_deleted_only_counts() {
    let mut set = replica_set(5);
    set.metadata.deletion_timestamp = Some(now().into());
    let pods = [pod("mine", json!({})), pod("orphan", json!({ "metadata": { "ownerReferences": [] } }))];
    let plan = plan(&set, &pods);
    let status = plan.status.clone().unwrap();
    assert_eq!(plan, Plan { status: plan.status.clone(), ..Plan::default() });
    assert_eq!(status.replicas, 1);
    set.spec.as_mut().unwrap().replicas = Some(0);
    assert_eq!(super::decide(&observed(&set, &pods), now()).unwrap().delete, []);
}

#[test]
fn finished_and_terminating_pods_are_replaced() {
    let failed = pod("failed", json!({ "status": { "phase": "Failed" } }));
    let leaving = pod("leaving", json!({ "metadata": { "deletionTimestamp": "2026-01-01T11:59:00Z" } }));
    let plan = plan(&replica_set(2), &[failed, leaving]);
    assert_eq!(plan.create.unwrap().names.len(), 2);
    let status = plan.status.unwrap();
    assert_eq!((status.replicas, status.terminating_replicas), (0, Some(1)));
}

#[test]
fn pods_are_given_up_in_order_of_worth() {
    // Each pod is worth more than the one before it, by one rule.
    let pods = [
        pod("unassigned", json!({ "spec": { "nodeName": "" }, "status": { "phase": "Pending", "conditions": [] } })),
        pod("pending", json!({ "status": { "phase": "Pending", "conditions": [] } })),
        pod("unknown", json!({ "status": { "phase": "Unknown", "conditions": [] } })),
        pod("not-ready", json!({ "status": { "conditions": [] } })),
        pod("cheap", json!({ "metadata": { "annotations": { "controller.kubernetes.io/pod-deletion-cost": "-5" } } })),
        pod("crowded-1", json!({ "spec": { "nodeName": "crowded" } })),
        pod("crowded-2", json!({ "spec": { "nodeName": "crowded" } })),
        pod(
            "just-ready",
            json!({ "status": { "conditions": [
            { "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T11:59:00Z" }] } }),
        ),
        pod(
            "restarted",
            json!({ "status": { "containerStatuses": [
            { "name": "web", "image": "", "imageID": "", "ready": true, "restartCount": 4 }] } }),
        ),
        pod("young", json!({ "metadata": { "creationTimestamp": "2026-01-01T11:58:00Z" } })),
        pod("a", json!({})),
        pod("b", json!({})),
    ];
    let expected: Vec<_> = pods.iter().map(|pod| pod.metadata.name.clone().unwrap()).collect();
    let mut shuffled = pods.to_vec();
    shuffled.reverse();
    for count in 0..=pods.len() {
        assert_eq!(victims(&shuffled, count), expected[..count], "{count}");
    }
}

#[test]
fn pods_of_related_replica_sets_crowd_a_node_too() {
    let (set, pods) = (replica_set(1), [pod("a", json!({})), pod("b", json!({}))]);
    let sibling = pod("sibling", json!({ "spec": { "nodeName": "node-b" } }));
    let mut seen = observed(&set, &pods);
    seen.siblings.push(&sibling);
    assert_eq!(decide(&seen, now()).unwrap().delete[0].name, "b");
}

#[test]
fn status_counts_and_is_written_once() {
    let mut set = replica_set(3);
    let pods = [
        pod("ready", json!({})),
        pod("waiting", json!({ "status": { "conditions": [] } })),
        pod("labelled", json!({ "metadata": { "labels": { "app": "web", "extra": "x" } } })),
    ];
    let status = plan(&set, &pods).status.unwrap();
    assert_eq!((status.replicas, status.fully_labeled_replicas, status.ready_replicas), (3, Some(3), Some(2)));
    assert_eq!((status.available_replicas, status.terminating_replicas), (Some(2), Some(0)));
    assert_eq!(status.observed_generation, Some(3));
    // As a server may give it back: without the zeros.
    set.status = Some(ReplicaSetStatus { terminating_replicas: None, ..status });
    assert_eq!(plan(&set, &pods), Plan::default());
}

#[test]
fn a_ready_pod_is_available_after_its_time() {
    let mut set = replica_set(2);
    set.spec.as_mut().unwrap().min_ready_seconds = Some(30);
    let condition = |since: &str| json!({ "type": "Ready", "status": "True", "lastTransitionTime": since });
    let ready = |since: &str| json!({ "status": { "conditions": [condition(since)] } });
    let pods = [pod("a", ready("2026-01-01T11:59:30Z")), pod("b", ready("2026-01-01T11:59:50Z"))];
    let plan = plan(&set, &pods);
    let status = plan.status.unwrap();
    assert_eq!((status.ready_replicas, status.available_replicas), (Some(2), Some(1)));
    assert_eq!(plan.recheck_after, Some(Duration::from_secs(20)));
}

#[test]
fn a_failure_is_a_condition_until_a_plan_works_out() {
    let mut set = replica_set(1);
    let mut seen = observed(&set, &[]);
    seen.failure = Some(Failure { verb: FailedVerb::Create, message: "quota".to_owned() });
    let failed = decide(&seen, now()).unwrap().status.unwrap();
    let condition: &ReplicaSetCondition = &failed.conditions.as_ref().unwrap()[0];
    assert_eq!((condition.type_.as_str(), condition.reason.as_deref()), ("ReplicaFailure", Some("FailedCreate")));

    set.status = Some(failed);
    let mut seen = observed(&set, &[]);
    seen.failure = Some(Failure { verb: FailedVerb::Create, message: "quota, again".to_owned() });
    assert_eq!(decide(&seen, now()).unwrap().status, None, "the same failure is not written twice");
    let cleared = plan(&set, &[]).status.unwrap();
    assert_eq!(cleared.conditions, Some(vec![]), "written out, so that a merge patch clears it");
    set.status = Some(cleared);
    assert_eq!(plan(&set, &[]).status, None);
}

#[test]
fn a_selector_that_cannot_be_right_is_refused() {
    let mut set = replica_set(1);
    let spec = set.spec.as_mut().unwrap();
    spec.selector = serde_json::from_value(json!({})).unwrap();
    assert_eq!(decide(&observed(&set, &[]), now()), Err(SelectorError::Empty.into()));
    let spec = set.spec.as_mut().unwrap();
    spec.selector = serde_json::from_value(json!({ "matchLabels": { "app": "db" } })).unwrap();
    assert_eq!(decide(&observed(&set, &[]), now()), Err(SelectorError::MissesTemplate.into()));
    let spec = set.spec.as_mut().unwrap();
    spec.selector =
        serde_json::from_value(json!({ "matchExpressions": [{ "key": "a", "operator": "Like" }] })).unwrap();
    let error = decide(&observed(&set, &[]), now()).unwrap_err().to_string();
    assert!(error.starts_with("spec.selector.matchExpressions[0].operator \"Like\""), "{error}");
}

#[test]
fn selector_expressions_follow_their_operators() {
    let table = [
        (json!({ "key": "tier", "operator": "In", "values": ["a", "b"] }), [true, false, false]),
        (json!({ "key": "tier", "operator": "NotIn", "values": ["a", "b"] }), [false, true, true]),
        (json!({ "key": "tier", "operator": "Exists" }), [true, true, false]),
        (json!({ "key": "tier", "operator": "DoesNotExist" }), [false, false, true]),
    ];
    for (expression, expected) in table {
        let from = serde_json::from_value(json!({ "matchExpressions": [expression] })).unwrap();
        for (labels, expected) in [json!({ "tier": "a" }), json!({ "tier": "c" }), json!({})].iter().zip(expected) {
            let labels = serde_json::from_value(labels.clone()).unwrap();
            let outcome = selector::Selector::of_template(&from, Some(&labels)).is_ok();
            assert_eq!(outcome, expected, "{expression} {labels:?}", expression = json!(from));
        }
    }
}

proptest! {
    #[test]
    fn the_number_of_pods_is_put_right_in_one_plan(
        wanted in 0..20_i32, kinds in prop::collection::vec(0..6_u8, 0..20),
    ) {
        let pods: Vec<Pod> = kinds
            .iter()
            .enumerate()
            .map(|(index, kind)| pod(&format!("p{index}"), match kind {
                0 => json!({ "status": { "phase": "Pending", "conditions": [] } }),
                1 => json!({ "status": { "phase": "Failed" } }),
                2 => json!({ "metadata": { "deletionTimestamp": "2026-01-01T11:59:00Z" } }),
                3 => json!({ "metadata": { "ownerReferences": [] } }),
                4 => json!({ "metadata": { "labels": { "app": "other" } } }),
                _ => json!({}),
            }))
            .collect();
        let active = kinds.iter().filter(|kind| matches!(kind, 0 | 3 | 5..)).count();
        let set = replica_set(wanted);
        let plan = plan(&set, &pods);
        let created = plan.create.as_ref().map_or(0, |create| create.names.len());
        prop_assert!(created == 0 || plan.delete.is_empty());
        prop_assert_eq!(active + created - plan.delete.len(), usize::try_from(wanted).unwrap());
        if let Some(create) = &plan.create {
            prop_assert_eq!(create.batches.iter().sum::<usize>(), created);
            prop_assert_eq!(create.names.iter().collect::<BTreeSet<_>>().len(), created);
        }
        prop_assert_eq!(&plan, &super::decide(&observed(&set, &pods), now()).unwrap());
    }
}
