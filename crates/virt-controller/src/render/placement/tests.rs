use serde_json::{Value, json};

use super::*;
use crate::render::testing::{Bench, vmi};

fn selector(bench: &Bench, spec: Value) -> String {
    let vmi = vmi(spec);
    let labels = node_selector(&bench.input(&vmi));
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_plain_guest_needs_a_schedulable_node() {
    assert_eq!(selector(&Bench::default(), json!({})), "kubevirt.io/schedulable=true");
}

#[test]
fn what_the_guest_needs_its_node_must_have() {
    for (spec, label) in [
        (json!({ "architecture": "arm64" }), "kubernetes.io/arch=arm64"),
        (json!({ "domain": { "machine": { "type": "q35" } } }), "machine-type.node.kubevirt.io/q35=true"),
        (json!({ "domain": { "cpu": { "model": "Nehalem" } } }), "cpu-model.node.kubevirt.io/Nehalem=true"),
        (json!({ "domain": { "cpu": { "features": [{ "name": "vmx" }] } } }), "cpu-feature.node.kubevirt.io/vmx=true"),
        (json!({ "domain": { "cpu": { "dedicatedCpuPlacement": true } } }), "cpumanager=true"),
        (json!({ "domain": { "cpu": { "realtime": {} } } }), "kubevirt.io/realtime=true"),
        (json!({ "domain": { "launchSecurity": { "sev": {} } } }), "kubevirt.io/sev=true"),
        (
            json!({ "domain": { "launchSecurity": { "sev": { "policy": { "encryptedState": true } } } } }),
            "kubevirt.io/sev-es=true",
        ),
        (json!({ "domain": { "launchSecurity": { "snp": {} } } }), "kubevirt.io/sev-snp=true"),
    ] {
        let labels = selector(&Bench::default(), spec.clone());
        assert!(labels.split(' ').any(|one| one == label), "{spec} gave {labels}");
    }
}

#[test]
fn models_of_the_host_and_optional_features_need_no_label() {
    let spec = json!({ "domain": { "cpu": { "model": "host-passthrough", "features": [{ "name": "x", "policy": "disable" }] } } });
    assert_eq!(selector(&Bench::default(), spec), "kubevirt.io/schedulable=true");
}

#[test]
fn the_instance_wins_over_the_cluster() {
    let bench = Bench::configured(&json!({
        "cpuModel": "Penryn",
        "developerConfiguration": { "nodeSelectors": { "zone": "a", "disk": "fast" } },
    }));
    let labels = selector(&bench, json!({ "nodeSelector": { "zone": "b", "kubevirt.io/schedulable": "false" } }));
    assert_eq!(labels, "cpu-model.node.kubevirt.io/Penryn=true disk=fast kubevirt.io/schedulable=true zone=b");
}

#[test]
fn enlightenments_are_looked_for_where_the_gate_is_on() {
    let spec =
        json!({ "domain": { "features": { "hyperv": { "synic": {}, "ipi": { "enabled": false }, "evmcs": {} } } } });
    assert_eq!(selector(&Bench::default(), spec.clone()), "kubevirt.io/schedulable=true");
    assert_eq!(
        selector(&Bench::gates(&["HypervStrictCheck"]), spec),
        "cpu-feature.node.kubevirt.io/vmx=true cpu-vendor.node.kubevirt.io/Intel=true \
         hyperv.node.kubevirt.io/synic=true kubevirt.io/schedulable=true"
    );
}

#[test]
fn every_alternative_keeps_away_from_obsolete_models() {
    let term = |key: &str| json!({ "matchExpressions": [{ "key": key, "operator": "Exists" }] });
    let required = json!({ "nodeSelectorTerms": [term("a"), term("b"), {}] });
    let own = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": required } });
    let vmi = vmi(json!({ "affinity": own }));
    let affinity = serde_json::to_value(affinity(&Bench::default().input(&vmi))).unwrap();
    let terms = &affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    for index in 0..2 {
        assert_eq!(terms[index]["matchExpressions"][1]["key"], "node-labeller.kubevirt.io/obsolete-host-model");
    }
    assert_eq!(terms[2], json!({}), "a term that matches no node still matches none");
}

#[test]
fn a_named_model_has_no_such_rule() {
    let vmi = vmi(json!({ "domain": { "cpu": { "model": "Nehalem" } } }));
    assert_eq!(affinity(&Bench::default().input(&vmi)), None);
}

#[test]
fn a_token_is_there_only_for_the_guest() {
    let bench = Bench::default();
    let plain = vmi(json!({ "serviceAccountName": "robot" }));
    let plain = spec(&bench.input(&plain));
    assert_eq!(
        (plain.service_account_name.as_deref(), plain.automount_service_account_token),
        (Some("robot"), Some(false))
    );
    let shown = vmi(json!({ "volumes": [{ "name": "s", "serviceAccount": { "serviceAccountName": "guest" } }] }));
    let shown = spec(&bench.input(&shown));
    assert_eq!(
        (shown.service_account_name.as_deref(), shown.automount_service_account_token),
        (Some("guest"), Some(true))
    );
}

#[test]
fn what_the_instance_says_about_its_pod_is_passed_on() {
    let vmi = vmi(json!({
        "hostname": "web", "subdomain": "lan", "priorityClassName": "high", "schedulerName": "mine",
        "dnsPolicy": "None", "dnsConfig": { "nameservers": ["1.2.3.4"] },
        "tolerations": [{ "key": "a", "operator": "Exists" }],
        "topologySpreadConstraints": [{ "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule" }],
    }));
    let pod = serde_json::to_value(spec(&Bench::default().input(&vmi))).unwrap();
    for (field, value) in [
        ("hostname", json!("web")),
        ("subdomain", json!("lan")),
        ("priorityClassName", json!("high")),
        ("schedulerName", json!("mine")),
        ("dnsPolicy", json!("None")),
        ("dnsConfig", json!({ "nameservers": ["1.2.3.4"] })),
        ("tolerations", json!([{ "key": "a", "operator": "Exists" }])),
    ] {
        assert_eq!(pod[field], value, "{field}");
    }
    assert_eq!(pod["topologySpreadConstraints"][0]["topologyKey"], "zone");
}
