//! The launcher pods of four VMs beside those that KubeVirt's own virt-controller made of them.
//!
//! They are equal but for what `golden/deviations.yaml` lists: one path, one reason each. A difference that is not
//! listed fails the test, and so does an entry that no difference needs.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use api::networks::InterfaceMasquerade;
use api::vmi::VirtualMachineInstance;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use virt_controller::render::{Input, Launcher, Namespace, render};
use virt_rules::config::ClusterConfig;

const VMS: [(&str, &str, &str); 4] = [
    ("testvm", include_str!("golden/testvm.vmi.yaml"), include_str!("golden/testvm.pod.yaml")),
    ("vm-cirros", include_str!("golden/vm-cirros.vmi.yaml"), include_str!("golden/vm-cirros.pod.yaml")),
    (
        "vmi-kernel-boot",
        include_str!("golden/vmi-kernel-boot.vmi.yaml"),
        include_str!("golden/vmi-kernel-boot.pod.yaml"),
    ),
    ("vmi-masquerade", include_str!("golden/vmi-masquerade.vmi.yaml"), include_str!("golden/vmi-masquerade.pod.yaml")),
];

/// A difference on purpose.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Deviation {
    /// Where; everything below it is covered too. `*` stands for anything.
    path: String,
    reason: String,
}

#[test]
fn pods_differ_from_kubevirts_only_where_the_list_says() {
    let deviations: Vec<Deviation> = serde_saphyr::from_str(include_str!("golden/deviations.yaml")).unwrap();
    let mut needed = BTreeSet::new();
    let mut unexplained = Vec::new();
    for (vm, sent, expected) in VMS {
        let expected: Value = serde_saphyr::from_str(expected).unwrap();
        for (path, kubevirt, orlop) in differences(&expected, &rendered(sent)) {
            let entry = deviations.iter().position(|deviation| covers(&deviation.path, &path));
            match entry {
                Some(entry) => _ = needed.insert(entry),
                None => unexplained.push(format!("{vm}: {path}: KubeVirt {kubevirt}, Orlop {orlop}")),
            }
        }
    }
    assert!(unexplained.is_empty(), "differences that nobody explains:\n{}", unexplained.join("\n"));
    for (index, deviation) in deviations.iter().enumerate() {
        assert!(needed.contains(&index), "no difference needs the entry {}", deviation.path);
        assert!(deviation.reason.len() > 10, "{} has no reason", deviation.path);
    }
}

/// The list says that these differ; here is by how much.
#[test]
fn the_memory_of_the_golden_pods_is_what_the_parts_sum_up_to() {
    let saved = (25 + 100 + 25 + 40 - 16) * (1_i128 << 20);
    for (vm, sent, expected) in VMS {
        let expected: Value = serde_saphyr::from_str(expected).unwrap();
        let memory = |pod: &Value| {
            let text =
                pod.pointer("/spec/containers/0/resources/requests/memory").unwrap().as_str().unwrap().to_owned();
            text.parse::<api::quantity::Amount>().unwrap().units()
        };
        assert_eq!(memory(&expected) - memory(&rendered(sent)), saved, "{vm}");
    }
}

/// As the recording was made: without virt-api, so that instances run as root, on a cluster with image volumes.
fn rendered(sent: &str) -> Value {
    let mut vmi: VirtualMachineInstance = api::decode::manifest(sent).unwrap().object;
    // Bridges are refused here; but for what masquerade tells Istio, the pods are the same.
    let mut is_bridged = false;
    for interface in vmi.spec.domain.devices.interfaces.iter_mut().flatten() {
        if interface.bridge.take().is_some() {
            interface.masquerade = Some(InterfaceMasquerade {});
            is_bridged = true;
        }
    }
    let kubevirt = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {},
        "spec": { "configuration": { "developerConfiguration": { "featureGates": ["Root"] } } },
    });
    let config = ClusterConfig::new(Some(&serde_json::from_value(kubevirt).unwrap()));
    let launcher = Launcher::new("virt-launcher:x");
    let (claims, namespace) = (BTreeMap::new(), Namespace::default());
    let input = Input {
        vmi: &vmi,
        config: &config,
        launcher: &launcher,
        claims: &claims,
        namespace: &namespace,
        image_volumes: true,
    };
    let mut pod = render(&input).unwrap();
    if is_bridged {
        pod.metadata.annotations.iter_mut().for_each(|all| all.retain(|name, _| !name.contains("istio.io/")));
    }
    serde_json::to_value(pod).unwrap()
}

fn differences(kubevirt: &Value, orlop: &Value) -> Vec<(String, String, String)> {
    let (kubevirt, orlop) = (leaves(kubevirt), leaves(orlop));
    let paths: BTreeSet<&String> = kubevirt.keys().chain(orlop.keys()).collect();
    let text = |leaf: Option<&Value>| leaf.map_or("nothing".to_owned(), ToString::to_string);
    paths
        .into_iter()
        .filter(|path| kubevirt.get(*path) != orlop.get(*path))
        .map(|path| (path.clone(), text(kubevirt.get(path)), text(orlop.get(path))))
        .collect()
}

/// Every value by its path; members of lists by their name, so that an insertion is one difference and not many.
fn leaves(value: &Value) -> BTreeMap<String, Value> {
    fn walk(path: String, value: &Value, leaves: &mut BTreeMap<String, Value>) {
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                for (key, field) in fields {
                    let plain = key.chars().all(|letter| letter.is_ascii_alphanumeric());
                    let dot = if path.is_empty() { "" } else { "." };
                    let below = if plain { format!("{path}{dot}{key}") } else { format!("{path}[{key}]") };
                    walk(below, field, leaves);
                }
            }
            Value::Array(items) if path.ends_with(".args") => {
                for (key, item) in flags(items) {
                    walk(format!("{path}[{key}]"), &item, leaves);
                }
            }
            Value::Array(items) if !items.is_empty() => {
                for (index, item) in items.iter().enumerate() {
                    let key = ["mountPath", "name", "conditionType"].iter().find_map(|key| item.get(key)?.as_str());
                    walk(format!("{path}[{}]", key.map_or(index.to_string(), str::to_owned)), item, leaves);
                }
            }
            leaf => _ = leaves.insert(path, leaf.clone()),
        }
    }
    let mut leaves = BTreeMap::new();
    walk(String::new(), value, &mut leaves);
    leaves
}

/// `["--a", "1", "--b"]` as `{"--a": "1", "--b": true}`.
fn flags(arguments: &[Value]) -> Map<String, Value> {
    let mut flags = Map::new();
    let mut last: Option<String> = None;
    for argument in arguments.iter().map(|argument| argument.as_str().unwrap()) {
        match last.take() {
            Some(flag) if !argument.starts_with("--") => _ = flags.insert(flag, argument.into()),
            _ if argument.starts_with("--") => {
                flags.insert(argument.to_owned(), true.into());
                last = Some(argument.to_owned());
            }
            _ => panic!("{argument} belongs to no flag"),
        }
    }
    flags
}

/// Whether a path is the pattern's or below it.
fn covers(pattern: &str, path: &str) -> bool {
    let mut rest = path;
    for (index, part) in pattern.split('*').enumerate() {
        let found = if index == 0 { rest.starts_with(part).then_some(0) } else { rest.find(part) };
        let Some(found) = found else { return false };
        rest = &rest[found + part.len()..];
    }
    rest.is_empty() || rest.starts_with(['.', '['])
}
