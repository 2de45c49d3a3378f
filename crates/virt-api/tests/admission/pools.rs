//! Pools of VMs: a selector that finds what the template makes, and a template that would be admitted by itself.

use serde_json::{Value, json};
use virt_api::Requester;

use crate::support::{Cluster, changed, create, denied, fields, refuses, stored, update, vm, write};

fn pool() -> Value {
    json!({
        "apiVersion": "pool.kubevirt.io/v1beta1",
        "kind": "VirtualMachinePool",
        "metadata": { "name": "p" },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": { "app": "web" } },
            "virtualMachineTemplate": { "metadata": { "labels": { "app": "web" } }, "spec": vm()["spec"] },
        },
    })
}

fn spec(spec: &Value) -> Value {
    json!({ "spec": spec })
}

#[test]
fn a_pool_is_admitted_as_it_is_written() {
    let made = stored(create(&Cluster::new(), &pool()), &pool());
    assert_eq!(made["spec"], pool()["spec"], "the template stays as it is: the VMs are filled in");
    assert_eq!(create(&Cluster::new(), &made).outcome, Ok(None), "and is admitted unchanged the second time");
}

#[test]
fn what_would_never_come_to_rest_is_refused() {
    let template = |template: &Value| spec(&json!({ "virtualMachineTemplate": template }));
    let scale_in = |strategy: &Value| spec(&json!({ "scaleInStrategy": strategy }));
    refuses(
        &Cluster::new(),
        &pool(),
        &[
            (spec(&json!({ "replicas": -1 })), &["spec.replicas"]),
            (spec(&json!({ "selector": { "matchLabels": { "app": "other" } } })), &["spec.selector"]),
            (spec(&json!({ "selector": { "matchLabels": null } })), &["spec.selector"]),
            (template(&json!({ "metadata": null })), &["spec.selector"]),
            (template(&json!({ "spec": null })), &["spec.virtualMachineTemplate.spec"]),
            (spec(&json!({ "maxUnavailable": 0 })), &["spec.maxUnavailable"]),
            (spec(&json!({ "maxUnavailable": "101%" })), &["spec.maxUnavailable"]),
            (spec(&json!({ "maxUnavailable": "some" })), &["spec.maxUnavailable"]),
            (spec(&json!({ "updateStrategy": { "proactive": {}, "unmanaged": {} } })), &["spec.updateStrategy"]),
            (scale_in(&json!({ "proactive": {}, "opportunistic": {} })), &["spec.scaleInStrategy"]),
        ],
    );
    for limit in [json!(1), json!("1%"), json!("100%")] {
        let fine = changed(&pool(), &spec(&json!({ "maxUnavailable": limit })));
        assert_eq!(fields(create(&Cluster::new(), &fine)), [""; 0], "{limit}");
    }
}

/// KubeVirt admits it, and keeps no more than the disks.
#[test]
fn memory_that_shall_outlive_its_vm_is_admitted_with_a_warning() {
    for strategy in ["proactive", "opportunistic"] {
        let kept = |word: &str| spec(&json!({ "scaleInStrategy": { strategy: { "statePreservation": word } } }));
        let made = create(&Cluster::new(), &changed(&pool(), &kept("Online")));
        let field = format!("spec.scaleInStrategy.{strategy}.statePreservation");
        assert_eq!(made.warnings, [format!("{field}: Online keeps the disks and not the memory, as Offline does")]);
        assert_eq!(fields(made), [""; 0]);
        assert_eq!(create(&Cluster::new(), &changed(&pool(), &kept("Offline"))).warnings, [""; 0]);
    }
}

#[test]
fn a_refusal_says_what_to_do() {
    let message = |patch: &Value| denied(create(&Cluster::new(), &changed(&pool(), &spec(patch)))).message;
    let everything = message(&json!({ "selector": { "matchLabels": null } }));
    assert!(
        everything.contains("spec.selector: is empty and would match every VM of the namespace; select labels"),
        "{everything}"
    );
    let nothing = message(&json!({ "selector": { "matchLabels": { "app": "other" } } }));
    assert!(nothing.contains("spec.selector: does not match spec.virtualMachineTemplate.metadata.labels"), "{nothing}");
    assert!(nothing.ends_with("use the same labels in both"), "{nothing}");
    let negative = message(&json!({ "replicas": -3 }));
    assert!(negative.ends_with("spec.replicas: -3 is negative; use 0 or more"), "{negative}");
}

#[test]
fn a_template_is_refused_for_what_a_vm_would_be_refused_for() {
    let of_vm = json!({ "runStrategy": "Sometimes", "template": { "spec": { "hostname": "Bad" } } });
    let wrong = changed(&pool(), &spec(&json!({ "virtualMachineTemplate": { "spec": of_vm } })));
    let denial = denied(create(&Cluster::new(), &wrong));
    let told: Vec<&str> = denial.causes.iter().map(|cause| cause.field.as_str()).collect();
    let prefix = "spec.virtualMachineTemplate.spec";
    assert_eq!(told, [format!("{prefix}.runStrategy"), format!("{prefix}.template.spec.hostname")]);
    // What was admitted once is not judged again while it stays.
    let paused = changed(&wrong, &spec(&json!({ "paused": true })));
    assert_eq!(fields(update(&Cluster::new(), Requester::User, &wrong, &paused)), [""; 0]);
}

#[test]
fn a_selector_stays_and_whoever_scales_is_not_judged() {
    let labels = json!({ "app": "web", "more": "yes" });
    let other = json!({ "selector": { "matchLabels": labels }, "virtualMachineTemplate": { "metadata": { "labels": labels } } });
    let moved = changed(&pool(), &spec(&other));
    assert_eq!(fields(update(&Cluster::new(), Requester::User, &pool(), &moved)), ["spec.selector"]);
    let empty = changed(&pool(), &spec(&json!({ "selector": { "matchLabels": null } })));
    assert_eq!(write(&Cluster::new(), Requester::User, "status", Some(&pool()), &empty).outcome, Ok(None));
}
