use serde_json::{Value, json};

use super::*;
use crate::render::testing::{Bench, vmi};

fn spec(interfaces: &Value, networks: &Value) -> VirtualMachineInstance {
    vmi(json!({ "domain": { "devices": { "interfaces": interfaces } }, "networks": networks }))
}

fn annotated(vmi: &VirtualMachineInstance) -> BTreeMap<String, String> {
    annotations(&Bench::default().input(vmi)).unwrap()
}

#[test]
fn a_mesh_knows_the_bridge_of_a_masqueraded_guest() {
    let pod = json!([{ "name": "a", "pod": {} }]);
    let masquerade = annotated(&spec(&json!([{ "name": "a", "masquerade": {} }]), &pod));
    assert_eq!(masquerade[ISTIO[0]], "k6t-eth0");
    assert_eq!(masquerade[ISTIO[1]], "k6t-eth0");
    assert!(annotated(&spec(&json!([{ "name": "a", "bridge": {} }]), &pod)).is_empty());
}

#[test]
fn secondary_networks_are_said_to_multus() {
    let vmi = spec(
        &json!([
            { "name": "red", "bridge": {}, "macAddress": "02:00:00:00:00:01" },
            { "name": "far", "bridge": {} },
            { "name": "gone", "bridge": {}, "state": "absent" },
        ]),
        &json!([
            { "name": "red", "multus": { "networkName": "red-net" } },
            { "name": "far", "multus": { "networkName": "other/far-net" } },
            { "name": "gone", "multus": { "networkName": "gone-net" } },
            { "name": "unused", "multus": { "networkName": "unused-net" } },
        ]),
    );
    let text = &annotated(&vmi)[MULTUS_NETWORKS];
    assert_eq!(
        serde_json::from_str::<Value>(text).unwrap(),
        json!([
            { "name": "red-net", "namespace": "ns", "mac": "02:00:00:00:00:01", "interface": "podb1f51a511f1" },
            { "name": "far-net", "namespace": "other", "interface": name::pod_interface("far") },
        ])
    );
}

#[test]
fn a_secondary_network_may_be_the_default_one() {
    let network = json!([{ "name": "a", "multus": { "networkName": "flat", "default": true } }]);
    let annotations = annotated(&spec(&json!([{ "name": "a", "bridge": {} }]), &network));
    assert_eq!(annotations[MULTUS_DEFAULT], "flat");
    assert!(!annotations.contains_key(MULTUS_NETWORKS));
}

#[test]
fn a_binding_plugin_brings_its_own_network() {
    let plugin = json!({ "networkAttachmentDefinition": "infra/snug" });
    let bench = Bench::configured(&json!({ "network": { "binding": { "snug": plugin } } }));
    let interface = |name: &str| json!([{ "name": "a", "binding": { "name": name } }]);
    let vmi = spec(&interface("snug"), &json!([{ "name": "a", "pod": {} }]));
    let text = &annotations(&bench.input(&vmi)).unwrap()[MULTUS_NETWORKS];
    let selection = &serde_json::from_str::<Value>(text).unwrap()[0];
    assert_eq!((&selection["namespace"], &selection["name"]), (&json!("infra"), &json!("snug")));
    assert_eq!(selection["cni-args"], json!({ "logicNetworkName": "a" }));
    assert!(selection.get("interface").is_none(), "the plugin names its own");
    let error = annotations(&bench.input(&spec(&interface("other"), &json!([])))).unwrap_err();
    assert!(error.to_string().starts_with("spec.domain.devices.interfaces[0].binding.name: "), "{error}");
}

#[test]
fn ports_are_named_once() {
    let http = json!({ "name": "http", "port": 80 });
    let vmi = spec(&json!([{ "name": "a", "ports": [http, http, { "port": 53, "protocol": "UDP" }] }]), &json!([]));
    let ports = serde_json::to_value(ports(&vmi).unwrap()).unwrap();
    assert_eq!(
        ports,
        json!([
            { "containerPort": 80, "name": "http", "protocol": "TCP" },
            { "containerPort": 53, "protocol": "UDP" },
        ])
    );
    assert!(super::ports(&spec(&json!([{ "name": "a", "ports": [{ "port": 70000 }] }]), &json!([]))).is_err());
}
