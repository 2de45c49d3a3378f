use json_patch::merge;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn later(seconds: i64) -> Timestamp {
    now() + SignedDuration::from_secs(seconds)
}

#[expect(clippy::needless_pass_by_value, reason = "what is written where it is used needs no borrow")]
fn budget(spec: Value) -> PodDisruptionBudget {
    let mut whole = json!({ "selector": { "matchLabels": { "app": "web" } } });
    merge(&mut whole, &spec);
    serde_json::from_value(json!({
        "metadata": { "name": "web", "namespace": "shop", "uid": "u", "generation": 2 }, "spec": whole,
    }))
    .unwrap()
}

/// A ready pod of `owner`, with `changes` merged in.
#[expect(clippy::needless_pass_by_value, reason = "what is written where it is used needs no borrow")]
fn pod(name: &str, owner: Option<&str>, changes: Value) -> Pod {
    let owners: Vec<Value> = owner
        .iter()
        .map(|uid| {
            json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": uid, "controller": true })
        })
        .collect();
    let mut pod = json!({
        "metadata": {
            "name": name, "namespace": "shop", "labels": { "app": "web" }, "ownerReferences": owners,
            "creationTimestamp": "2026-01-01T11:00:00Z",
        },
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    merge(&mut pod, &changes);
    serde_json::from_value(pod).unwrap()
}

fn pods(count: usize) -> Vec<Pod> {
    (0..count).map(|number| pod(&format!("p{number}"), Some("rs"), json!({}))).collect()
}

fn unready() -> Value {
    json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } })
}

fn scale(replicas: i32) -> BTreeMap<String, Scale> {
    BTreeMap::from([("rs".to_owned(), Scale::Known { owner: "d".to_owned(), replicas })])
}

fn plan(budget: &PodDisruptionBudget, pods: &[Pod], scales: BTreeMap<String, Scale>, at: Timestamp) -> Plan {
    let seen = Observed { budget, pods: selected(budget, pods).unwrap(), scales };
    decide(&seen, at)
}

/// Expected, desired, healthy, allowed.
fn figures(plan: &Plan) -> (i32, i32, i32, i32) {
    let status = plan.status.as_ref().unwrap();
    let numbers = [status.expected_pods, status.desired_healthy, status.current_healthy, status.disruptions_allowed];
    let [expected, desired, healthy, allowed] = numbers.map(Option::unwrap);
    (expected, desired, healthy, allowed)
}

/// The budget with the status that is planned for it.
fn after(mut budget: PodDisruptionBudget, plan: &Plan) -> PodDisruptionBudget {
    if let Some(status) = &plan.status {
        budget.status = Some(status.clone());
    }
    budget
}

fn condition(plan: &Plan) -> (String, String, String) {
    let condition = plan.status.as_ref().unwrap().conditions.as_ref().unwrap()[0].clone();
    (condition.status, condition.reason, condition.message)
}

