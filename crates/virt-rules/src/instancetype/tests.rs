//! Every field of both specs, one by one, and what holds for all of them.

mod tables;

use std::collections::BTreeSet;

use api::instancetype::VirtualMachineInstancetype;
use api::preference::VirtualMachinePreference;
use api::testing::{Optional, values};
use json_patch::merge;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use tables::{ELSEWHERE, LIKES, SIZES};

/// An instance with one device of each kind, all of them bare.
fn bare() -> Value {
    json!({
        "metadata": { "name": "v" },
        "spec": {
            "domain": { "devices": {
                "disks": [{ "name": "d", "disk": { "bus": "virtio" } }, { "name": "c", "cdrom": {} }, { "name": "l", "lun": {} }, { "name": "o" }],
                "interfaces": [{ "name": "default" }, { "name": "other" }],
                "inputs": [{ "name": "i", "type": "" }],
                "gpus": [{ "name": "g" }],
                "sound": { "name": "s" },
            } },
            "networks": [{ "name": "default", "pod": {} }, { "name": "other", "multus": { "networkName": "n" } }],
        },
    })
}

fn small() -> Value {
    json!({ "cpu": { "guest": 2 }, "memory": { "guest": "1Gi" } })
}

fn applied(vmi: &Value, instancetype: Option<&Value>, preference: Option<&Value>) -> Result<Value, Conflicts> {
    let mut vmi: VirtualMachineInstance = serde_json::from_value(vmi.clone()).unwrap();
    let instancetype = instancetype.map(|spec| serde_json::from_value(spec.clone()).unwrap());
    let preference = preference.map(|spec| serde_json::from_value(spec.clone()).unwrap());
    let before = vmi.clone();
    let result = apply(&mut vmi, instancetype.as_ref(), preference.as_ref());
    if result.is_err() {
        assert_eq!(vmi, before, "a conflict must change nothing");
    }
    result.map(|()| serde_json::to_value(vmi).unwrap())
}

/// `{"a": {"b": value}}` of `a.b`.
fn nested(path: &str, value: &Value) -> Value {
    path.rsplit('.').fold(value.clone(), |inner, key| json!({ key: inner }))
}

fn parse(json: &str) -> Value {
    serde_json::from_str(json).unwrap()
}

/// The fields of a spec by the paths of these tests: those of `groups` are looked into.
fn fields(schema: &Value, groups: &[&str]) -> BTreeSet<String> {
    let mut fields = BTreeSet::new();
    for (name, inner) in schema["properties"].as_object().unwrap() {
        if !groups.contains(&name.as_str()) {
            fields.insert(name.clone());
            continue;
        }
        for (inner_name, deepest) in inner["properties"].as_object().unwrap() {
            if inner_name == "preferredHyperv" {
                let names = deepest["properties"].as_object().unwrap().keys();
                fields.extend(names.map(|deepest| format!("{name}.{inner_name}.{deepest}")));
            } else {
                fields.insert(format!("{name}.{inner_name}"));
            }
        }
    }
    fields
}

#[test]
fn every_field_of_an_instancetype_is_applied_and_guarded() {
    let schema = api::schema::structural::<VirtualMachineInstancetype>();
    let known = SIZES.iter().map(|(field, ..)| (*field).to_owned()).collect();
    assert_eq!(fields(&schema["properties"]["spec"], &["cpu", "ioThreads", "memory"]), known);
    let mut template = bare();
    template["spec"]["domain"]["devices"]["gpus"] = json!([]);
    for (field, value, pointer, expected, taken) in SIZES {
        let mut instancetype = small();
        merge(&mut instancetype, &nested(field, &parse(value)));
        let sized = applied(&template, Some(&instancetype), None).unwrap();
        assert_eq!(sized.pointer(pointer), Some(&parse(expected)), "{field}");
        if taken.is_empty() {
            continue;
        }
        let mut set = template.clone();
        let path = taken.strip_prefix("spec.template.").unwrap();
        merge(&mut set, &nested(path, &parse(expected)));
        let conflicts = applied(&set, Some(&instancetype), None).unwrap_err();
        assert!(conflicts.0.iter().any(|conflict| conflict.path() == *taken), "{field}: {conflicts}");
    }
}

#[test]
fn all_conflicts_are_told_at_once() {
    let mut template = bare();
    merge(
        &mut template,
        &json!({ "metadata": { "annotations": { "a": "mine", "same": "same" } }, "spec": { "domain": {
            "cpu": { "cores": 2, "threads": 2, "dedicatedCpuPlacement": false },
            "resources": { "requests": { "cpu": "1" }, "limits": { "memory": "1Gi" } },
        } } }),
    );
    let mut instancetype = small();
    instancetype["annotations"] = json!({ "a": "theirs", "same": "same" });
    instancetype["cpu"]["dedicatedCPUPlacement"] = json!(true);
    let conflicts = applied(&template, Some(&instancetype), None).unwrap_err();
    let paths: Vec<_> = conflicts.0.iter().map(Conflict::path).collect();
    assert_eq!(
        paths,
        [
            "spec.template.spec.domain.resources.requests.cpu",
            "spec.template.spec.domain.cpu.cores",
            "spec.template.spec.domain.cpu.threads",
            "spec.template.spec.domain.cpu.dedicatedCpuPlacement",
            "spec.template.spec.domain.resources.limits.memory",
            "spec.template.metadata.annotations[a]",
        ]
    );
    assert!(conflicts.to_string().starts_with("spec.template.spec.domain.resources.requests.cpu: the instancetype"));
}

