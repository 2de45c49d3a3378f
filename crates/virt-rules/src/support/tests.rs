use std::collections::BTreeSet;

use api::names::annotation;
use serde_json::{Value, json};

use super::*;

fn vmi(spec: &Value) -> VirtualMachineInstance {
    let mut whole = json!({ "domain": { "devices": {} } });
    json_patch::merge(&mut whole, spec);
    serde_json::from_value(json!({ "metadata": { "name": "v" }, "spec": whole })).unwrap()
}

fn config(gates: &[&str]) -> ClusterConfig {
    let configuration = json!({ "developerConfiguration": { "featureGates": gates } });
    let kubevirt = json!({ "metadata": { "name": "kubevirt" }, "spec": { "configuration": configuration } });
    ClusterConfig::new(Some(&serde_json::from_value(kubevirt).unwrap()))
}

fn refused(spec: &Value) -> Vec<String> {
    refusals(&vmi(spec), &ClusterConfig::default()).iter().map(|refusal| refusal.path().to_owned()).collect()
}

/// The fields of a schema that are neither listed nor below one that is listed as a whole.
fn missing(schema: &Value, path: &str, listed: &BTreeSet<&str>, found: &mut Vec<String>) {
    let is_listed = listed.contains(path);
    let goes_on = listed.iter().any(|entry| entry.strip_prefix(path).is_some_and(|rest| rest.starts_with(['.', '['])));
    match (schema["properties"].as_object(), &schema["items"]) {
        (Some(properties), _) if goes_on => {
            properties.iter().for_each(|(name, inner)| missing(inner, &format!("{path}.{name}"), listed, found));
        }
        (None, items) if goes_on => missing(items, &format!("{path}[]"), listed, found),
        _ if !is_listed => found.push(path.to_owned()),
        _ => {}
    }
}

#[test]
fn every_field_of_the_schema_has_a_place() {
    let table = table();
    let listed: BTreeSet<&str> = table.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(listed.len(), table.len(), "no field is placed twice");
    let schema = api::schema::structural::<VirtualMachineInstance>();
    let mut found = Vec::new();
    missing(&schema["properties"]["spec"], "spec", &listed, &mut found);
    assert_eq!(found, [""; 0]);
}

/// The types say which fields there are; this says that their names are spelled as in the schema.
#[test]
fn every_place_is_a_field_of_the_schema() {
    let schema = api::schema::structural::<VirtualMachineInstance>();
    for Entry { path, .. } in table() {
        if path.starts_with("metadata.") {
            continue;
        }
        let pointer: String =
            path.split('.').map(|part| format!("/properties/{}", part.replace("[]", "/items"))).collect();
        assert!(schema.pointer(&pointer).is_some(), "{path}");
    }
}

#[test]
fn what_nobody_does_is_refused_by_its_field() {
    let volume = |source: Value| {
        let mut volume = source;
        volume["name"] = "v".into();
        json!({ "volumes": [volume] })
    };
    let devices = |devices: Value| json!({ "domain": { "devices": devices } });
    for (spec, path) in [
        (
            volume(json!({ "dataVolume": { "name": "fs", "hotpluggable": true } })),
            "spec.volumes[0].dataVolume.hotpluggable",
        ),
        (volume(json!({ "memoryDump": { "claimName": "fs" } })), "spec.volumes[0].memoryDump"),
        (volume(json!({ "sysprep": {} })), "spec.volumes[0].sysprep"),
        (json!({ "utilityVolumes": [{ "name": "v", "claimName": "fs" }] }), "spec.utilityVolumes"),
        (json!({ "resourceClaims": [{ "name": "v" }] }), "spec.resourceClaims"),
        (devices(json!({ "tpm": {} })), "spec.domain.devices.tpm"),
        (devices(json!({ "gpus": [{ "name": "g", "claimName": "c" }] })), "spec.domain.devices.gpus"),
        (devices(json!({ "filesystems": [{ "name": "f", "virtiofs": {} }] })), "spec.domain.devices.filesystems"),
        (devices(json!({ "interfaces": [{ "name": "n", "slirp": {} }] })), "spec.domain.devices.interfaces[0].slirp"),
        (json!({ "networks": [{ "name": "n", "multus": { "networkName": "m" } }] }), "spec.networks[0].multus"),
    ] {
        let refusals = refusals(&vmi(&spec), &config(&["HostDevices", "DownwardMetrics", "VSOCK"]));
        let [refusal] = refusals.as_slice() else { panic!("{spec}: {refusals:?}") };
        assert!(refusal.to_string().starts_with(&format!("{path}: is not supported yet; ")), "{refusal}");
    }
}

#[test]
fn a_label_that_no_cd_can_have_is_refused() {
    for source in ["configMap", "secret"] {
        let with = |label: &str| json!({ "volumes": [{ "name": "v", source: { "volumeLabel": label } }] });
        for label in ["", "a b", &"x".repeat(32)] {
            assert_eq!(refused(&with(label)), [""; 0], "{label:?}");
        }
        for label in ["\u{e9}", "a\nb", &"x".repeat(33)] {
            assert_eq!(refused(&with(label)), [format!("spec.volumes[0].{source}.volumeLabel")], "{label:?}");
        }
    }
}

