use serde_json::{Value, json};

use super::super::resources::Resources;
use super::{field, pod};
use crate::scheduler::ignored_fields;

fn requests(spec: Value) -> Resources {
    Resources::of_pod(pod("p", field("spec", spec)).spec.as_ref().unwrap())
}

fn asks(cpu: &str) -> Value {
    json!({ "name": "c", "resources": { "requests": { "cpu": cpu } } })
}

fn sidecar(cpu: &str) -> Value {
    json!({ "name": "c", "restartPolicy": "Always", "resources": { "requests": { "cpu": cpu } } })
}

#[test]
fn containers_run_side_by_side() {
    assert_eq!(requests(json!({ "containers": [asks("1"), asks("250m")] })).milli_cpu, 1250);
}

#[test]
fn an_init_container_counts_only_if_it_needs_more_than_what_runs_later() {
    assert_eq!(
        requests(json!({ "containers": [asks("1")], "initContainers": [asks("2"), asks("3")] })).milli_cpu,
        3000
    );
    assert_eq!(
        requests(json!({ "containers": [asks("4")], "initContainers": [asks("2"), asks("3")] })).milli_cpu,
        4000
    );
}

#[test]
fn a_sidecar_counts_beside_the_containers_and_the_stages_after_it() {
    let running = json!({ "containers": [asks("2")], "initContainers": [sidecar("1")] });
    assert_eq!(requests(running).milli_cpu, 3000);
    let stage = json!({ "containers": [asks("1")], "initContainers": [asks("4"), sidecar("1"), asks("4")] });
    assert_eq!(requests(stage).milli_cpu, 5000);
    let before = json!({ "containers": [asks("1")], "initContainers": [asks("4"), sidecar("1")] });
    assert_eq!(requests(before).milli_cpu, 4000);
}

#[test]
fn overhead_comes_on_top() {
    let spec = json!({ "containers": [asks("1")], "initContainers": [asks("2")], "overhead": { "cpu": "100m", "memory": "1Ki" } });
    let sum = requests(spec);
    assert_eq!((sum.milli_cpu, sum.memory), (2100, 1024));
}

#[test]
fn requests_of_the_pod_as_a_whole_stand_for_those_of_its_containers() {
    let spec = json!({ "containers": [asks("1")], "resources": { "requests": { "cpu": "3", "memory": "1Mi" } } });
    let sum = requests(spec);
    assert_eq!((sum.milli_cpu, sum.memory), (3000, 1024 * 1024));
}

#[test]
fn amounts_are_rounded_up() {
    let spec =
        json!({ "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1u", "memory": "1500m" } } }] });
    let sum = requests(spec);
    assert_eq!((sum.milli_cpu, sum.memory), (1, 2));
}

#[test]
fn fields_that_are_not_acted_on_are_named() {
    let spread = json!([{ "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule" }]);
    let asking =
        pod("p", json!({ "spec": { "topologySpreadConstraints": spread, "resourceClaims": [{ "name": "c" }] } }));
    let fields = ignored_fields(asking.spec.as_ref().unwrap());
    assert_eq!(fields, ["spec.topologySpreadConstraints", "spec.resourceClaims"]);
    assert!(ignored_fields(pod("p", json!({})).spec.as_ref().unwrap()).is_empty());
}
