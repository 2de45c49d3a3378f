//! What holds for the launcher pod of any instance, whatever its spec says.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use api::kubevirt::KubeVirt;
use api::names::label;
use api::quantity::Amount;
use api::testing::{Optional, values};
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use virt_controller::render::{Claim, Input, Launcher, Namespace, RenderError, overhead, render};
use virt_rules::config::ClusterConfig;
use virt_rules::support::{self, Refusal};

/// How deep optional fields are filled in at random.
const DEPTH: u32 = 9;
const UID: &str = "db6109f4-73dc-4a04-9e56-7fe0ea823806";

/// Everything that a pod follows from, owned.
#[derive(Debug)]
struct Case {
    vmi: VirtualMachineInstance,
    config: ClusterConfig,
    namespace: Namespace,
    image_volumes: bool,
}

impl Case {
    fn render(&self) -> Result<Pod, RenderError> {
        let Self { vmi, config, namespace, image_volumes } = self;
        let (launcher, claims) = (Launcher::new("launcher:1"), claims(vmi));
        render(&Input { vmi, config, launcher: &launcher, claims: &claims, namespace, image_volumes: *image_volumes })
    }
}

/// Whatever claim an instance names is there; every other one is a block device.
fn claims(vmi: &VirtualMachineInstance) -> BTreeMap<String, Claim> {
    let volumes = vmi.spec.volumes.iter().flatten();
    let names = volumes.flat_map(|volume| {
        let ephemeral = volume.ephemeral.as_ref().and_then(|source| source.persistent_volume_claim.as_ref());
        let names = [
            volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.clone()),
            volume.data_volume.as_ref().map(|source| source.name.clone()),
            ephemeral.map(|claim| claim.claim_name.clone()),
        ];
        names.into_iter().flatten()
    });
    names.enumerate().map(|(index, name)| (name, Claim { block: index % 2 == 0 })).collect()
}

/// Instances as the schema allows them. Most of those are refused for one wild field or another, so that every second
/// one is spared what is refused anyway and given volumes, resources and interfaces that make sense.
fn instances() -> impl Strategy<Value = VirtualMachineInstance> {
    let wild = values(&api::schema::structural::<VirtualMachineInstance>(), DEPTH, Optional::Sometimes);
    (wild, prop::option::of(sense())).prop_map(|(mut object, sense)| {
        object["kind"] = "VirtualMachineInstance".into();
        object["apiVersion"] = "kubevirt.io/v1".into();
        object["metadata"] = json!({ "name": "some.vm", "namespace": "ns", "uid": UID, "labels": { "a": "b" } });
        object.as_object_mut().unwrap().remove("status");
        if let Some(sense) = sense {
            soften(&mut object, sense);
        }
        serde_json::from_value(object).unwrap()
    })
}

#[derive(Clone, Debug)]
struct Sense {
    memory: Value,
    resources: Value,
    volumes: Vec<Value>,
    interfaces: Vec<Value>,
}

fn sense() -> impl Strategy<Value = Sense> {
    let memory = vec![
        json!({ "guest": "1Gi" }),
        json!({ "guest": "512M" }),
        json!({ "guest": "3Gi", "reservedOverhead": { "addedOverhead": "33M" } }),
    ];
    let resources = vec![
        json!({}),
        json!({ "requests": { "memory": "2G", "cpu": "1500m" } }),
        json!({ "limits": { "memory": "4Gi", "cpu": "50m" } }),
        json!({ "requests": { "memory": "4Gi", "cpu": "2" }, "limits": { "memory": "4Gi", "cpu": "2" } }),
        json!({ "requests": { "memory": "1Gi" }, "limits": { "memory": "4Gi" }, "overcommitGuestOverhead": true }),
        json!({ "limits": { "ephemeral-storage": "1M", "example.com/x": "3" } }),
    ];
    let volumes = vec![
        json!({ "name": "disk", "containerDisk": { "image": "demo/cirros", "imagePullSecret": "hub" } }),
        json!({ "name": "other", "containerDisk": { "image": "demo/cirros:1" } }),
        json!({ "name": "claim", "persistentVolumeClaim": { "claimName": "a" } }),
        json!({ "name": "data", "dataVolume": { "name": "b" } }),
        json!({ "name": "ephemeral", "ephemeral": { "persistentVolumeClaim": { "claimName": "c" } } }),
        json!({ "name": "seed", "cloudInitNoCloud": { "secretRef": { "name": "s" }, "networkDataSecretRef": { "name": "s" } } }),
        json!({ "name": "map", "configMap": { "name": "m" } }),
        json!({ "name": "secret", "secret": { "secretName": "s" } }),
        json!({ "name": "empty", "emptyDisk": { "capacity": "1Gi" } }),
    ];
    let interfaces = vec![
        json!({ "name": "a", "masquerade": {}, "ports": [{ "port": 80 }] }),
        json!({ "name": "b", "masquerade": {}, "model": "e1000" }),
    ];
    (select(memory), select(resources), subsequence(volumes, 0..=9), subsequence(interfaces, 0..=2))
        .prop_map(|(memory, resources, volumes, interfaces)| Sense { memory, resources, volumes, interfaces })
}

/// Puts in what makes sense, and takes out what is refused.
fn soften(object: &mut Value, sense: Sense) {
    let spec = object["spec"].as_object_mut().unwrap();
    let Sense { memory, resources, volumes, interfaces } = sense;
    spec.insert("volumes".into(), volumes.into());
    let domain = spec["domain"].as_object_mut().unwrap();
    domain.insert("memory".into(), memory);
    domain.insert("resources".into(), resources);
    let devices = domain["devices"].as_object_mut().unwrap();
    devices.remove("disks");
    devices.insert("interfaces".into(), interfaces.into());
    while let Some(refusal) = first_refusal(object) {
        take_out(object, refusal.path());
    }
}

