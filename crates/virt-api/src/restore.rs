//! Restores: their target, one at a time, and what they may change of the VM.

use api::restore::{VirtualMachineRestore as Restore, VolumeOwnershipPolicy, VolumeRestorePolicy};
use serde_json::Value;

use crate::denial::Problems;
use crate::object;
use crate::request::{Known, Request, Response};
use crate::snapshot::{IMMUTABLE, check_machine, gate};

pub(crate) fn admit(request: &Request<'_>, known: &dyn Known) -> Response {
    object::unchanging(request, |one: &Restore| &one.spec, IMMUTABLE, || create(request, known))
}

fn create(request: &Request<'_>, known: &dyn Known) -> Response {
    let restore: Restore = match object::read(request.object) {
        Ok(restore) => restore,
        Err(denial) => return Response::denied(denial),
    };
    if let Some(refused) = gate(known) {
        return refused;
    }
    let mut problems = Problems::default();
    let spec = &restore.spec;
    check_machine(&spec.target, "spec.target", &mut problems);
    if spec.virtual_machine_snapshot_name.is_empty() {
        problems.required("spec.virtualMachineSnapshotName", "names the VirtualMachineSnapshot");
    }
    check_patches(spec.patches.as_deref().unwrap_or_default(), &mut problems);
    check_volumes(&restore, &mut problems);
    if let Some(busy) = known.restore_of(request.namespace, &spec.target.name) {
        problems.invalid("spec.target", format!("VirtualMachineRestore {busy:?} in progress"));
    }
    object::decided(request.object, &restore, &restore, problems)
}

/// A restore changes what a VM is, not which one it is.
fn check_patches(patches: &[String], problems: &mut Problems) {
    for (index, text) in patches.iter().enumerate() {
        let field = format!("spec.patches[{index}]");
        let Ok(Value::Object(operation)) = serde_json::from_str::<Value>(text) else {
            problems.invalid(field, format!("{text:?} is not a JSON patch operation; use one such as {EXAMPLE}"));
            continue;
        };
        let path = operation.get("path").and_then(Value::as_str).unwrap_or_default();
        let allowed = ["/spec/", "/metadata/labels/", "/metadata/annotations/"];
        if !allowed.iter().any(|prefix| path.starts_with(prefix)) {
            problems.invalid(field, format!("patching is valid only for elements under /spec/ only: {path:?}"));
        }
    }
}

const EXAMPLE: &str = r#"{"op":"add","path":"/spec/template/spec/hostname","value":"db"}"#;

fn check_volumes(restore: &Restore, problems: &mut Problems) {
    for (index, one) in restore.spec.volume_restore_overrides.iter().flatten().enumerate() {
        let field = format!("spec.volumeRestoreOverrides[{index}]");
        if one.volume_name.as_deref().is_none_or(str::is_empty) {
            problems.invalid(format!("{field}.volumeName"), "must provide a volume name");
        }
        let names_nothing = one.restore_name.as_deref().is_none_or(str::is_empty);
        if names_nothing && one.annotations.is_none() && one.labels.is_none() {
            problems.invalid(field, "must provide at least one overriden field");
        }
    }
    if let Some(VolumeRestorePolicy::Other(policy)) = &restore.spec.volume_restore_policy {
        let message = format!("volume restore policy {policy:?} doesn't exist");
        problems.invalid("spec.volumeRestorePolicy", message);
    }
    if let Some(VolumeOwnershipPolicy::Other(policy)) = &restore.spec.volume_ownership_policy {
        let message = format!("volume ownership policy {policy:?} doesn't exist");
        problems.invalid("spec.volumeOwnershipPolicy", message);
    }
}
