//! Migrations: of an instance that can move, one at a time, and as they were asked for.

use std::sync::Arc;

use serde_json::{Value, json};
use virt_api::Requester;

use crate::support::{Cluster, changed, create, denied, fields, refuses, stored, update, vmi, write};

fn migration() -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": { "name": "m" },
        "spec": { "vmiName": "v" },
    })
}

/// A cluster with the instance `v`.
fn cluster(status: &Value) -> Cluster {
    let instance = changed(&vmi(), &json!({ "status": status }));
    let mut cluster = Cluster::new();
    cluster.instances.insert("v".to_owned(), Arc::new(serde_json::from_value(instance).unwrap()));
    cluster
}

#[test]
fn a_migration_is_found_by_its_instance_and_kept_until_it_was_cleared_up() {
    let made = stored(create(&cluster(&json!({ "phase": "Running" })), &migration()), &migration());
    assert_eq!(made["metadata"]["labels"]["kubevirt.io/vmi-name"], "v");
    assert_eq!(made["metadata"]["finalizers"], json!(["kubevirt.io/migrationJobFinalize"]));
}

#[test]
fn an_instance_moves_however_long_its_name_is() {
    let name = "v".repeat(200);
    let asked = changed(&migration(), &json!({ "spec": { "vmiName": name } }));
    let mut cluster = cluster(&json!({ "phase": "Running" }));
    let instance = cluster.instances["v"].clone();
    cluster.instances.insert(name, instance);
    let made = stored(create(&cluster, &asked), &asked);
    assert_eq!(made["metadata"]["labels"]["kubevirt.io/vmi-name"].as_str().map(str::len), Some(63));
}

#[test]
fn an_instance_that_cannot_move_is_refused_in_the_words_that_clients_know() {
    let message = |cluster: &Cluster| denied(create(cluster, &migration())).message;
    assert_eq!(message(&Cluster::new()), "the VMI \"default/v\" does not exist");
    assert_eq!(message(&cluster(&json!({ "phase": "Succeeded" }))), "Cannot migrate VMI in finalized state.");
    let condition = json!({ "type": "LiveMigratable", "status": "False", "reason": "Why", "message": "how" });
    let stays = cluster(&json!({ "phase": "Running", "conditions": [condition] }));
    assert_eq!(message(&stays), "Cannot migrate VMI, Reason: Why, Message: how");
    let mut moves = cluster(&json!({ "phase": "Running" }));
    moves.migrations.insert("v".to_owned(), "first".to_owned());
    let busy = "in-flight migration detected. Active migration job (first) is currently already in progress for VMI v.";
    assert_eq!(message(&moves), busy);
}

#[test]
fn what_is_not_done_here_is_refused_by_name() {
    refuses(
        &cluster(&json!({ "phase": "Running" })),
        &migration(),
        &[
            (json!({ "spec": { "vmiName": null } }), &["spec.vmiName"]),
            (json!({ "spec": { "sendTo": { "connectURL": "a:1", "migrationID": "x" } } }), &["spec.sendTo"]),
            (json!({ "spec": { "receive": { "migrationID": "x" } } }), &["spec.receive"]),
            (json!({ "spec": { "priority": "system-critical" } }), &["spec.priority"]),
        ],
    );
}

#[test]
fn only_our_controllers_say_how_urgent_it_is() {
    let urgent = changed(&migration(), &json!({ "spec": { "priority": "system-critical" } }));
    let response = write(&cluster(&json!({ "phase": "Running" })), Requester::Component, "", None, &urgent);
    assert!(response.outcome.is_ok());
}

#[test]
fn what_was_asked_for_stays() {
    let cluster = cluster(&json!({ "phase": "Running" }));
    let old = stored(create(&cluster, &migration()), &migration());
    let other = changed(&old, &json!({ "spec": { "vmiName": "w" } }));
    assert_eq!(fields(update(&cluster, Requester::User, &old, &other)), ["spec"]);
    let relabelled = changed(&old, &json!({ "metadata": { "labels": { "kubevirt.io/vmi-name": "w" } } }));
    assert_eq!(fields(update(&cluster, Requester::User, &old, &relabelled)), ["metadata.labels[kubevirt.io/vmi-name]"]);
    let annotated = changed(&old, &json!({ "metadata": { "annotations": { "why": "because" } } }));
    assert_eq!(update(&cluster, Requester::User, &old, &annotated).outcome, Ok(None));
}

#[test]
fn a_policy_that_cannot_be_kept_is_refused() {
    let policy = json!({
        "apiVersion": "migrations.kubevirt.io/v1alpha1",
        "kind": "MigrationPolicy",
        "metadata": { "name": "p" },
        "spec": { "selectors": { "virtualMachineInstanceSelector": { "app": "db" } } },
    });
    assert_eq!(create(&Cluster::new(), &policy).outcome, Ok(None));
    let timeout = changed(&policy, &json!({ "spec": { "completionTimeoutPerGiB": -1 } }));
    assert_eq!(fields(create(&Cluster::new(), &timeout)), ["spec.completionTimeoutPerGiB"]);
    let warned = changed(&policy, &json!({ "spec": { "allowPostCopy": true, "experimental": {} } }));
    let response = create(&Cluster::new(), &warned);
    assert_eq!(response.outcome, Ok(None));
    assert!(response.warnings[0].starts_with("spec.allowPostCopy: has no effect; "), "{:?}", response.warnings);
    assert!(response.warnings[1].starts_with("spec.experimental: "), "{:?}", response.warnings);
}