#[test]
fn what_says_nothing_is_no_conflict() {
    let mut template = bare();
    merge(
        &mut template,
        &json!({ "spec": { "nodeSelector": {}, "schedulerName": "", "domain": {
            "cpu": { "cores": 0, "model": "", "isolateEmulatorThread": false },
            "devices": { "gpus": [], "hostDevices": [] },
        } } }),
    );
    let mut instancetype = small();
    merge(
        &mut instancetype,
        &json!({ "cpu": { "model": "Nehalem", "isolateEmulatorThread": false }, "nodeSelector": { "a": "b" },
            "schedulerName": "mine", "gpus": [{ "name": "x" }], "hostDevices": [{ "name": "x" }] }),
    );
    let sized = applied(&template, Some(&instancetype), None).unwrap();
    assert_eq!(sized["spec"]["domain"]["cpu"]["model"], "Nehalem");
}

#[test]
fn every_field_of_a_preference_fills_in_what_is_open() {
    let schema = api::schema::structural::<VirtualMachinePreference>();
    let groups = ["clock", "cpu", "devices", "features", "firmware", "machine", "requirements", "volumes"];
    let all = fields(&schema["properties"]["spec"], &groups);
    let hyperv: Vec<&String> = all.iter().filter(|field| field.starts_with("features.preferredHyperv.")).collect();
    let known = LIKES.iter().map(|(field, ..)| *field).chain(ELSEWHERE.iter().copied()).map(str::to_owned);
    assert_eq!(all, known.chain(hyperv.iter().map(ToString::to_string)).collect());
    for (field, value, pointer, expected) in LIKES {
        let filled = applied(&bare(), None, Some(&nested(field, &parse(value)))).unwrap();
        let expected = parse(if expected.is_empty() { value } else { expected });
        assert_eq!(filled.pointer(pointer), Some(&expected), "{field}");
    }
    for field in hyperv {
        let on = json!({ "enabled": true });
        let filled = applied(&bare(), None, Some(&nested(field, &on))).unwrap();
        let name = field.rsplit('.').next().unwrap();
        assert_eq!(filled["spec"]["domain"]["features"]["hyperv"][name], on, "{field}");
        let mut through = bare();
        merge(&mut through, &nested("spec.domain.features.hypervPassthrough.enabled", &json!(true)));
        assert_eq!(
            applied(&through, None, Some(&nested(field, &on))).unwrap()["spec"]["domain"]["features"].get("hyperv"),
            None
        );
    }
}

