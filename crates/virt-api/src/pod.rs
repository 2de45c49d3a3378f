//! Evictions of the pods that guests run in: a guest is moved rather than shut down, where its instance wants that.
//!
//! | the pod | its instance | the eviction |
//! |---|---|---|
//! | is none of ours, or has ended | | goes on |
//! | holds no guest, and none comes to it | | goes on |
//! | is a launcher | has ended, or is being deleted | goes on |
//! | is a launcher | is not to be kept (`None`) | goes on |
//! | is a launcher | should be moved and cannot be | 429 |
//! | holds the guest | is marked already | 429 |
//! | awaits the guest | | 429 |
//! | holds the guest | | 429, and the instance is marked |
//! | attaches a volume | runs | 429 |
//!
//! `kubectl drain` asks again after a 429, until the pod is gone. The words are those that the descheduler knows.

use api::names::annotation;
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use virt_rules::eviction::{self, Consequence};
use virt_rules::launchers::{Launcher, Role, role};

use crate::denial::Denial;
use crate::request::{Known, Mark, Operation, Request, Response};

const LABEL: &str = "kubevirt.io";
const LAUNCHER: &str = "virt-launcher";
const ATTACHMENT: &str = "hotplug-disk";
/// On an eviction: who asks. The descheduler tells.
const REQUESTED_BY: (&str, &str) = ("requested-by", "sigs.k8s.io/descheduler");
/// The same on the instance.
const DESCHEDULER: &str = "descheduler";

pub(crate) fn admit(request: &Request<'_>, known: &dyn Known) -> Response {
    if request.subresource != "eviction" || request.operation != Operation::Create {
        return Response::allowed();
    }
    let Some(pod) = known.pod(request.namespace, request.name) else { return Response::allowed() };
    match label(&pod) {
        Some(LAUNCHER) => launcher(request, &pod, known),
        Some(ATTACHMENT) => attachment(request, &pod, known),
        _ => Response::allowed(),
    }
}

fn launcher(request: &Request<'_>, pod: &Pod, known: &dyn Known) -> Response {
    let (Some(name), false) = (instance_of(pod), has_ended(pod)) else { return Response::allowed() };
    let Some(vmi) = known.instance(request.namespace, name) else {
        let missing = format!("virtualmachineinstances.kubevirt.io {name:?} not found");
        return again(format!("kubevirt failed getting the vmi: {missing}"));
    };
    let role = role(&Launcher::of(pod), &vmi);
    if role == Role::Orphan || vmi.is_final() || vmi.is_marked_for_deletion() {
        return Response::allowed();
    }
    match eviction::consequence(&vmi, &known.config()) {
        Consequence::Ends => return Response::allowed(),
        Consequence::Stays => {
            let message = format!("VMI {name} is configured with an eviction strategy but is not live-migratable");
            return again(message);
        }
        Consequence::Moves | Consequence::IsMarked => {}
    }
    let triggered = format!("Eviction triggered evacuation of VMI \"{}/{name}\"", request.namespace);
    if eviction::marked(&vmi).is_some() {
        return again(format!("Evacuation in progress: {triggered}"));
    }
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let is_there = vmi.status.as_ref().and_then(|status| status.node_name.as_deref()) == node;
    let Some(node) = node.filter(|_| role.holds() && is_there) else {
        return again("Eviction request for target Pod");
    };
    let mark = (!is_dry(request)).then(|| mark(&vmi, node, is_descheduled(request.object)));
    Response { mark, ..again(triggered) }
}

/// What a pod attaches to a launcher goes with the launcher.
fn attachment(request: &Request<'_>, pod: &Pod, known: &dyn Known) -> Response {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    let [owner] = owners else { return Response::allowed() };
    let launcher = known.pod(request.namespace, &owner.name).filter(|pod| label(pod) == Some(LAUNCHER));
    let Some(launcher) = launcher.filter(|pod| !has_ended(pod)) else { return Response::allowed() };
    let runs = instance_of(&launcher).filter(|name| known.instance(request.namespace, name).is_some());
    let Some(vmi) = runs else { return Response::allowed() };
    let (pod, namespace) = (request.name, request.namespace);
    again(format!("cannot evict hotplug pod: {pod} associated with running vmi: {vmi} in namespace {namespace}"))
}

fn again(message: impl Into<String>) -> Response {
    Response::denied(Denial::again(message))
}

fn mark(vmi: &VirtualMachineInstance, node: &str, by_descheduler: bool) -> Mark {
    let metadata = &vmi.metadata;
    let mut patch = json!({
        "metadata": { "uid": metadata.uid, "resourceVersion": metadata.resource_version },
        "status": { "evacuationNodeName": node },
    });
    if by_descheduler {
        patch["metadata"]["annotations"] = json!({ annotation::EVICTION_SOURCE: DESCHEDULER });
    }
    Mark { instance: metadata.name.clone().unwrap_or_default(), patch }
}

/// Whether nothing is to be stored; an eviction may say so in its options, too.
fn is_dry(request: &Request<'_>) -> bool {
    let options = request.object.map(|eviction| &eviction["deleteOptions"]["dryRun"]);
    request.dry_run || options.and_then(Value::as_array).is_some_and(|asked| asked.iter().any(|one| one == "All"))
}

fn is_descheduled(eviction: Option<&Value>) -> bool {
    eviction.is_some_and(|eviction| eviction["metadata"]["annotations"][REQUESTED_BY.0] == REQUESTED_BY.1)
}

fn label(pod: &Pod) -> Option<&str> {
    pod.metadata.labels.as_ref()?.get(LABEL).map(String::as_str)
}

fn instance_of(pod: &Pod) -> Option<&str> {
    pod.metadata.annotations.as_ref()?.get(annotation::DOMAIN).map(String::as_str)
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}
