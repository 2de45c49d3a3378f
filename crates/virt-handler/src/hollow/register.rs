//! The node as virtual machines see it: what it can run, which devices it has, and when it was last heard of.

use std::time::Duration;

use api::names::{annotation, label};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use manager::writing::whole_second;
use serde_json::{Map, Value, json};

/// As KubeVirt's handlers have it; a node that is silent for five minutes is lost.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(60);
/// How much later a heartbeat may come, so that not all come at once.
pub(super) const JITTER: f64 = 0.2;

/// What device plugins offer on every node.
const DEVICES: [&str; 5] = [
    "devices.kubevirt.io/kvm",
    "devices.kubevirt.io/tun",
    "devices.kubevirt.io/vhost-net",
    "devices.kubevirt.io/vhost-vsock",
    "devices.kubevirt.io/pr-helper",
];
/// So many guests may use a device.
const SLOTS: &str = "1k";

const MACHINES: [&str; 4] = ["q35", "pc-q35-rhel9.6.0", "pc-q35-10.0", "virt"];
const MODELS: [&str; 16] = [
    "Broadwell",
    "Cascadelake-Server",
    "EPYC",
    "EPYC-Milan",
    "EPYC-Rome",
    "Haswell",
    "Icelake-Server",
    "IvyBridge",
    "Nehalem",
    "Opteron_G3",
    "Penryn",
    "SandyBridge",
    "Skylake-Client",
    "Skylake-Server",
    "Westmere",
    "qemu64",
];
const FEATURES: [&str; 8] = ["aes", "apic", "avx", "avx2", "pcid", "svm", "vmx", "x2apic"];
const ENLIGHTENMENTS: [&str; 9] =
    ["frequencies", "ipi", "reenlightenment", "reset", "runtime", "synic", "synictimer", "tlbflush", "vpindex"];

/// Labels that launcher pods select nodes by, and a heartbeat. No node encrypts its guests' memory.
pub(super) fn metadata(now: Timestamp) -> Value {
    let plain = [label::SCHEDULABLE, label::REALTIME, "cpumanager"].map(str::to_owned);
    let prefixed =
        |prefix: &'static str, names: &'static [&'static str]| names.iter().map(move |name| format!("{prefix}{name}"));
    let keys = plain
        .into_iter()
        .chain(prefixed(label::MACHINE_TYPE_PREFIX, &MACHINES))
        .chain(prefixed(label::CPU_MODEL_PREFIX, &MODELS))
        .chain(prefixed(label::CPU_FEATURE_PREFIX, &FEATURES))
        .chain(prefixed(label::HYPERV_PREFIX, &ENLIGHTENMENTS))
        .chain(prefixed(label::CPU_VENDOR_PREFIX, &["Intel"]));
    let labels: Map<String, Value> = keys.map(|key| (key, json!("true"))).collect();
    json!({
        "metadata": {
            "labels": labels,
            "annotations": { annotation::HEARTBEAT: whole_second(now).0.to_string() },
        },
    })
}

/// The devices, if the node does not have them all. What else it has is its agent's.
pub(super) fn missing_devices(node: &Node) -> Option<Value> {
    let status = node.status.as_ref();
    let amounts = [status.and_then(|one| one.capacity.as_ref()), status.and_then(|one| one.allocatable.as_ref())];
    let slots = Quantity(SLOTS.to_owned());
    let has = |name: &str| amounts.iter().all(|amounts| amounts.is_some_and(|all| all.get(name) == Some(&slots)));
    if DEVICES.iter().all(|name| has(name)) {
        return None;
    }
    let devices: Map<String, Value> = DEVICES.iter().map(|name| ((*name).to_owned(), json!(SLOTS))).collect();
    Some(json!({ "status": { "capacity": devices, "allocatable": devices } }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_is_a_time_of_whole_seconds() {
        let now: Timestamp = "2026-07-01T10:00:00.75Z".parse().unwrap();
        let written = metadata(now);
        assert_eq!(written["metadata"]["annotations"]["kubevirt.io/heartbeat"], "2026-07-01T10:00:00Z");
        assert_eq!(written["metadata"]["labels"]["kubevirt.io/schedulable"], "true");
    }

    #[test]
    fn devices_are_written_until_they_are_there() {
        let node = |amounts: &Value| {
            let status = json!({ "status": { "capacity": amounts, "allocatable": amounts } });
            serde_json::from_value::<Node>(status).unwrap()
        };
        let patch = missing_devices(&node(&json!({ "cpu": "1" }))).unwrap();
        assert_eq!(patch["status"]["allocatable"]["devices.kubevirt.io/kvm"], "1k");
        assert_eq!(patch["status"]["allocatable"]["cpu"], Value::Null);
        assert_eq!(missing_devices(&node(&patch["status"]["capacity"])), None);
    }
}