#[test]
fn firmware_is_chosen_once() {
    let firmware = |template: &str, preference: &str| {
        let mut vmi = bare();
        merge(&mut vmi, &nested("spec.domain.firmware.bootloader", &parse(template)));
        let filled = applied(&vmi, None, Some(&nested("firmware", &parse(preference)))).unwrap();
        filled["spec"]["domain"]["firmware"]["bootloader"].to_string()
    };
    assert_eq!(
        firmware("{}", r#"{"preferredUseBios":true,"preferredUseBiosSerial":true}"#),
        r#"{"bios":{"useSerial":true}}"#
    );
    assert_eq!(
        firmware("{}", r#"{"preferredUseEfi":true,"preferredUseSecureBoot":false}"#),
        r#"{"efi":{"secureBoot":false}}"#
    );
    assert_eq!(firmware("{}", r#"{"preferredEfi":{},"preferredUseSecureBoot":true}"#), r#"{"efi":{}}"#);
    assert_eq!(firmware(r#"{"bios":{}}"#, r#"{"preferredEfi":{},"preferredUseEfi":true}"#), r#"{"bios":{}}"#);
    assert_eq!(firmware(r#"{"efi":{}}"#, r#"{"preferredUseBios":true}"#), r#"{"efi":{}}"#);
}

#[test]
fn masquerade_is_for_open_interfaces_on_the_pods_network() {
    let preference = nested("devices.preferredInterfaceMasquerade", &json!({}));
    let filled = applied(&bare(), None, Some(&preference)).unwrap();
    assert_eq!(
        filled["spec"]["domain"]["devices"]["interfaces"],
        json!([{ "name": "default", "masquerade": {} }, { "name": "other" }])
    );
    let mut bound = bare();
    bound["spec"]["domain"]["devices"]["interfaces"][0]["bridge"] = json!({});
    assert_eq!(applied(&bound, None, Some(&preference)).unwrap(), bound);
}

#[test]
fn a_cpu_feature_of_the_vm_wins_over_the_preferred_one() {
    let mut vmi = bare();
    merge(&mut vmi, &nested("spec.domain.cpu.features", &json!([{ "name": "vmx", "policy": "disable" }])));
    let preference = nested("cpu.preferredCPUFeatures", &json!([{ "name": "vmx" }, { "name": "pcid" }]));
    let filled = applied(&vmi, None, Some(&preference)).unwrap();
    let wanted = json!([{ "name": "vmx", "policy": "disable" }, { "name": "pcid" }]);
    assert_eq!(filled["spec"]["domain"]["cpu"]["features"], wanted);
}

#[test]
fn a_storage_class_goes_to_data_volumes_without_one() {
    let template = |spec: Value| serde_json::from_value(json!({ "spec": spec })).unwrap();
    let mut templates = vec![
        template(json!({ "pvc": {} })),
        template(json!({ "storage": { "storageClassName": "mine" } })),
        template(json!({ "storage": {} })),
    ];
    let preference = nested("volumes.preferredStorageClassName", &json!("fast"));
    storage_class(&mut templates, &serde_json::from_value(preference).unwrap());
    let json = serde_json::to_value(&templates).unwrap();
    assert_eq!(json[0]["spec"]["pvc"]["storageClassName"], "fast");
    assert_eq!(json[1]["spec"]["storage"]["storageClassName"], "mine");
    assert_eq!(json[2]["spec"]["storage"]["storageClassName"], "fast");
}

#[test]
fn a_preferred_model_reaches_what_nobody_listed() {
    let vmi = json!({ "metadata": { "name": "v" }, "spec": { "domain": { "devices": {} }, "volumes": [{ "name": "root" }] } });
    let mut vmi: VirtualMachineInstance = serde_json::from_value(vmi).unwrap();
    let preference = json!({ "devices": {
        "preferredDiskBus": "scsi", "preferredInterfaceModel": "e1000e",
        "preferredAutoattachInputDevice": true, "preferredInputType": "tablet",
    } });
    let preference = serde_json::from_value(preference).unwrap();
    let instancetype = serde_json::from_value(small()).unwrap();
    expand(&mut vmi, &ClusterConfig::default(), Some(&instancetype), Some(&preference)).unwrap();
    let devices = serde_json::to_value(&vmi.spec.domain.devices).unwrap();
    assert_eq!(devices["disks"], json!([{ "name": "root", "disk": { "bus": "scsi" } }]));
    assert_eq!(devices["interfaces"], json!([{ "name": "default", "masquerade": {}, "model": "e1000e" }]));
    assert_eq!(devices["inputs"], json!([{ "name": "default-0", "type": "tablet" }]));
    let before = vmi.clone();
    assert!(expand(&mut vmi, &ClusterConfig::default(), Some(&instancetype), None).is_err());
    assert_eq!(vmi, before, "a conflict must change nothing");
}

/// Whether everything that `before` says stands unchanged in `after`; an empty text says nothing.
fn kept(before: &Value, after: &Value) -> bool {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            before.iter().all(|(key, value)| after.get(key).is_some_and(|after| kept(value, after)))
        }
        (Value::Array(before), Value::Array(after)) => {
            before.len() <= after.len() && before.iter().zip(after).all(|(before, after)| kept(before, after))
        }
        (Value::String(before), _) if before.is_empty() => true,
        (before, after) => before == after,
    }
}

fn instances() -> BoxedStrategy<Value> {
    let schema = api::schema::structural::<VirtualMachineInstance>();
    let spec = values(&schema["properties"]["spec"], 5, Optional::Sometimes);
    spec.prop_map(|spec| json!({ "metadata": { "name": "v" }, "spec": spec })).boxed()
}

fn preferences() -> BoxedStrategy<Value> {
    let schema = api::schema::structural::<VirtualMachinePreference>();
    let spec = &schema["properties"]["spec"];
    prop_oneof![values(spec, 6, Optional::Sometimes), values(spec, 6, Optional::Always)].boxed()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: testkit::soak::cases(96), ..ProptestConfig::default() })]

    #[test]
    fn a_preference_changes_nothing_that_was_set(vmi in instances(), preference in preferences()) {
        let vmi: VirtualMachineInstance = serde_json::from_value(vmi).unwrap();
        let before = serde_json::to_value(&vmi).unwrap();
        let after = applied(&before, None, Some(&preference)).unwrap();
        prop_assert!(kept(&before, &after), "{before}\nbecame\n{after}");
    }

    #[test]
    fn a_preference_applied_twice_changes_nothing_more(vmi in instances(), preference in preferences()) {
        let once = applied(&vmi, None, Some(&preference)).unwrap();
        prop_assert_eq!(applied(&once, None, Some(&preference)).unwrap(), once);
    }

    #[test]
    fn an_instancetype_applied_twice_is_refused(vmi in instances(), preference in preferences()) {
        if let Ok(once) = applied(&vmi, Some(&small()), Some(&preference)) {
            prop_assert!(applied(&once, Some(&small()), Some(&preference)).is_err());
        }
    }
}