#[test]
fn a_place_in_the_boot_order_is_one_that_qemu_can_count() {
    let with = |order: i64| {
        let devices = json!({
            "disks": [{ "name": "d", "disk": {}, "bootOrder": order }],
            "interfaces": [{ "name": "i", "masquerade": {}, "bootOrder": 1 }],
        });
        refused(&json!({ "domain": { "devices": devices } }))
    };
    let at = "spec.domain.devices.disks[0].bootOrder";
    assert_eq!(with(i64::from(i32::MAX)), [""; 0]);
    for order in [0, i64::from(i32::MAX) + 1, i64::from(u32::MAX)] {
        assert_eq!(with(order), [at]);
    }
}

#[test]
fn a_switch_that_is_off_asks_for_nothing() {
    let devices = json!({ "tpm": { "enabled": false }, "useVirtioTransitional": false, "autoattachVSOCK": false });
    let features = json!({ "kvm": { "hidden": false }, "apic": {}, "smm": {} });
    let cpu = json!({ "dedicatedCpuPlacement": false });
    let clock = json!({ "timer": { "hyperv": { "present": false }, "kvm": { "present": true } } });
    let domain = json!({ "devices": devices, "features": features, "cpu": cpu, "clock": clock });
    assert_eq!(refused(&json!({ "domain": domain })), [""; 0]);
}

#[test]
fn a_value_that_nobody_can_use_is_refused_with_what_would_be_right() {
    let disk = json!({ "name": "d", "disk": { "bus": "usb" } });
    let refusals = unsupported(&vmi(&json!({ "domain": { "devices": { "disks": [disk] } } })));
    let texts: Vec<String> = refusals.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        ["spec.domain.devices.disks[0].disk.bus: \"usb\" is not supported; use one of virtio, sata, scsi"]
    );
}

#[test]
fn what_a_board_has_no_place_for_is_refused() {
    let disks = |count: usize, bus: &str| {
        let disks: Vec<Value> =
            (0..count).map(|index| json!({ "name": format!("d{index}"), "disk": { "bus": bus } })).collect();
        refused(&json!({ "domain": { "devices": { "disks": disks } } }))
    };
    assert_eq!(disks(26, "virtio"), [""; 0]);
    assert_eq!(disks(27, "virtio"), ["spec.domain.devices"]);
    assert_eq!(disks(200, "scsi"), [""; 0]);
}

#[test]
fn what_a_disk_cannot_be_with_its_volume_is_refused() {
    let pair = |disk: Value, volume: Value| {
        let (mut disk, mut volume) = (disk, volume);
        disk["name"] = "d".into();
        volume["name"] = "d".into();
        let other = json!({ "name": "other", "emptyDisk": { "capacity": "1Gi" } });
        refused(&json!({ "domain": { "devices": { "disks": [disk] } }, "volumes": [other, volume] }))
    };
    let claim = || json!({ "persistentVolumeClaim": { "claimName": "c", "readOnly": true } });
    let read_only = "spec.volumes[1].persistentVolumeClaim.readOnly";
    for disk in
        [json!({}), json!({ "disk": {} }), json!({ "disk": { "bus": "sata" } }), json!({ "disk": { "bus": "" } })]
    {
        assert_eq!(pair(disk, claim()), [read_only]);
    }
    for disk in [json!({ "disk": { "bus": "virtio" } }), json!({ "disk": { "bus": "scsi" } }), json!({ "cdrom": {} })] {
        assert_eq!(pair(disk, claim()), [""; 0]);
    }
    let io = "spec.domain.devices.disks[0].io";
    let empty = || json!({ "emptyDisk": { "capacity": "1Gi" } });
    let files = || json!({ "cloudInitNoCloud": { "userData": "u" } });
    let native = |cache: Option<&str>| json!({ "disk": { "bus": "virtio" }, "io": "native", "cache": cache });
    assert_eq!(pair(native(Some("writeback")), empty()), [io]);
    assert_eq!(pair(native(Some("writethrough")), empty()), [io]);
    assert_eq!(pair(native(None), files()), [io]);
    for fine in [native(Some("none")), json!({ "disk": {}, "io": "threads", "cache": "writeback" })] {
        assert_eq!(pair(fine.clone(), files()), [""; 0]);
        assert_eq!(pair(fine, empty()), [""; 0]);
    }
    assert_eq!(pair(native(None), empty()), [""; 0], "its node knows");
}

#[test]
fn annotations_that_nobody_reads_are_refused() {
    let mut vmi = vmi(&json!({}));
    vmi.metadata.annotations = Some([(annotation::HOOK_SIDECARS.to_owned(), "[]".to_owned())].into());
    assert_eq!(unsupported(&vmi).len(), 1);
}

#[test]
fn a_bridge_is_for_those_who_have_no_pod() {
    let vmi = vmi(&json!({ "domain": { "devices": { "interfaces": [{ "name": "n", "bridge": {} }] } } }));
    assert_eq!(unsupported(&vmi), []);
    assert_eq!(refusals(&vmi, &ClusterConfig::default()).len(), 1);
}

#[test]
fn what_is_switched_off_names_its_gate() {
    let host_disk = vmi(&json!({ "volumes": [{ "name": "v", "hostDisk": { "path": "/a/b", "type": "Disk" } }] }));
    let wanted = Refusal::Gated { path: "spec.volumes[0].hostDisk".to_owned(), gate: "HostDisk" };
    assert_eq!(refusals(&host_disk, &ClusterConfig::default()), [wanted]);
    assert_eq!(refusals(&host_disk, &config(&["HostDisk"])), []);
    assert_eq!(unsupported(&host_disk), []);
}