fn first_refusal(object: &Value) -> Option<Refusal> {
    support::refusals(&serde_json::from_value(object.clone()).unwrap(), &ClusterConfig::default()).into_iter().next()
}

/// Takes out a field, or as much around it as makes the rest an instance.
fn take_out(object: &mut Value, path: &str) {
    let parts = path.replace('[', ".").replace(']', "");
    let mut parts: Vec<&str> = parts.split('.').collect();
    while let Some(last) = parts.pop() {
        let mut without = object.clone();
        let above = parts.iter().map(|part| format!("/{part}")).collect::<String>();
        match (without.pointer_mut(&above), last.parse::<usize>()) {
            (Some(Value::Array(list)), Ok(index)) => _ = list.remove(index),
            (Some(Value::Object(map)), _) => _ = map.remove(last),
            _ => continue,
        }
        if without != *object && serde_json::from_value::<VirtualMachineInstance>(without.clone()).is_ok() {
            *object = without;
            return;
        }
    }
    panic!("{path} cannot be taken out");
}

fn configurations() -> impl Strategy<Value = ClusterConfig> {
    let wild = values(&api::schema::structural::<KubeVirt>(), DEPTH, Optional::Sometimes);
    wild.prop_map(|mut object| {
        object["metadata"] = json!({});
        ClusterConfig::new(Some(&serde_json::from_value(object).unwrap()))
    })
}

fn cases() -> impl Strategy<Value = Case> {
    let config = prop_oneof![Just(ClusterConfig::default()), configurations()];
    (instances(), config, any::<[bool; 3]>()).prop_map(|(vmi, config, [cpu, memory, image_volumes])| {
        let namespace = Namespace { labels: BTreeMap::new(), quota_on_cpu_limits: cpu, quota_on_memory_limits: memory };
        Case { vmi, config, namespace, image_volumes }
    })
}

#[test]
fn any_instance_has_a_sound_pod_or_a_named_reason() {
    let config = Config { cases: testkit::soak::cases(256), failure_persistence: None, ..Config::default() };
    let rendered = std::cell::Cell::new(0);
    let outcome = TestRunner::new(config).run(&cases(), |case| {
        let first = case.render();
        prop_assert_eq!(&first, &case.render(), "the same input gave another pod");
        match first {
            Ok(pod) => {
                rendered.set(rendered.get() + 1);
                is_sound(&case, &pod)
            }
            Err(error) => is_named(&error),
        }
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    assert!(rendered.get() > 30, "only {} of 256 instances had a pod; the test shows little", rendered.get());
}

fn is_named(error: &RenderError) -> Result<(), TestCaseError> {
    let text = error.to_string();
    prop_assert!(text.starts_with("spec.") || text.starts_with("metadata."), "no field in {}", text);
    Ok(())
}

fn is_sound(case: &Case, pod: &Pod) -> Result<(), TestCaseError> {
    let labels = pod.metadata.labels.clone().unwrap_or_default();
    prop_assert_eq!(labels.get(label::APP).map(String::as_str), Some("virt-launcher"));
    prop_assert_eq!(labels.get(label::CREATED_BY).map(String::as_str), Some(UID));
    prop_assert!(api::owner::is_controlled_by(&pod.metadata, UID));
    let spec = pod.spec.as_ref().unwrap();
    let compute: Vec<&Container> = spec.containers.iter().filter(|container| container.name == "compute").collect();
    prop_assert_eq!(compute.len(), 1);
    prop_assert_eq!(&spec.containers[0].name, "compute", "the guest's container comes first");
    for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()) {
        requests_fit(container.resources.as_ref().unwrap())?;
    }
    let names: Vec<&String> = spec.volumes.iter().flatten().map(|volume| &volume.name).collect();
    prop_assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "two volumes of one name");
    let mounts = spec.containers.iter().flat_map(|container| container.volume_mounts.iter().flatten());
    for mount in mounts {
        prop_assert!(names.contains(&&mount.name), "{} is mounted and not there", mount.name);
    }
    memory_is_accounted_for(case, compute[0].resources.as_ref().unwrap())
}

fn requests_fit(resources: &ResourceRequirements) -> Result<(), TestCaseError> {
    let limits = resources.limits.clone().unwrap_or_default();
    for (name, request) in resources.requests.iter().flatten() {
        let Some(limit) = limits.get(name) else { continue };
        prop_assert!(amount(&request.0) <= amount(&limit.0), "{}: {} is above {}", name, request.0, limit.0);
    }
    Ok(())
}

/// Guest memory and overhead make the request, unless somebody overcommits or the guest is in huge pages.
fn memory_is_accounted_for(case: &Case, resources: &ResourceRequirements) -> Result<(), TestCaseError> {
    let domain = &case.vmi.spec.domain;
    let own = domain.resources.as_ref().and_then(|own| own.requests.as_ref()?.get("memory"));
    let overcommit = domain.resources.as_ref().is_some_and(|own| own.overcommit_guest_overhead == Some(true));
    let Some(memory) = &domain.memory else { return Ok(()) };
    let Some(guest) = &memory.guest else { return Ok(()) };
    let huge =
        memory.hugepages.as_ref().is_some_and(|pages| pages.page_size.as_ref().is_some_and(|size| !size.is_empty()));
    if own.is_some() || overcommit || huge || case.config.memory_overcommit() != 100 {
        return Ok(());
    }
    let request = amount(&resources.requests.as_ref().unwrap()["memory"].0);
    prop_assert_eq!(request.units(), guest.amount().units() + overhead(&case.vmi, &case.config).units());
    Ok(())
}

fn amount(text: &str) -> Amount {
    text.parse().unwrap()
}