#[test]
fn what_may_go_is_what_is_healthy_beyond_what_must_be() {
    for (spec, wanted, have, figures_then) in [
        (json!({ "minAvailable": 2 }), 9, 3, (3, 2, 3, 1)),
        (json!({ "minAvailable": 5 }), 9, 3, (3, 5, 3, 0)),
        (json!({ "minAvailable": "50%" }), 3, 3, (3, 2, 3, 1)),
        (json!({ "minAvailable": "100%" }), 3, 3, (3, 3, 3, 0)),
        (json!({ "maxUnavailable": 1 }), 3, 3, (3, 2, 3, 1)),
        // A share of what may be missing is rounded up, too.
        (json!({ "maxUnavailable": "30%" }), 3, 3, (3, 2, 3, 1)),
        (json!({ "maxUnavailable": 5 }), 3, 3, (3, 0, 3, 3)),
        (json!({ "maxUnavailable": 1 }), 5, 3, (5, 4, 3, 0)),
        (json!({}), 3, 3, (0, 0, 3, 0)),
    ] {
        let plan = plan(&budget(spec.clone()), &pods(have), scale(wanted), now());
        assert_eq!(figures(&plan), figures_then, "{spec}");
        let allowed = figures_then.3 > 0;
        let (status, reason) = if allowed { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
        assert_eq!(condition(&plan), (status.to_owned(), reason.to_owned(), String::new()), "{spec}");
        assert_eq!(plan.status.unwrap().observed_generation, Some(2));
    }
}

#[test]
fn a_pod_that_is_unready_or_goes_is_not_healthy() {
    let mut all = pods(2);
    all.push(pod("sick", Some("rs"), unready()));
    all.push(pod("going", Some("rs"), json!({ "metadata": { "deletionTimestamp": "2026-01-01T12:00:30Z" } })));
    assert_eq!(figures(&plan(&budget(json!({ "minAvailable": 1 })), &all, BTreeMap::new(), now())), (4, 1, 2, 1));
}

#[test]
fn without_pods_nothing_may_go_and_it_is_said_once() {
    let budget = budget(json!({ "minAvailable": 0 }));
    let first = plan(&budget, &[], BTreeMap::new(), now());
    assert_eq!((figures(&first), &first.notices), ((0, 0, 0, 0), &vec![Notice::NoPods]));
    assert_eq!(plan(&after(budget, &first), &[], BTreeMap::new(), later(9)), Plan::default());
}

#[test]
fn without_a_selector_there_are_no_pods_and_with_an_empty_one_all() {
    let all = pods(2);
    let mut none = budget(json!({}));
    none.spec.as_mut().unwrap().selector = None;
    assert_eq!(selected(&none, &all).unwrap().len(), 0);
    none.spec.as_mut().unwrap().selector = Some(Default::default());
    assert_eq!(selected(&none, &all).unwrap().len(), 2);
}

#[test]
fn two_sets_of_one_deployment_count_once() {
    let all = [pod("a", Some("rs"), json!({})), pod("b", Some("old"), json!({}))];
    let mut scales = scale(4);
    scales.insert("old".to_owned(), Scale::Known { owner: "d".to_owned(), replicas: 4 });
    scales.insert("unasked".to_owned(), Scale::NotFound);
    assert_eq!(figures(&plan(&budget(json!({ "maxUnavailable": 1 })), &all, scales, now())), (4, 3, 2, 0));
}

#[test]
fn where_nobody_knows_how_many_there_should_be_nothing_may_go() {
    let known = plan(&budget(json!({ "maxUnavailable": 2 })), &pods(3), scale(3), now());
    assert_eq!(figures(&known), (3, 1, 3, 2));
    let budget = after(budget(json!({ "maxUnavailable": 2 })), &known);
    for (scale, why) in [
        (Scale::NotFound, "found no controllers for pod \"p0\""),
        (Scale::Failed("fleets.example.com does not implement the scale subresource".to_owned()), "fleets.example.com"),
    ] {
        let scales = BTreeMap::from([("rs".to_owned(), scale)]);
        let failed = plan(&budget, &pods(3), scales.clone(), later(9));
        // All but what is allowed stays as it was known.
        assert_eq!(figures(&failed), (3, 1, 3, 0));
        let (status, reason, message) = condition(&failed);
        assert_eq!((status.as_str(), reason.as_str()), ("False", "SyncFailed"));
        assert!(message.contains(why), "{message}");
        assert!(matches!(failed.notices.as_slice(), [Notice::Uncountable(_)]));
        assert_eq!(plan(&after(budget.clone(), &failed), &pods(3), scales, later(10)), Plan::default());
    }
}

#[test]
fn a_limit_or_selector_that_cannot_be_read_is_told_with_its_path() {
    let failed = plan(&budget(json!({ "maxUnavailable": "some" })), &pods(1), scale(1), now());
    let (_, reason, message) = condition(&failed);
    assert_eq!(reason, "SyncFailed");
    assert!(message.contains("spec.maxUnavailable") && message.contains("50%"), "{message}");
    let odd = budget(json!({ "selector": { "matchExpressions": [{ "key": "a", "operator": "Near" }] } }));
    let error = selected(&odd, &[]).unwrap_err();
    assert!(error.to_string().contains("spec.selector.matchExpressions[0].operator"), "{error}");
}

#[test]
fn pods_without_an_owner_are_told_of_where_owners_are_counted() {
    let all = [pod("a", None, json!({})), pod("b", Some("rs"), json!({}))];
    let counted = plan(&budget(json!({ "maxUnavailable": 1 })), &all, scale(1), now());
    assert_eq!((figures(&counted), &counted.notices), ((1, 0, 2, 2), &vec![Notice::UnmanagedPods]));
    assert_eq!(plan(&budget(json!({ "minAvailable": 1 })), &all, BTreeMap::new(), now()).notices, []);
}

#[test]
fn an_eviction_that_was_granted_counts_until_the_pod_goes_or_two_minutes_have_passed() {
    let spec = json!({ "minAvailable": 1 });
    let first = plan(&budget(spec.clone()), &pods(3), BTreeMap::new(), now());
    let mut granted = after(budget(spec), &first);
    let status = granted.status.as_mut().unwrap();
    status.disruptions_allowed = status.disruptions_allowed.map(|allowed| allowed - 1);
    status.disrupted_pods = Some(BTreeMap::from([("p1".to_owned(), Time(now())), ("gone".to_owned(), Time(now()))]));
    let soon = plan(&granted, &pods(3), BTreeMap::new(), later(30));
    assert_eq!((figures(&soon), soon.recheck_after), ((3, 1, 2, 1), Some(Duration::from_secs(90))));
    let noted = soon.status.as_ref().unwrap().disrupted_pods.as_ref().unwrap();
    assert_eq!(noted.keys().collect::<Vec<_>>(), ["p1"], "what is gone is forgotten");
    // On its way out: the note has done its work.
    let mut going = pods(3);
    going[1].metadata.deletion_timestamp = Some(Time(later(31)));
    let seen = plan(&granted, &going, BTreeMap::new(), later(31));
    assert_eq!((figures(&seen), seen.status.unwrap().disrupted_pods), ((3, 1, 2, 1), None));
    // Nobody took it away.
    let late = plan(&granted, &pods(3), BTreeMap::new(), later(120));
    assert_eq!((figures(&late), late.not_deleted), ((3, 1, 3, 2), vec!["p1".to_owned()]));
}

#[test]
fn a_new_pod_of_an_old_name_is_not_taken_for_the_one_that_went() {
    let mut granted = budget(json!({ "minAvailable": 1 }));
    let noted = BTreeMap::from([("p1".to_owned(), Time(now()))]);
    granted.status = Some(PodDisruptionBudgetStatus { disrupted_pods: Some(noted), ..Default::default() });
    let mut all = pods(3);
    all[1].metadata.creation_timestamp = Some(Time(later(5)));
    assert_eq!(figures(&plan(&granted, &all, BTreeMap::new(), later(6))), (3, 1, 3, 2));
}

#[test]
fn the_time_of_a_change_is_that_of_the_truth() {
    let spec = json!({ "minAvailable": 2 });
    let first = plan(&budget(spec.clone()), &pods(3), BTreeMap::new(), now());
    let known = after(budget(spec), &first);
    let time = |plan: &Plan| plan.status.as_ref().unwrap().conditions.as_ref().unwrap()[0].last_transition_time.clone();
    let still = plan(&known, &pods(4), BTreeMap::new(), later(60));
    assert_eq!((condition(&still).0.as_str(), time(&still)), ("True", Time(now())));
    let no_more = plan(&known, &pods(2), BTreeMap::new(), later(60));
    assert_eq!((condition(&no_more).0.as_str(), time(&no_more)), ("False", Time(later(60))));
}

fn any_budget() -> impl Strategy<Value = PodDisruptionBudget> {
    let limit = prop_oneof![(0..6_i32).prop_map(Value::from), (0..130_u8).prop_map(|part| json!(format!("{part}%")))];
    let spec = (any::<bool>(), limit).prop_map(|(least, limit)| {
        budget(if least { json!({ "minAvailable": limit }) } else { json!({ "maxUnavailable": limit }) })
    });
    let noted = prop::collection::btree_map("p[0-5]", -200..200_i64, 0..4);
    (spec, noted, 0..4_i32).prop_map(|(mut budget, noted, allowed)| {
        let noted = noted.into_iter().map(|(name, ago)| (name, Time(later(-ago)))).collect();
        let status = PodDisruptionBudgetStatus {
            disrupted_pods: Some(noted),
            disruptions_allowed: Some(allowed),
            ..Default::default()
        };
        budget.status = Some(status);
        budget
    })
}

fn any_pods() -> impl Strategy<Value = Vec<Pod>> {
    let state = prop_oneof![
        4 => Just(json!({})),
        2 => Just(unready()),
        1 => Just(json!({ "metadata": { "deletionTimestamp": "2026-01-01T12:00:30Z" } })),
        1 => Just(json!({ "metadata": { "labels": { "app": "other" } } })),
    ];
    let one = (prop::option::of(prop_oneof![Just("rs"), Just("lost")]), state);
    prop::collection::vec(one, 0..6).prop_map(|all| {
        let pod = |(number, (owner, state)): (usize, (Option<&str>, Value))| pod(&format!("p{number}"), owner, state);
        all.into_iter().enumerate().map(pod).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::soak::cases(500)))]

    /// What is allowed leaves enough healthy pods, whatever is asked for; and what was written is not written again.
    #[test]
    fn what_may_go_never_takes_what_must_stay(budget in any_budget(), pods in any_pods(), wanted in 0..6_i32) {
        let first = plan(&budget, &pods, scale(wanted), now());
        let known = after(budget, &first);
        let status = known.status.clone().unwrap_or_default();
        let number = |field: Option<i32>| field.unwrap_or(0);
        let (allowed, healthy, desired) =
            (number(status.disruptions_allowed), number(status.current_healthy), number(status.desired_healthy));
        prop_assert!(allowed >= 0);
        if allowed > 0 {
            prop_assert!(healthy - allowed >= desired, "{status:?}");
        }
        let ready = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none() && crate::pods::is_ready(pod));
        prop_assert!(usize::try_from(healthy).unwrap() <= ready.count());
        let second = plan(&known, &pods, scale(wanted), now());
        prop_assert_eq!(second.status, None);
    }
}
