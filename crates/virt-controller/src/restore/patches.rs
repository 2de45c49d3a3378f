//! JSON patches that a restore's user, or a clone, applies to the VM.

use api::vm::VirtualMachine;
use json_patch::{AddOperation, Patch, PatchOperation};

/// Why a VM could not be patched.
#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    /// A text is not an operation.
    #[error("{text:?} is not a JSON patch operation")]
    Operation {
        /// As it came.
        text: String,
        source: serde_json::Error,
    },
    /// An operation does not fit the VM.
    #[error("apply {text:?}")]
    Apply {
        /// As it came.
        text: String,
        source: json_patch::PatchError,
    },
    /// What came out is not a VM.
    #[error("the patched object is not a VirtualMachine")]
    Machine(#[source] serde_json::Error),
}

/// Applies one operation after the other. As in KubeVirt, what is not there can be replaced.
///
/// # Errors
/// When a text is not an operation, does not fit, or leaves something that is not a VM.
pub fn apply(vm: &VirtualMachine, patches: &[String]) -> Result<VirtualMachine, PatchError> {
    if patches.is_empty() {
        return Ok(vm.clone());
    }
    let mut document = serde_json::to_value(vm).map_err(PatchError::Machine)?;
    for text in patches {
        let operation: PatchOperation =
            serde_json::from_str(text).map_err(|source| PatchError::Operation { text: text.clone(), source })?;
        let operation = match operation {
            PatchOperation::Replace(replace) if document.pointer(replace.path.as_str()).is_none() => {
                PatchOperation::Add(AddOperation { path: replace.path, value: replace.value })
            }
            other => other,
        };
        json_patch::patch(&mut document, &Patch(vec![operation]))
            .map_err(|source| PatchError::Apply { text: text.clone(), source })?;
    }
    serde_json::from_value(document).map_err(PatchError::Machine)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn vm() -> VirtualMachine {
        serde_json::from_value(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": { "name": "v", "labels": { "a": "b" } },
            "spec": { "runStrategy": "Halted", "template": { "spec": { "domain": { "devices": {} } } } },
        }))
        .unwrap()
    }

    #[test]
    fn what_is_not_there_can_be_replaced_but_not_removed() {
        let patches = [r#"{"op":"replace","path":"/spec/template/spec/hostname","value":"h"}"#.to_owned()];
        let patched = apply(&vm(), &patches).unwrap();
        assert_eq!(patched.spec.template.spec.unwrap().hostname.as_deref(), Some("h"));
        assert!(apply(&vm(), &[r#"{"op":"remove","path":"/metadata/labels/c"}"#.to_owned()]).is_err());
    }

    proptest! {
        #[test]
        fn whatever_the_text_there_is_an_answer(texts in prop::collection::vec(".{0,40}", 0..4)) {
            let _ = apply(&vm(), &texts);
        }
    }
}
