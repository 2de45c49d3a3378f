//! Snapshots of VMs: what they may be of, and that they never change.

use api::snapshot::VirtualMachineSnapshot as Snapshot;
use k8s_openapi::api::core::v1::TypedLocalObjectReference;
use virt_rules::config::Gate;

use crate::denial::{Denial, Problems};
use crate::object;
use crate::request::{Known, Request, Response};

/// In KubeVirt's words.
pub(crate) const IMMUTABLE: &str = "spec in immutable after creation";

pub(crate) fn admit(request: &Request<'_>, known: &dyn Known) -> Response {
    object::unchanging(request, |one: &Snapshot| &one.spec, IMMUTABLE, || create(request, known))
}

/// The refusal of what the cluster's owner has switched off.
pub(crate) fn gate(known: &dyn Known) -> Option<Response> {
    let refusal = || Response::denied(Denial::forbidden("snapshot feature gate not enabled"));
    (!known.config().enabled(Gate::Snapshot)).then(refusal)
}

/// Only VMs are snapshotted and restored.
pub(crate) fn check_machine(reference: &TypedLocalObjectReference, field: &str, problems: &mut Problems) {
    match reference.api_group.as_deref() {
        None => problems.not_found(format!("{field}.apiGroup"), "missing apiGroup"),
        Some("kubevirt.io") if reference.kind == "VirtualMachine" => {}
        Some("kubevirt.io") => problems.invalid(format!("{field}.kind"), "invalid kind"),
        Some(_) => problems.invalid(format!("{field}.apiGroup"), "invalid apiGroup"),
    }
    if reference.name.is_empty() {
        problems.required(format!("{field}.name"), "names the VirtualMachine");
    }
}

fn create(request: &Request<'_>, known: &dyn Known) -> Response {
    let snapshot: Snapshot = match object::read(request.object) {
        Ok(snapshot) => snapshot,
        Err(denial) => return Response::denied(denial),
    };
    if let Some(refused) = gate(known) {
        return refused;
    }
    let mut problems = Problems::default();
    check_machine(&snapshot.spec.source, "spec.source", &mut problems);
    if snapshot.spec.failure_deadline.as_ref().is_some_and(|limit| limit.to_std().is_none()) {
        problems.invalid("spec.failureDeadline", "must not be negative; use 0s for no deadline");
    }
    object::decided(request.object, &snapshot, &snapshot, problems)
}
