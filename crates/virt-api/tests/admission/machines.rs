//! What a VM is refused for.

use serde_json::{Value, json};
use virt_api::Requester;

use crate::support::{Cluster, changed, create, denied, fields, refuses, stored, update, vm, write};

fn spec(spec: &Value) -> Value {
    json!({ "spec": spec })
}

fn template(spec: &Value) -> Value {
    json!({ "spec": { "template": { "spec": spec } } })
}

#[test]
fn a_vm_says_once_when_it_runs() {
    refuses(
        &Cluster::new(),
        &vm(),
        &[
            (spec(&json!({ "running": true })), &["spec.running"]),
            (spec(&json!({ "runStrategy": null })), &["spec.runStrategy"]),
            (spec(&json!({ "runStrategy": null, "running": true })), &[]),
            (spec(&json!({ "runStrategy": "WaitAsReceiver" })), &["spec.runStrategy"]),
            (spec(&json!({ "runStrategy": "OnFullMoon" })), &["spec.runStrategy"]),
            (spec(&json!({ "updateVolumesStrategy": "Migration" })), &["spec.updateVolumesStrategy"]),
            (spec(&json!({ "updateVolumesStrategy": "Replacement" })), &[]),
        ],
    );
}

#[test]
fn a_template_is_checked_as_an_instance() {
    refuses(
        &Cluster::new(),
        &vm(),
        &[
            (template(&json!({ "domain": { "memory": null } })), &["spec.template.spec.domain.memory.guest"]),
            (template(&json!({ "hostname": "Bad" })), &["spec.template.spec.hostname"]),
            (spec(&json!({ "template": { "spec": null } })), &["spec.template.spec"]),
            (
                spec(&json!({ "template": { "metadata": { "labels": { "a": "b c" } } } })),
                &["spec.template.metadata.labels[a]"],
            ),
            (
                spec(&json!({ "template": { "metadata": { "labels": { "kubevirt.io/nodeName": "n" } } } })),
                &["spec.template.metadata.labels[kubevirt.io/nodeName]"],
            ),
        ],
    );
}

#[test]
fn data_volumes_need_somebody_who_fills_them() {
    let blank = json!({ "metadata": { "name": "dv" }, "spec": { "storage": {}, "source": { "blank": {} } } });
    let used = json!({
        "dataVolumeTemplates": [blank],
        "template": { "spec": { "volumes": [{ "name": "root", "dataVolume": { "name": "dv" } }] } },
    });
    refuses(&Cluster::new(), &vm(), &[(spec(&used), &["spec.dataVolumeTemplates"])]);
    let with = |patch: Value| {
        let mut whole = used.clone();
        whole["dataVolumeTemplates"][0] = changed(&blank, &patch);
        spec(&whole)
    };
    let at = |name: &str| format!("spec.dataVolumeTemplates[0]{name}");
    let (name, storage, pvc, source, reference, whole) =
        (at(".metadata.name"), at(".spec.storage"), at(".spec.pvc"), at(".spec.source"), at(".spec.sourceRef"), at(""));
    let mut cluster = Cluster::new();
    cluster.data_volumes = true;
    refuses(
        &cluster,
        &vm(),
        &[
            (with(json!({})), &[]),
            (with(json!({ "metadata": { "name": "" } })), &[&name]),
            (with(json!({ "metadata": { "name": "unused" } })), &[&whole]),
            (with(json!({ "spec": { "storage": null } })), &[&storage]),
            (with(json!({ "spec": { "pvc": {} } })), &[&pvc]),
            (with(json!({ "spec": { "source": null } })), &[&source]),
            (with(json!({ "spec": { "source": { "blank": null } } })), &[&source]),
            (with(json!({ "spec": { "source": { "upload": {} } } })), &[&source]),
            (with(json!({ "spec": { "sourceRef": { "kind": "DataSource", "name": "d" } } })), &[&reference]),
        ],
    );
}

