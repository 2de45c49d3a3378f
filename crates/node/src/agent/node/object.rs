//! The Node object.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Map, Value, json};

use super::machine::{Machine, Pressure};
use crate::agent::Settings;

/// What is told of a node.
pub(super) struct Described<'a> {
    pub(super) settings: &'a Settings,
    pub(super) machine: &'a Machine,
    pub(super) pressure: Pressure,
    /// By resource: all, and those that may be used.
    pub(super) devices: &'a BTreeMap<String, (usize, usize)>,
    /// The node as it is now, for the times of its conditions.
    pub(super) known: Option<&'a Node>,
    pub(super) now: Timestamp,
}

/// The whole object.
pub(super) fn object(described: &Described<'_>) -> Value {
    let Described { settings, machine, devices, .. } = described;
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let mut labels: BTreeMap<&str, &str> = [
        ("kubernetes.io/hostname", settings.node.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", architecture),
    ]
    .into();
    labels.extend(settings.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    let amounts = |own: &super::Amounts, of: fn(&(usize, usize)) -> usize| -> Map<String, Value> {
        let own = own.iter().map(|(name, amount)| (name.clone(), json!(amount.to_string())));
        own.chain(devices.iter().map(|(name, counts)| (name.clone(), json!(of(counts).to_string())))).collect()
    };
    let addresses = settings.addresses.iter().map(|ip| json!({ "type": "InternalIP", "address": ip.to_string() }));
    let addresses: Vec<Value> = addresses.chain([json!({ "type": "Hostname", "address": settings.node })]).collect();
    json!({
        "metadata": { "name": settings.node, "labels": labels },
        "status": {
            "capacity": amounts(&machine.capacity, |counts| counts.0),
            "allocatable": amounts(&machine.allocatable, |counts| counts.1),
            "addresses": addresses,
            "conditions": conditions(described),
            "nodeInfo": {
                "architecture": architecture,
                "operatingSystem": "linux",
                "kubeletVersion": format!("v1.36.0-orlop.{}", env!("CARGO_PKG_VERSION")),
                "containerRuntimeVersion": format!("{}://{}", settings.runtime.name(), settings.runtime.version()),
                "kernelVersion": machine.kernel,
                "osImage": machine.os,
                "machineID": machine.machine_id,
                "systemUUID": machine.system_uuid,
                "bootID": machine.boot_id,
                "kubeProxyVersion": "",
            },
        },
    })
}

fn conditions(described: &Described<'_>) -> Vec<Value> {
    let pressure = described.pressure;
    let condition = |kind: &str, truth: bool, reason: &str, message: &str| {
        let status = if truth { "True" } else { "False" };
        let known = described.known.and_then(|node| node.status.as_ref());
        let known = known.iter().flat_map(|status| status.conditions.iter().flatten());
        let mut same = known.filter(|one| one.type_ == kind && one.status == status);
        let since = same.next().and_then(|one| one.last_transition_time.clone()).unwrap_or(Time(described.now));
        json!({
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": Time(described.now),
            "lastTransitionTime": since,
        })
    };
    let short = |kind: &str, is: bool, yes: &str, no: &str, what: &str| {
        let message = if is { format!("the node is low on {what}") } else { format!("the node has sufficient {what}") };
        condition(kind, is, if is { yes } else { no }, &message)
    };
    let disk = format!("disk space at {}", described.settings.root.display());
    vec![
        short(
            "MemoryPressure",
            pressure.memory,
            "KubeletHasInsufficientMemory",
            "KubeletHasSufficientMemory",
            "memory",
        ),
        short("DiskPressure", pressure.disk, "KubeletHasDiskPressure", "KubeletHasNoDiskPressure", &disk),
        short("PIDPressure", pressure.processes, "KubeletHasInsufficientPID", "KubeletHasSufficientPID", "process IDs"),
        condition("Ready", true, "KubeletReady", "the node agent is running"),
    ]
}

/// A status but for what changes with every look.
pub(super) fn without_times(status: &Value) -> Value {
    let mut status = status.clone();
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        if let Some(condition) = condition.as_object_mut() {
            condition.remove("lastHeartbeatTime");
            condition.remove("lastTransitionTime");
        }
    }
    status
}

/// Whether the API has the conditions and amounts that the node tells: another may have given it up.
pub(super) fn is_as_told(node: &Node, status: &Value) -> bool {
    let told = |kind: &str| {
        let conditions = status["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().find(|one| one["type"] == kind).and_then(|one| one["status"].as_str())
    };
    let known = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let conditions = known.into_iter().all(|one| told(&one.type_).is_none_or(|status| status == one.status));
    let has_all = node.status.as_ref().is_some_and(|status| {
        let count = status.conditions.iter().flatten().filter(|one| told(&one.type_).is_some()).count();
        count == 4 && status.allocatable.is_some()
    });
    conditions && has_all
}
