//! Replica sets of instances: a selector that finds what the template makes, and a template that would be admitted by itself.

use serde_json::{Value, json};
use virt_api::Requester;

use crate::support::{Cluster, changed, create, denied, fields, refuses, stored, update, vmi, write};

fn set() -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": { "name": "s" },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web" } }, "spec": vmi()["spec"] },
        },
    })
}

fn spec(spec: &Value) -> Value {
    json!({ "spec": spec })
}

#[test]
fn a_set_is_admitted_as_it_is_written() {
    let made = stored(create(&Cluster::new(), &set()), &set());
    assert_eq!(made["spec"], set()["spec"], "the template stays as it is: the instances are filled in");
    assert_eq!(create(&Cluster::new(), &made).outcome, Ok(None), "and is admitted unchanged the second time");
}

#[test]
fn what_would_never_come_to_rest_is_refused() {
    let expression = |expression: &Value| spec(&json!({ "selector": { "matchExpressions": [expression] } }));
    refuses(
        &Cluster::new(),
        &set(),
        &[
            (spec(&json!({ "replicas": -1 })), &["spec.replicas"]),
            (spec(&json!({ "selector": { "matchLabels": { "app": "other" } } })), &["spec.selector"]),
            (spec(&json!({ "selector": { "matchLabels": null } })), &["spec.selector"]),
            (spec(&json!({ "template": { "metadata": null } })), &["spec.selector"]),
            (expression(&json!({ "key": "app", "operator": "Near" })), &["spec.selector.matchExpressions[0].operator"]),
            (expression(&json!({ "key": "app", "operator": "In" })), &["spec.selector.matchExpressions[0].values"]),
            (expression(&json!({ "key": "app", "operator": "DoesNotExist" })), &["spec.selector"]),
            (spec(&json!({ "template": { "spec": null } })), &["spec.template.spec"]),
        ],
    );
}

#[test]
fn a_refusal_says_what_to_do() {
    let message = |patch: &Value| denied(create(&Cluster::new(), &changed(&set(), patch))).message;
    let everything = message(&spec(&json!({ "selector": { "matchLabels": null } })));
    assert!(
        everything.contains("spec.selector: is empty and would claim every instance of the namespace; select labels")
    );
    let nothing = message(&spec(&json!({ "selector": { "matchLabels": { "app": "other" } } })));
    assert!(nothing.contains("spec.selector: does not match spec.template.metadata.labels"), "{nothing}");
    assert!(nothing.ends_with("use the same labels in both"), "{nothing}");
    let negative = message(&spec(&json!({ "replicas": -3 })));
    assert!(negative.ends_with("spec.replicas: -3 is negative; use 0 or more"), "{negative}");
}

#[test]
fn the_template_is_judged_as_an_instance_is() {
    let wrong = spec(
        &json!({ "template": { "spec": { "domain": { "devices": { "sound": { "name": "s" } }, "cpu": { "cores": 0 } } } } }),
    );
    let of_instance = json!({ "spec": wrong["spec"]["template"]["spec"] });
    let expected: Vec<String> = fields(create(&Cluster::new(), &changed(&vmi(), &of_instance)));
    let found = fields(create(&Cluster::new(), &changed(&set(), &wrong)));
    assert!(!expected.is_empty());
    assert_eq!(found, expected.iter().map(|field| format!("spec.template.{field}")).collect::<Vec<_>>());
}

/// Whoever scales a set must not be held up by a template that a newer release would refuse.
#[test]
fn a_template_that_stays_is_not_judged_again() {
    let wrong = changed(
        &set(),
        &spec(&json!({ "template": { "spec": { "domain": { "devices": { "sound": { "name": "s" } } } } } })),
    );
    let scaled = changed(&wrong, &spec(&json!({ "replicas": 5 })));
    assert_eq!(update(&Cluster::new(), Requester::User, &wrong, &scaled).outcome, Ok(None));
    let negative = changed(&wrong, &spec(&json!({ "replicas": -5 })));
    assert_eq!(fields(update(&Cluster::new(), Requester::User, &wrong, &negative)), ["spec.replicas"]);
    let status = changed(&wrong, &json!({ "status": { "replicas": 1 } }));
    assert_eq!(write(&Cluster::new(), Requester::Component, "status", Some(&wrong), &status).outcome, Ok(None));
}