fn sized() -> Cluster {
    Cluster::new()
        .instancetype("small", json!({ "cpu": { "guest": 2 }, "memory": { "guest": "1Gi" } }))
        .instancetype("odd", json!({ "cpu": { "guest": 3 }, "memory": { "guest": "1Gi" } }))
        .preference("plain", json!({ "machine": { "preferredMachineType": "pc-q35-9.0" } }))
        .preference("spread", json!({ "cpu": { "preferredCPUTopology": "spread" } }))
        .preference("greedy", json!({ "requirements": { "cpu": { "guest": 8 }, "architecture": "arm64" } }))
}

#[test]
fn an_instancetype_sizes_and_a_preference_fills_in() {
    let unsized_vm = changed(&vm(), &template(&json!({ "domain": { "memory": null } })));
    let matchers = spec(&json!({ "instancetype": { "name": "small" }, "preference": { "name": "plain" } }));
    let sent = changed(&unsized_vm, &matchers);
    let made = stored(create(&sized(), &sent), &sent);
    assert_eq!(made["spec"]["template"]["spec"]["domain"]["machine"]["type"], "pc-q35-9.0");
    assert_eq!(made["spec"]["template"]["spec"]["domain"].get("memory"), None, "sizes stay with the instancetype");
}

#[test]
fn references_that_lead_nowhere_are_refused_by_name() {
    let memoryless = changed(&vm(), &template(&json!({ "domain": { "memory": null } })));
    for (matchers, expected) in [
        (json!({ "instancetype": { "name": "none" } }), "spec.instancetype.name"),
        (json!({ "instancetype": { "name": "none", "revisionName": "r" } }), "spec.instancetype.revisionName"),
        (json!({ "instancetype": { "name": "small" }, "preference": { "name": "none" } }), "spec.preference.name"),
        (json!({ "instancetype": { "inferFromVolume": "root" } }), "spec.instancetype.inferFromVolume"),
        (json!({ "instancetype": { "name": "small", "kind": "Flavor" } }), "spec.instancetype.kind"),
        (json!({ "instancetype": { "name": "odd" }, "preference": { "name": "spread" } }), "spec.instancetype"),
    ] {
        assert_eq!(fields(create(&sized(), &changed(&memoryless, &spec(&matchers)))), [expected], "{matchers}");
    }
    let namespaced = json!({ "instancetype": { "name": "none", "kind": "VirtualMachineInstancetype" } });
    let denial = denied(create(&sized(), &changed(&memoryless, &spec(&namespaced))));
    let words = "VirtualMachineInstancetype \"none\" does not exist in the namespace \"default\"; create it first";
    assert!(denial.message.contains(words), "{denial}");
}

#[test]
fn conflicts_and_requirements_are_told_together_with_the_rest() {
    let matchers = json!({ "instancetype": { "name": "small" }, "preference": { "name": "greedy" } });
    let sent = changed(&changed(&vm(), &spec(&matchers)), &template(&json!({ "hostname": "Bad" })));
    assert_eq!(
        fields(create(&sized(), &sent)),
        [
            "spec.template.spec.domain.memory.guest",
            "spec.instancetype",
            "spec.template.spec.architecture",
            "spec.template.spec.hostname",
        ]
    );
}

#[test]
fn what_works_in_its_last_days_is_warned_about() {
    let old = changed(
        &vm(),
        &json!({ "apiVersion": "kubevirt.io/v1alpha3", "spec": { "runStrategy": null, "running": true } }),
    );
    let allowed = Cluster::new().configured(&json!({ "emulatedMachines": ["pc-*", "q35*"] }));
    let sent = changed(&old, &template(&json!({ "domain": { "machine": { "type": "pc-i440fx-8.0" } } })));
    let response = create(&allowed, &sent);
    assert!(response.outcome.is_ok());
    assert_eq!(
        response.warnings,
        [
            "apiVersion: kubevirt.io/v1alpha3 is deprecated; use kubevirt.io/v1",
            "spec.running: is deprecated; use spec.runStrategy",
            "spec.template.spec.domain.machine.type: pc-i440fx-8.0 is deprecated; use q35",
        ]
    );
}

