use serde_json::json;

use super::{answer, asking, cluster, info, namespace, node, on, pod};
use crate::scheduler::{Cluster, Event, Outcome, PodInfo};

const FULL: &str = "0/1 nodes are available: 1 Insufficient cpu.";

fn big(name: &str) -> k8s_openapi::api::core::v1::Pod {
    asking(name, json!({ "cpu": "3" }))
}

#[test]
fn a_pod_counts_until_it_ends_or_is_gone() {
    let mut cluster = cluster(&[node("n", json!({}))], &[on("n", big("q"))]);
    assert_eq!(answer(&mut cluster, &big("p")), FULL);
    let mut ended = on("n", big("q"));
    ended.status = serde_json::from_value(json!({ "phase": "Succeeded" })).unwrap();
    assert_eq!(cluster.set_pod(&ended), Some(Event::PodRemoved));
    assert_eq!(answer(&mut cluster, &big("p")), "n");
    cluster.set_pod(&on("n", big("q")));
    assert_eq!(cluster.remove_pod("q"), Some(Event::PodRemoved));
    assert_eq!(answer(&mut cluster, &big("p")), "n");
}

#[test]
fn a_pod_without_a_node_takes_nothing() {
    let mut cluster = cluster(&[node("n", json!({}))], &[big("q")]);
    assert_eq!(answer(&mut cluster, &big("p")), "n");
}

#[test]
fn an_assumed_pod_counts_at_once_and_no_more_once_forgotten() {
    let mut cluster = cluster(&[node("n", json!({}))], &[]);
    assert_eq!(cluster.assume(&info(&big("q")), "n"), Some(Event::PodAdded));
    assert_eq!(cluster.set_pod(&big("q")), None, "a late word of the unbound pod changes nothing");
    assert_eq!(answer(&mut cluster, &big("p")), FULL);
    assert_eq!(cluster.forget("q"), Some(Event::PodRemoved));
    assert_eq!(answer(&mut cluster, &big("p")), "n");
}

#[test]
fn a_pod_that_was_seen_on_its_node_is_not_forgotten() {
    let mut cluster = cluster(&[node("n", json!({}))], &[]);
    cluster.assume(&info(&big("q")), "n");
    assert_eq!(cluster.set_pod(&on("n", big("q"))), None, "it is what was assumed");
    assert_eq!(cluster.forget("q"), None);
    assert_eq!(cluster.assume(&info(&big("q")), "elsewhere"), None);
    assert_eq!(answer(&mut cluster, &big("p")), FULL);
}

#[test]
fn pods_outlast_the_object_of_their_node() {
    let mut cluster = cluster(&[], &[on("n", big("q"))]);
    cluster.set_node(&node("n", json!({})));
    assert_eq!(answer(&mut cluster, &big("p")), FULL);
    assert_eq!(cluster.remove_node("n"), Some(Event::Node));
    cluster.set_node(&node("n", json!({})));
    assert_eq!(answer(&mut cluster, &big("p")), FULL);
    cluster.remove_node("n");
    cluster.remove_pod("q");
    assert_eq!(cluster, Cluster::default());
}

#[test]
fn updates_that_scheduling_cannot_tell_are_no_events() {
    let mut cluster = cluster(&[node("n", json!({}))], &[on("n", big("q"))]);
    let heartbeat = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    assert_eq!(cluster.set_node(&node("n", heartbeat)), None);
    assert_eq!(cluster.set_node(&node("n", json!({ "spec": { "unschedulable": true } }))), Some(Event::Node));
    assert_eq!(cluster.set_pod(&on("n", pod("q", json!({})))), Some(Event::PodChanged));
    assert_eq!(cluster.set_namespace(&namespace("x", json!({ "a": "b" }))), Some(Event::Namespace));
    assert_eq!(cluster.set_namespace(&namespace("x", json!({ "a": "b" }))), None);
    assert_eq!(cluster.remove_namespace("x"), Some(Event::Namespace));
    assert_eq!(cluster.remove_node("other"), None);
}

#[test]
fn an_outcome_names_what_may_help() {
    let mut full = cluster(&[node("n", json!({}))], &[on("n", big("q"))]);
    let outcome = full.schedule(&PodInfo::new(&big("p")));
    let Outcome::Unschedulable { cured_by, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(cured_by, [Event::Node, Event::PodChanged, Event::PodRemoved].into());

    let mut tainted = cluster(&[node("n", json!({ "spec": { "unschedulable": true } }))], &[]);
    let outcome = tainted.schedule(&PodInfo::new(&big("p")));
    let Outcome::Unschedulable { cured_by, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(cured_by, [Event::Node].into());
}
