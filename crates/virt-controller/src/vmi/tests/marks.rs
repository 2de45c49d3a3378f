//! What is said of an instance that is to leave its node, or whose launcher is outdated.

use api::names::{annotation, label};

use super::*;

/// An instance that runs on node `one`, as an earlier decision has left it.
fn running(more: &Value) -> Bench {
    let mut all = json!({
        "metadata": { "labels": { "kubevirt.io/nodeName": "one" } },
        "status": { "nodeName": "one", "activePods": { "p": "one" }, "launcherContainerImageVersion": "launcher" },
    });
    merge(&mut all, more);
    let mut bench = Bench::new("Running", &all).pod(&json!({}));
    let paused = json!({ "type": "kubevirt.io/virtual-machine-unpaused", "status": "True" });
    bench.pods[0].status.as_mut().unwrap().conditions = serde_json::from_value(json!([paused])).unwrap();
    bench
}

fn marked(node: &str) -> Value {
    json!({
        "metadata": { "annotations": { annotation::EVICTION_SOURCE: "descheduler" } }, "status": { "evacuationNodeName": node },
    })
}

#[test]
fn a_mark_is_shown_in_a_condition_and_to_the_descheduler() {
    let mut bench = running(&marked("one"));
    let plan = bench.decide();
    bench.vmi = bench.then(&plan);
    let requested = Some(("True".to_owned(), "EvictionRequested".to_owned()));
    assert_eq!(condition(&bench.vmi, "EvictionRequested"), requested);
    let (target, patch) = plan.marks.unwrap();
    assert_eq!(
        (target.uid.as_str(), &patch["metadata"]["annotations"]),
        ("p", &json!({ annotation::EVICTION_IN_PROGRESS: "true" }))
    );
    let annotations = bench.pods[0].metadata.annotations.get_or_insert_default();
    annotations.insert(annotation::EVICTION_IN_PROGRESS.to_owned(), "true".to_owned());
    assert_eq!(bench.decide(), Plan::default(), "then all is told");
    // Somebody cancels it.
    bench.vmi.status.as_mut().unwrap().evacuation_node_name = None;
    let plan = bench.decide();
    assert_eq!(
        plan.marks.as_ref().unwrap().1["metadata"]["annotations"],
        json!({ annotation::EVICTION_IN_PROGRESS: null })
    );
    let after = bench.then(&plan);
    assert_eq!(condition(&after, "EvictionRequested"), None);
    assert_eq!(after.metadata.annotations.unwrap_or_default().get(annotation::EVICTION_SOURCE), None);
}

#[test]
fn a_mark_goes_when_the_guest_has_left_that_node() {
    let bench = running(&marked("zero"));
    let after = bench.then(&bench.decide());
    assert_eq!(after.status.as_ref().unwrap().evacuation_node_name, None);
    assert_eq!(condition(&after, "EvictionRequested"), None);
    let elsewhere = running(&marked("one"));
    assert_eq!(elsewhere.then(&elsewhere.decide()).status.unwrap().evacuation_node_name.as_deref(), Some("one"));
}

#[test]
fn a_launcher_that_is_not_the_newest_is_labelled_with_its_pod() {
    let mut bench = running(&json!({}));
    assert!(bench.decide().change.is_none_or(|change| change["metadata"]["labels"].is_null()));
    bench.launcher = Launcher::new("launcher:next");
    let plan = bench.decide();
    let next = bench.then(&plan);
    assert_eq!(next.metadata.labels.as_ref().unwrap()[label::OUTDATED_LAUNCHER_IMAGE], "");
    assert_eq!(next.status.as_ref().unwrap().launcher_container_image_version.as_deref(), Some("launcher"));
    assert_eq!(plan.marks.unwrap().1["metadata"]["labels"], json!({ label::OUTDATED_LAUNCHER_IMAGE: "" }));
    bench.vmi = next;
    bench.launcher = Launcher::new("launcher");
    let back = bench.then(&bench.decide());
    assert!(!back.metadata.labels.unwrap().contains_key(label::OUTDATED_LAUNCHER_IMAGE));
}

#[test]
fn a_launcher_without_a_tag_is_known_by_the_release_that_its_pod_tells() {
    let mut bench = running(&json!({}));
    bench.launcher.version = Some("2".to_owned());
    let made = render::render(&Input {
        vmi: &bench.vmi,
        config: &bench.config,
        launcher: &bench.launcher,
        claims: &BTreeMap::new(),
        namespace: &Namespace::default(),
        image_volumes: true,
    });
    assert_eq!(render::runs(&made.unwrap()).unwrap(), "launcher:2");
    assert_eq!(bench.launcher.runs(), "launcher:2");
    let next = bench.then(&bench.decide());
    assert!(next.metadata.labels.unwrap().contains_key(label::OUTDATED_LAUNCHER_IMAGE), "it is of an earlier release");
}
