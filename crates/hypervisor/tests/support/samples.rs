//! Sample manifests.

use serde_json::Value;

/// The instance in a manifest: itself, or the template of a VM.
pub(crate) fn instance(mut document: Value) -> Option<Value> {
    match document["kind"].as_str()? {
        "VirtualMachineInstance" => {}
        "VirtualMachine" => document["spec"] = document["spec"]["template"]["spec"].take(),
        _ => return None,
    }
    document["kind"] = "VirtualMachineInstance".into();
    Some(document)
}
