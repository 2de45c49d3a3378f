use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::coordination::v1::Lease;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::health::{Health, unknown};
use super::taints::{NOT_READY, UNREACHABLE};
use super::zones::{Member, Zones};
use super::*;

const MADE: &str = "2026-01-01T12:00:00Z";

fn now() -> Timestamp {
    MADE.parse().unwrap()
}

fn node(conditions: &[(&str, &str)], taints: &[(&str, &str)]) -> Node {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(kind, truth)| json!({ "type": kind, "status": truth, "lastHeartbeatTime": MADE, "message": "m" }))
        .collect();
    let taints: Vec<Value> = taints.iter().map(|(key, effect)| json!({ "key": key, "effect": effect })).collect();
    serde_json::from_value(json!({
        "metadata": { "name": "one", "uid": "u", "creationTimestamp": MADE },
        "spec": { "taints": taints },
        "status": { "conditions": conditions },
    }))
    .unwrap()
}

fn lease(second: u32) -> Lease {
    serde_json::from_value(json!({ "spec": { "renewTime": format!("2026-01-01T12:00:{second:02}.000000Z") } })).unwrap()
}

fn tainted(plan: Plan) -> Vec<(String, String)> {
    let Plan::Taints(taints) = plan else { panic!("taints should change: {plan:?}") };
    taints.into_iter().map(|taint| (taint.key, taint.effect)).collect()
}

fn pair(key: &str, effect: &str) -> (String, String) {
    (key.to_owned(), effect.to_owned())
}

