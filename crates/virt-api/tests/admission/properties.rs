//! What holds whatever is sent.

use proptest::prelude::*;
use serde_json::{Value, json};
use virt_api::{Requester, Response};

use crate::support::{Cluster, changed, create, merge, update, vm, vmi, write_as};

/// Parts that many instances have, in every combination: most of them are admitted.
fn sensible() -> impl Strategy<Value = Value> {
    let parts = vec![
        json!({ "spec": { "domain": { "cpu": { "cores": 2 } } } }),
        json!({ "spec": { "domain": { "cpu": { "maxSockets": 4 } } } }),
        json!({ "spec": { "domain": { "memory": null, "resources": { "requests": { "memory": "64M" } } } } }),
        json!({ "spec": { "domain": { "memory": null, "resources": { "limits": { "memory": "64M", "cpu": "2" } } } } }),
        json!({ "spec": { "domain": { "devices": { "disks": [] } } } }),
        json!({ "spec": { "domain": { "devices": { "disks": [{ "name": "root", "cdrom": {} }] } } } }),
        json!({ "spec": { "networks": null, "domain": { "devices": { "interfaces": null } } } }),
        json!({ "spec": { "domain": { "devices": { "autoattachInputDevice": true, "watchdog": { "name": "w" } } } } }),
        json!({ "spec": { "domain": { "features": { "smm": {}, "acpi": { "enabled": false } } } } }),
        json!({ "spec": { "domain": { "firmware": { "bootloader": { "efi": { "secureBoot": false } } } } } }),
        json!({ "spec": { "domain": { "machine": { "type": "" } }, "architecture": "" } }),
        json!({ "metadata": { "labels": { "kubevirt.io/size": "s" }, "finalizers": ["mine"] } }),
        json!({ "status": { "phase": "Running", "activePods": { "a": "b" } } }),
    ];
    let count = parts.len();
    proptest::sample::subsequence(parts, 0..=count).prop_map(|parts| {
        let mut whole = vmi();
        parts.iter().for_each(|part| merge(&mut whole, part));
        whole
    })
}

fn admitted(response: Response, sent: &Value) -> Option<Value> {
    response.outcome.ok().map(|changed| changed.unwrap_or_else(|| sent.clone()))
}

/// Every place in a JSON value, as a pointer.
fn places(value: &Value, at: &str, all: &mut Vec<String>) {
    all.push(at.to_owned());
    match value {
        Value::Object(map) => map.iter().for_each(|(key, inner)| places(inner, &format!("{at}/{key}"), all)),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(index, inner)| places(inner, &format!("{at}/{index}"), all));
        }
        _ => {}
    }
}

const ODD: &[&str] = &["-1", "1e400", "99999999999Ei", "0", "*", "a/b/c", "::", "/"];

fn garbage() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        Just(json!([null, {}, [[]], "x"])),
        proptest::sample::select(ODD).prop_map(Value::from),
    ]
}

fn sized(kind: &str) -> Value {
    let spec = json!({ "cpu": { "guest": 2 }, "memory": { "guest": "1Gi", "hugepages": { "pageSize": "2Mi" } } });
    json!({ "apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": kind, "metadata": { "name": "i" }, "spec": spec })
}

fn preference() -> Value {
    let cpu = json!({ "preferredCPUTopology": "spread", "spreadOptions": { "across": "CoresThreads", "ratio": 2 } });
    let mut preference = sized("VirtualMachinePreference");
    preference["spec"] = json!({ "cpu": cpu, "firmware": { "preferredUseBios": true } });
    preference
}

fn kubevirt() -> Value {
    let gates = json!({ "featureGates": ["HostDisk"], "cpuAllocationRatio": 10 });
    let network = json!({ "defaultNetworkInterface": "masquerade" });
    json!({ "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": { "name": "k" }, "spec": {
        "uninstallStrategy": "RemoveWorkloads",
        "configuration": { "developerConfiguration": gates, "network": network, "evictionStrategy": "None" },
    } })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: testkit::soak::cases(192), ..ProptestConfig::default() })]

    #[test]
    fn an_admitted_instance_is_admitted_unchanged_again(sent in sensible()) {
        let cluster = Cluster::new();
        if let Some(once) = admitted(create(&cluster, &sent), &sent) {
            prop_assert_eq!(create(&cluster, &once).outcome, Ok(None));
            prop_assert_eq!(update(&cluster, Requester::User, &once, &once).outcome, Ok(None));
        }
    }

    #[test]
    fn sensible_instances_are_admitted(sent in sensible()) {
        prop_assert_eq!(crate::support::fields(create(&Cluster::new(), &sent)), [""; 0]);
    }

    #[test]
    fn an_admitted_vm_is_admitted_unchanged_again(sent in sensible()) {
        let cluster = Cluster::new();
        let sent = changed(&vm(), &json!({ "spec": { "template": { "spec": sent["spec"] } } }));
        if let Some(once) = admitted(create(&cluster, &sent), &sent) {
            prop_assert_eq!(create(&cluster, &once).outcome, Ok(None));
        }
    }

    #[test]
    fn garbage_gets_an_answer(
        junk in prop::collection::vec((any::<prop::sample::Index>(), garbage()), 1..4),
        base in proptest::sample::select(vec![vm(), vmi(), sized("VirtualMachineInstancetype"), preference(), kubevirt()]),
    ) {
        let cluster = Cluster::new();
        let mut object = base.clone();
        for (place, value) in junk {
            let mut all = Vec::new();
            places(&object, "", &mut all);
            let chosen = place.get(&all).clone();
            if let Some(target) = object.pointer_mut(&chosen) {
                *target = value;
            }
        }
        for requester in [Requester::User, Requester::Component] {
            if let Err(denial) = write_as(&base, &cluster, requester, "", None, &object).outcome {
                prop_assert!(!denial.message.is_empty());
            }
            let all = [
                write_as(&base, &cluster, requester, "", Some(&base), &object),
                write_as(&base, &cluster, requester, "", Some(&object), &base),
                write_as(&base, &cluster, requester, "status", Some(&base), &object),
            ];
            prop_assert!(all.iter().all(|response| response.outcome.as_ref().err().is_none_or(|denial| denial.code >= 400)));
        }
    }
}