#[test]
fn a_snapshot_holds_the_disks_and_a_restore_the_strategy() {
    let cluster = Cluster::new();
    let old = stored(create(&cluster, &vm()), &vm());
    let busy = |field: &str| changed(&old, &json!({ "status": { field: "it" } }));
    let halted = spec(&json!({ "runStrategy": "Halted" }));
    let disk = template(&json!({ "volumes": [{ "name": "root", "containerDisk": { "image": "other:1" } }] }));
    let tuned = template(&json!({ "domain": { "devices": { "disks": [{ "name": "root", "cache": "none" }] } } }));
    for (status, patch, expected) in [
        ("snapshotInProgress", &halted, &["spec.runStrategy"][..]),
        ("snapshotInProgress", &disk, &["spec.template.spec.volumes"]),
        ("snapshotInProgress", &tuned, &["spec.template.spec.domain.devices.disks"]),
        ("restoreInProgress", &halted, &["spec.runStrategy"]),
        ("restoreInProgress", &disk, &[]),
    ] {
        let old = busy(status);
        assert_eq!(
            fields(update(&cluster, Requester::User, &old, &changed(&old, patch))),
            expected,
            "{status} {patch}"
        );
    }
}

#[test]
fn what_was_admitted_once_is_not_judged_again() {
    let odd = changed(&vm(), &json!({ "spec": { "instancetype": { "name": "deleted" } } }));
    let cluster = Cluster::new();
    let labelled = changed(&odd, &json!({ "metadata": { "labels": { "a": "b" } } }));
    assert_eq!(update(&cluster, Requester::User, &odd, &labelled).outcome, Ok(None));
    let halted = changed(&odd, &spec(&json!({ "runStrategy": "Halted" })));
    assert_eq!(fields(update(&cluster, Requester::User, &odd, &halted)), ["spec.instancetype.name"]);
    let dying =
        changed(&halted, &json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": null } }));
    assert_eq!(update(&cluster, Requester::User, &odd, &dying).outcome, Ok(None));
}

#[test]
fn a_vm_keeps_its_instancetype_after_that_is_gone() {
    let cluster = Cluster::new().instancetype("kept", json!({ "cpu": { "guest": 2 }, "memory": { "guest": "1Gi" } }));
    let base = changed(&vm(), &template(&json!({ "domain": { "memory": null } })));
    let old = changed(&base, &spec(&json!({ "instancetype": { "name": "gone" } })));
    let halted = spec(&json!({ "runStrategy": "Halted" }));
    let refused = fields(update(&cluster, Requester::User, &old, &changed(&old, &halted)));
    assert_eq!(refused, ["spec.instancetype.name"]);
    let reference = json!({ "name": "gone", "controllerRevisionRef": { "name": "kept" } });
    let old = changed(&old, &json!({ "status": { "instancetypeRef": reference } }));
    assert_eq!(fields(update(&cluster, Requester::User, &old, &changed(&old, &halted))), [""; 0]);
}

#[test]
fn another_instancetype_does_not_keep_the_revision_of_the_old_one() {
    let base = changed(&vm(), &template(&json!({ "domain": { "memory": null } })));
    let bound = |name: &str| changed(&base, &spec(&json!({ "instancetype": { "name": name, "revisionName": "r" } })));
    let cluster = sized().instancetype("r", json!({ "cpu": { "guest": 2 }, "memory": { "guest": "1Gi" } }));
    let refused = fields(update(&cluster, Requester::User, &bound("small"), &bound("odd")));
    assert_eq!(refused, ["spec.instancetype.revisionName"]);
}

#[test]
fn requests_in_the_status_that_nobody_carries_out_are_refused() {
    let cluster = Cluster::new();
    let base = changed(&vm(), &json!({ "status": { "ready": true } }));
    let status = |patch: Value| changed(&base, &json!({ "status": patch }));
    let plug = status(json!({ "volumeRequests": [{ "removeVolumeOptions": { "name": "root" } }] }));
    let dump = status(json!({ "memoryDumpRequest": { "claimName": "c", "phase": "Associating" } }));
    let asked = |object: &Value| fields(write(&cluster, Requester::User, "status", Some(&base), object));
    assert_eq!(asked(&plug), ["status.volumeRequests"]);
    assert_eq!(asked(&dump), ["status.memoryDumpRequest"]);
    assert_eq!(asked(&status(json!({ "ready": false }))), [""; 0]);
}