#[test]
fn taints_follow_the_conditions() {
    let sick =
        node(&[("Ready", "False"), ("DiskPressure", "True"), ("PIDPressure", "False")], &[("mine", "NoSchedule")]);
    assert_eq!(
        tainted(decide(&sick, false, Permission::Waiting, now())),
        [
            pair("mine", "NoSchedule"),
            pair(NOT_READY, "NoSchedule"),
            pair("node.kubernetes.io/disk-pressure", "NoSchedule")
        ]
    );
    let mut cordoned = node(&[("Ready", "True")], &[(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]);
    cordoned.spec.as_mut().unwrap().unschedulable = Some(true);
    assert_eq!(
        tainted(decide(&cordoned, false, Permission::Waiting, now())),
        [pair("node.kubernetes.io/unschedulable", "NoSchedule")]
    );
}

#[test]
fn a_node_is_emptied_only_with_permission_but_the_reason_may_change_at_once() {
    let lost = node(&[("Ready", "Unknown")], &[(UNREACHABLE, "NoSchedule")]);
    assert_eq!(decide(&lost, false, Permission::Waiting, now()), Plan::Nothing);
    let both = [pair(UNREACHABLE, "NoSchedule"), pair(UNREACHABLE, "NoExecute")];
    assert_eq!(tainted(decide(&lost, false, Permission::Granted, now())), both);
    let before = node(&[("Ready", "Unknown")], &[(UNREACHABLE, "NoSchedule"), (NOT_READY, "NoExecute")]);
    assert_eq!(tainted(decide(&before, false, Permission::Waiting, now())), both);
    let after = node(&[("Ready", "Unknown")], &[(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]);
    assert_eq!(tainted(decide(&after, false, Permission::Forbidden, now())), both[..1]);
}

#[test]
fn a_silent_node_is_known_no_more() {
    let node = node(&[("Ready", "True"), ("MemoryPressure", "False"), ("NetworkUnavailable", "False")], &[]);
    let Plan::Conditions(conditions) = decide(&node, true, Permission::Waiting, now()) else { panic!("it is silent") };
    let said: Vec<_> = conditions
        .iter()
        .map(|one| (one.type_.as_str(), one.status.as_str(), one.reason.as_deref().unwrap()))
        .collect();
    assert_eq!(
        said,
        [
            ("Ready", "Unknown", "NodeStatusUnknown"),
            ("MemoryPressure", "Unknown", "NodeStatusUnknown"),
            ("DiskPressure", "Unknown", "NodeStatusNeverUpdated"),
            ("PIDPressure", "Unknown", "NodeStatusNeverUpdated"),
        ]
    );
    assert_eq!(conditions[0].message.as_deref(), Some("Kubelet stopped posting node status."));
}

#[test]
fn a_sign_of_life_is_a_change_that_we_saw() {
    let (options, start) = (Options::default(), Instant::now());
    let after = |seconds: u64| (start + Duration::from_secs(seconds), now());
    let node = node(&[("Ready", "True")], &[]);
    let see = |known, lease: Option<&Lease>, at| Health::see(known, &node, lease, &options, after(at));
    let health = see(None, Some(&lease(0)), 0);
    assert!(!health.is_silent(after(49).0));
    assert!(health.is_silent(after(50).0));
    let health = see(Some(health), Some(&lease(0)), 40);
    assert!(health.is_silent(after(50).0), "the same lease tells nothing");
    assert!(health.is_news(Some(&lease(1))) && !health.is_news(Some(&lease(0))) && !health.is_news(None));
    let health = see(Some(health), Some(&lease(1)), 45);
    assert!(!health.is_silent(after(94).0) && health.is_silent(after(95).0));
    let health = see(Some(health), None, 50);
    let health = see(Some(health), Some(&lease(1)), 60);
    assert!(health.is_silent(after(95).0), "a lease that was away is no newer");
}

#[test]
fn a_node_that_never_said_anything_had_its_time_since_it_was_made() {
    let (options, start) = (Options::default(), Instant::now());
    let silent = node(&[], &[]);
    let young = Health::see(None, &silent, None, &options, (start, now() + Duration::from_secs(20)));
    assert!(!young.is_silent(start + Duration::from_secs(39)) && young.is_silent(start + Duration::from_secs(40)));
    let old = Health::see(None, &silent, None, &options, (start, now() + Duration::from_secs(2000)));
    assert!(old.is_silent(start));
    let leased = Health::see(None, &silent, Some(&lease(0)), &options, (start, now() + Duration::from_secs(2000)));
    assert!(!leased.is_silent(start + Duration::from_secs(59)));
    let mut anew = silent;
    anew.metadata.uid = Some("v".to_owned());
    let anew = Health::see(Some(old), &anew, None, &options, (start, now()));
    assert!(!anew.is_silent(start));
}

fn member(name: &str, zone: &str, ready: bool) -> Member {
    Member { name: name.to_owned(), zone: zone.to_owned(), ready, counts: true, waits: !ready }
}

#[test]
fn nodes_are_emptied_one_after_the_other() {
    let (mut zones, options, start) = (Zones::default(), Options::default(), Instant::now());
    let mut members: Vec<Member> = (0..10).map(|one| member(&format!("ok-{one}"), "z", true)).collect();
    members.extend(["a", "b"].map(|name| member(name, "z", false)));
    assert_eq!(zones.look(&members, &options, start).next, Some(Duration::from_secs(10)));
    assert_eq!((zones.permission("a"), zones.permission("b")), (Permission::Granted, Permission::Waiting));
    zones.look(&members, &options, start + Duration::from_secs(9));
    assert_eq!(zones.permission("b"), Permission::Waiting);
    assert_eq!(zones.look(&members, &options, start + Duration::from_secs(10)).next, None);
    assert_eq!(zones.permission("b"), Permission::Granted);
}

#[test]
fn nothing_is_emptied_while_nothing_is_ready() {
    let (mut zones, options, start) = (Zones::default(), Options::default(), Instant::now());
    let all = [member("a", "y", false), member("b", "z", false)];
    assert!(!zones.look(&all, &options, start).recovered);
    assert_eq!(zones.permission("a"), Permission::Forbidden);
    let some = [member("a", "y", true), member("b", "z", false)];
    let looked = zones.look(&some, &options, start + Duration::from_secs(60));
    assert!(looked.recovered);
    assert_eq!((zones.permission("b"), looked.next), (Permission::Waiting, Some(Duration::from_secs(10))));
    zones.look(&some, &options, start + Duration::from_secs(70));
    assert_eq!(zones.permission("b"), Permission::Granted, "a zone that is lost among others is emptied");
}

#[test]
fn a_zone_where_much_fails_is_emptied_slowly_and_only_if_it_is_large() {
    let options = Options::default();
    let zone = |size: usize| -> Vec<Member> {
        (0..size).map(|one| member(&format!("{one:03}"), "z", one * 10 >= size * 6)).collect()
    };
    let granted = |size: usize, seconds: u64| {
        let (mut zones, start, members) = (Zones::default(), Instant::now(), zone(size));
        (0..=seconds).step_by(5).for_each(|at| {
            zones.look(&members, &options, start + Duration::from_secs(at));
        });
        members.iter().filter(|one| zones.permission(&one.name) == Permission::Granted).count()
    };
    // The first permission was left from when the zone was well, as in Kubernetes.
    assert_eq!(granted(100, 99), 1);
    assert_eq!(granted(100, 200), 3);
    assert_eq!(granted(20, 3600), 0);
}

proptest! {
    /// A plan that was carried out leaves nothing to do, and touches nothing of others.
    #[test]
    fn what_was_written_is_at_rest(
        conditions in prop::collection::btree_map(
            "Ready|MemoryPressure|DiskPressure|PIDPressure|NetworkUnavailable", "True|False|Unknown", 0..6),
        taints in prop::collection::btree_set((
            "mine|node.kubernetes.io/(not-ready|unreachable|disk-pressure|unschedulable)",
            "NoSchedule|NoExecute|PreferNoSchedule"), 0..6),
        cordoned: bool, silent: bool,
        permission in prop::sample::select(vec![Permission::Forbidden, Permission::Waiting, Permission::Granted]),
    ) {
        let conditions: Vec<(&str, &str)> = conditions.iter().map(|(kind, truth)| (kind.as_str(), truth.as_str())).collect();
        let list: Vec<(&str, &str)> = taints.iter().map(|(key, effect)| (key.as_str(), effect.as_str())).collect();
        let mut node = node(&conditions, &list);
        node.spec.as_mut().unwrap().unschedulable = Some(cordoned);
        let strangers = |node: &Node| -> Vec<Taint> {
            let all = node.spec.as_ref().unwrap().taints.clone().unwrap_or_default();
            all.into_iter().filter(|one| one.key == "mine" || one.effect == "PreferNoSchedule").collect()
        };
        let before = strangers(&node);
        let network = condition(&node, "NetworkUnavailable").cloned();
        for _ in 0..2 {
            match decide(&node, silent, permission, now()) {
                Plan::Nothing => {}
                Plan::Conditions(new) => {
                    prop_assert!(silent);
                    let list = node.status.as_mut().unwrap().conditions.get_or_insert_default();
                    list.retain(|old| new.iter().all(|new| new.type_ != old.type_));
                    list.extend(new);
                }
                Plan::Taints(new) => node.spec.as_mut().unwrap().taints = Some(new),
            }
        }
        prop_assert_eq!(decide(&node, silent, permission, now()), Plan::Nothing);
        prop_assert_eq!(strangers(&node), before);
        prop_assert_eq!(condition(&node, "NetworkUnavailable").cloned(), network);
        if silent {
            prop_assert!(unknown(&node, now()).is_empty());
        }
    }

    /// Whatever comes and goes: permissions in a zone are as far apart as the rate says, nobody well has one, and none are
    /// given while nothing is ready.
    #[test]
    fn permissions_are_far_enough_apart(
        steps in prop::collection::vec((1_u64..12, prop::collection::vec(any::<bool>(), 8)), 1..40),
    ) {
        let (mut zones, options, start) = (Zones::default(), Options::default(), Instant::now());
        let (mut at, mut had, mut last) = (0, BTreeSet::new(), BTreeMap::new());
        for (seconds, ready) in steps {
            at += seconds;
            let members: Vec<Member> = ready
                .iter()
                .enumerate()
                .map(|(index, ready)| member(&format!("n{index}"), if index < 4 { "y" } else { "z" }, *ready))
                .collect();
            zones.look(&members, &options, start + Duration::from_secs(at));
            let has: BTreeSet<String> = members
                .iter()
                .filter(|one| zones.permission(&one.name) == Permission::Granted)
                .map(|one| one.name.clone())
                .collect();
            prop_assert!(ready.iter().any(|one| *one) || has.is_empty());
            for new in has.difference(&had) {
                let one = members.iter().find(|one| one.name == *new).unwrap();
                prop_assert!(one.waits);
                if let Some(before) = last.insert(one.zone.clone(), at) {
                    prop_assert!(at - before >= 10, "{} and {}", before, at);
                }
            }
            had = has;
        }
    }
}
