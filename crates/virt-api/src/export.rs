//! Exports: of what they may be, and that they never change.

use api::export::VirtualMachineExport as Export;

use crate::denial::Problems;
use crate::object;
use crate::request::{Request, Response};
use crate::snapshot::IMMUTABLE;

pub(crate) fn admit(request: &Request<'_>) -> Response {
    object::unchanging(request, |one: &Export| &one.spec, IMMUTABLE, || create(request))
}

fn create(request: &Request<'_>) -> Response {
    let export: Export = match object::read(request.object) {
        Ok(export) => export,
        Err(denial) => return Response::denied(denial),
    };
    let mut problems = Problems::default();
    check_source(&export, &mut problems);
    if export.spec.ttl_duration.as_ref().is_some_and(|ttl| ttl.nanoseconds() <= 0) {
        problems.invalid("spec.ttlDuration", "must be positive; leave it out for two hours");
    }
    if export.spec.token_secret_ref.as_deref() == Some("") {
        problems.invalid("spec.tokenSecretRef", "must name a secret; leave it out for one that is made");
    }
    object::decided(request.object, &export, &export, problems)
}

/// In KubeVirt's words.
fn check_source(export: &Export, problems: &mut Problems) {
    let source = &export.spec.source;
    let group = source.api_group.as_deref().unwrap_or_default();
    let (name, expected, refusal) = match source.kind.as_str() {
        "PersistentVolumeClaim" => ("PVC", "", "PVC API group must be missing or blank"),
        "VirtualMachine" => ("Virtual Machine", "kubevirt.io", "VM API group must be kubevirt.io"),
        "VirtualMachineSnapshot" => {
            ("VMSnapshot", "snapshot.kubevirt.io", "VMSnapshot API group must be snapshot.kubevirt.io")
        }
        _ => {
            let message = "invalid kind; use PersistentVolumeClaim, VirtualMachine or VirtualMachineSnapshot";
            return problems.invalid("spec.source.kind", message);
        }
    };
    if source.name.is_empty() {
        problems.invalid("spec.source.name", format!("{name} name must not be empty"));
    }
    if group != expected {
        problems.invalid("spec.source.apiGroup", refusal);
    }
}
