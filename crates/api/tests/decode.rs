//! What a user reads who got a manifest wrong: the field's path, what was expected, what was there.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use api::decode::{DecodeError, manifest, object};
use api::kubevirt::KubeVirt;
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use proptest::prelude::*;
use serde_json::{Value, json};

/// What is said about an instance with this spec.
#[expect(clippy::needless_pass_by_value, reason = "callers write the spec in place")]
fn refusal(spec: Value) -> String {
    let json = json!({ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "spec": spec });
    object::<VirtualMachineInstance>(json).expect_err("the manifest is wrong").to_string()
}

#[test]
fn a_wrong_type_is_named_with_its_path() {
    let domain = |cpu: Value| json!({ "domain": { "devices": {}, "cpu": cpu } });
    assert_eq!(
        refusal(domain(json!({ "cores": "two" }))),
        r#"spec.domain.cpu.cores: expected a whole number from 0 to 4294967295, got the string "two""#
    );
    assert_eq!(
        refusal(domain(json!({ "cores": -1 }))),
        "spec.domain.cpu.cores: expected a whole number from 0 to 4294967295, got the number -1"
    );
    assert_eq!(
        refusal(domain(json!({ "dedicatedCpuPlacement": "yes" }))),
        r#"spec.domain.cpu.dedicatedCpuPlacement: expected true or false, got the string "yes""#
    );
    assert_eq!(
        refusal(domain(json!({ "features": [{ "name": "vmx" }, { "name": 1 }] }))),
        "spec.domain.cpu.features[1].name: expected a string, got the number 1"
    );
    assert_eq!(refusal(domain(json!(4))), "spec.domain.cpu: expected an object, got the number 4");
    assert_eq!(
        refusal(json!({ "domain": { "devices": { "disks": {} } } })),
        "spec.domain.devices.disks: expected a list, got an object"
    );
    assert_eq!(
        refusal(json!({ "domain": { "devices": {} }, "nodeSelector": ["ssd"] })),
        "spec.nodeSelector: expected an object, got a list"
    );
}

#[test]
fn a_value_outside_a_closed_set_is_named_with_the_set() {
    assert_eq!(
        refusal(json!({ "domain": { "devices": {}, "rebootPolicy": "Maybe" } })),
        r#"spec.domain.rebootPolicy: expected Reboot or Terminate, got "Maybe""#
    );
    let kubevirt = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
        "spec": { "configuration": { "tlsConfiguration": { "minTLSVersion": "SSL3" } } },
    });
    assert_eq!(
        object::<KubeVirt>(kubevirt).unwrap_err().to_string(),
        "spec.configuration.tlsConfiguration.minTLSVersion: expected one of VersionTLS10, VersionTLS11, VersionTLS12, \
         VersionTLS13, got \"SSL3\""
    );
}

#[test]
fn a_malformed_quantity_or_duration_is_named() {
    assert_eq!(
        refusal(json!({ "domain": { "devices": {}, "memory": { "guest": "1 GB" } } })),
        r#"spec.domain.memory.guest: expected a quantity such as 500m, 2 or 1.5Gi, got the string "1 GB""#
    );
    assert_eq!(
        refusal(json!({ "domain": { "devices": {}, "resources": { "requests": { "memory": 1.5 } } } })),
        "spec.domain.resources.requests.memory: expected a quantity such as 500m, 2 or 1.5Gi, got the number 1.5"
    );
    let kubevirt = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
        "spec": { "workloadUpdateStrategy": { "batchEvictionInterval": "soon" } },
    });
    assert_eq!(
        object::<KubeVirt>(kubevirt).unwrap_err().to_string(),
        "spec.workloadUpdateStrategy.batchEvictionInterval: expected a duration such as 1h30m, 90s or 500ms, \
         got the string \"soon\""
    );
}

#[test]
fn a_malformed_time_is_named() {
    let status = json!({ "phaseTransitionTimestamps": [{ "phaseTransitionTimestamp": "yesterday" }] });
    let json = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "spec": { "domain": { "devices": {} } }, "status": status,
    });
    let error = object::<VirtualMachineInstance>(json).unwrap_err().to_string();
    assert!(
        error.starts_with("status.phaseTransitionTimestamps[0].phaseTransitionTimestamp: expected a time such as"),
        "{error}"
    );
}

#[test]
fn a_missing_field_is_named_with_where_it_belongs() {
    assert_eq!(refusal(json!({ "domain": {} })), "spec.domain: the field devices is required");
    assert_eq!(
        refusal(json!({ "domain": { "devices": { "disks": [{}] } } })),
        "spec.domain.devices.disks[0]: the field name is required"
    );
}

#[test]
fn a_phase_from_the_future_does_not_fail_the_object() {
    let json = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "spec": { "domain": { "devices": {} }, "evictionStrategy": "Teleport" },
        "status": { "phase": "Dreaming" },
    });
    let decoded = object::<VirtualMachineInstance>(json.clone()).unwrap().object;
    assert_eq!(decoded.phase().as_str(), "Dreaming");
    assert_eq!(serde_json::to_value(decoded).unwrap()["status"], json["status"]);
}

#[test]
fn unknown_fields_are_listed_by_path() {
    let json = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "spec": { "domain": { "devices": { "disks": [{ "name": "a", "buss": "virtio" }] }, "cpus": 2 } },
    });
    let mut unknown = object::<VirtualMachineInstance>(json).unwrap().unknown;
    unknown.sort();
    assert_eq!(unknown, ["spec.domain.cpus", "spec.domain.devices.disks[0].buss"]);
}

#[test]
fn another_kind_is_refused_by_name() {
    let vm = "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\n";
    assert_eq!(
        manifest::<VirtualMachineInstance>(vm).unwrap_err().to_string(),
        "kind: expected VirtualMachineInstance, got VirtualMachine"
    );
    let other_group = "apiVersion: example.org/v1\nkind: VirtualMachine\n";
    assert_eq!(
        manifest::<VirtualMachine>(other_group).unwrap_err().to_string(),
        "apiVersion: expected a version of kubevirt.io, such as kubevirt.io/v1, got example.org/v1"
    );
    assert_eq!(
        manifest::<VirtualMachine>("spec: {}\n").unwrap_err().to_string(),
        "kind: expected VirtualMachine, got nothing"
    );
    assert!(manifest::<VirtualMachine>("just words").is_err());
}

#[test]
fn an_older_version_is_taken_and_kept() {
    let text = "apiVersion: kubevirt.io/v1alpha3\nkind: VirtualMachine\nspec: {template: {}}\n";
    let vm = manifest::<VirtualMachine>(text).unwrap().object;
    assert_eq!(vm.api_version.as_deref(), Some("kubevirt.io/v1alpha3"));
}

#[test]
fn broken_yaml_is_a_syntax_error_with_a_line() {
    let error = manifest::<VirtualMachine>("apiVersion: kubevirt.io/v1\nkind: [\n").unwrap_err();
    assert!(matches!(error, DecodeError::Syntax(_)), "{error}");
    assert!(error.to_string().contains("line"), "{error}");
}

#[test]
fn an_oversized_manifest_is_refused_before_it_is_read() {
    let error = manifest::<VirtualMachine>(&"#".repeat(4 << 20)).unwrap_err();
    assert!(matches!(error, DecodeError::Size(_)), "{error}");
}

proptest! {
    #[test]
    fn no_text_makes_the_decoder_panic(text in "\\PC{0,200}") {
        let _ = manifest::<VirtualMachineInstance>(&text);
    }
}
