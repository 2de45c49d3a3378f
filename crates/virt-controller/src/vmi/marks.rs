//! What is said of an instance that runs, and of its launcher pod: that its node is to be left, and that its launcher is outdated.
//!
//! Admission marks an instance whose pod somebody wants to evict (`status.evacuationNodeName`), and the evacuation controller moves
//! it. The mark goes here, once the guest is elsewhere: whoever looks at the instance later should not take an old wish for a new
//! one.

use api::names::{annotation, label};
use api::vmi::VirtualMachineInstance;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use virt_rules::eviction::marked;

use super::{Target, conditions, pods};

/// The mark of an eviction goes when the guest has left that node. Without a mark, nobody has asked for anything.
pub(super) fn note_eviction(vmi: &mut VirtualMachineInstance, now: Timestamp) {
    let node = vmi.status.as_ref().and_then(|status| status.node_name.as_deref());
    let has_left = marked(vmi).is_some_and(|from| node.is_some_and(|node| node != from));
    if let Some(status) = vmi.status.as_mut().filter(|_| has_left) {
        status.evacuation_node_name = None;
    }
    let is_marked = marked(vmi).is_some();
    if let Some(annotations) = vmi.metadata.annotations.as_mut().filter(|_| !is_marked) {
        annotations.remove(annotation::EVICTION_SOURCE);
    }
    conditions::eviction_requested(vmi, is_marked, now);
}

/// Whether the launcher runs something else than launchers do that are made now.
pub(super) fn note_launcher(vmi: &mut VirtualMachineInstance, is_outdated: bool) {
    if is_outdated {
        let labels = vmi.metadata.labels.get_or_insert_default();
        labels.entry(label::OUTDATED_LAUNCHER_IMAGE.to_owned()).or_default();
    } else if let Some(labels) = &mut vmi.metadata.labels {
        labels.remove(label::OUTDATED_LAUNCHER_IMAGE);
    }
}

/// What the pod of an instance shall say, if it says something else. The descheduler counts the pods that are about to leave.
pub(super) fn of_pod(vmi: &VirtualMachineInstance, pod: &Pod) -> Option<(Target, Value)> {
    if pods::has_ended(pod) || pods::is_terminating(pod) {
        return None;
    }
    let metadata = &pod.metadata;
    let has = |key: &str| metadata.annotations.as_ref().is_some_and(|all| all.contains_key(key));
    let is_labelled = |labels: Option<&_>| {
        labels.is_some_and(|all: &std::collections::BTreeMap<_, _>| all.contains_key(label::OUTDATED_LAUNCHER_IMAGE))
    };
    let (leaves, outdated) = (marked(vmi).is_some(), is_labelled(vmi.metadata.labels.as_ref()));
    let mut patch = json!({ "metadata": { "uid": metadata.uid } });
    if leaves != has(annotation::EVICTION_IN_PROGRESS) {
        let value = leaves.then_some("true");
        patch["metadata"]["annotations"] = json!({ annotation::EVICTION_IN_PROGRESS: value });
    }
    if outdated != is_labelled(metadata.labels.as_ref()) {
        let value = outdated.then_some("");
        patch["metadata"]["labels"] = json!({ label::OUTDATED_LAUNCHER_IMAGE: value });
    }
    let says_more = patch["metadata"].as_object().is_some_and(|metadata| metadata.len() > 1);
    says_more.then(|| (pods::target(pod), patch))
}
