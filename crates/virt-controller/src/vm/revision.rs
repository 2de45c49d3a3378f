//! What a VM was started from: its specification as a ControllerRevision, and what a change since then means.

use api::vm::{VirtualMachine, VirtualMachineSpec};
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::json;

/// The name of the revision of a start: another start of the same specification is the same revision.
#[must_use]
pub fn name(uid: &str, generation: i64) -> String {
    format!("revision-start-vm-{uid}-{generation}")
}

/// The revision to be kept with a start of this VM as it is now.
#[must_use]
pub fn of_start(vm: &VirtualMachine) -> ControllerRevision {
    let metadata = &vm.metadata;
    let (uid, generation) = (metadata.uid.clone().unwrap_or_default(), metadata.generation.unwrap_or(0));
    let owner = OwnerReference {
        api_version: "kubevirt.io/v1".to_owned(),
        kind: "VirtualMachine".to_owned(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(name(&uid, generation)),
            namespace: metadata.namespace.clone(),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        revision: generation,
        data: Some(RawExtension(json!({ "spec": vm.spec }))),
    }
}

/// The specification that a revision holds, if it is one of ours.
#[must_use]
pub fn specification(revision: &ControllerRevision) -> Option<VirtualMachineSpec> {
    let RawExtension(data) = revision.data.as_ref()?;
    serde_json::from_value(data.get("spec")?.clone()).ok()
}

/// Whether the running instance lacks something that the VM asks for by now: only a restart brings it.
///
/// Nothing of a running guest is changed from the outside yet, so every difference of the template counts; but for a
/// firmware UUID that only spells out the one the instance has.
#[must_use]
pub fn needs_restart(
    started: &VirtualMachineSpec,
    current: &VirtualMachineSpec,
    instance: &VirtualMachineInstance,
) -> bool {
    let mut wanted = current.template.spec.clone();
    let has = instance.spec.domain.firmware.as_ref().and_then(|firmware| firmware.uuid.clone());
    let before = started.template.spec.as_ref().and_then(|spec| spec.domain.firmware.clone());
    if let Some(spec) = &mut wanted {
        let uuid = spec.domain.firmware.as_ref().and_then(|firmware| firmware.uuid.clone());
        if uuid.is_some() && uuid == has {
            let old = before.as_ref().and_then(|firmware| firmware.uuid.clone());
            if let Some(firmware) = &mut spec.domain.firmware {
                firmware.uuid = old;
            }
            // An empty firmware says nothing that none does not say.
            if before.is_none() && spec.domain.firmware.as_ref() == Some(&Default::default()) {
                spec.domain.firmware = None;
            }
        }
    }
    wanted != started.template.spec
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn vm(spec: &Value) -> VirtualMachine {
        let metadata = json!({ "name": "v", "namespace": "n", "uid": "u", "generation": 3 });
        let template = json!({ "spec": spec });
        serde_json::from_value(
            json!({ "metadata": metadata, "spec": { "runStrategy": "Always", "template": template } }),
        )
        .unwrap()
    }

    fn domain(more: &Value) -> Value {
        let mut domain = json!({ "devices": {} });
        for (key, value) in more.as_object().unwrap() {
            domain[key] = value.clone();
        }
        json!({ "domain": domain })
    }

    fn instance(spec: &Value) -> VirtualMachineInstance {
        serde_json::from_value(json!({ "metadata": { "name": "v" }, "spec": spec })).unwrap()
    }

    #[test]
    fn a_revision_keeps_what_the_vm_was_started_from() {
        let vm = vm(&domain(&json!({ "cpu": { "cores": 2 } })));
        let revision = of_start(&vm);
        assert_eq!(revision.metadata.name.as_deref(), Some("revision-start-vm-u-3"));
        assert_eq!(revision.revision, 3);
        assert_eq!(specification(&revision), Some(vm.spec));
        assert_eq!(specification(&ControllerRevision::default()), None);
    }

    #[test]
    fn a_change_of_the_template_needs_a_restart_and_of_nothing_else() {
        let (two, four) = (domain(&json!({ "cpu": { "cores": 2 } })), domain(&json!({ "cpu": { "cores": 4 } })));
        let (started, running) = (vm(&two).spec, instance(&two));
        assert!(!needs_restart(&started, &started, &running));
        assert!(needs_restart(&started, &vm(&four).spec, &running));
        let mut halted = started.clone();
        halted.run_strategy = Some(api::vm::VirtualMachineRunStrategy::Manual);
        assert!(!needs_restart(&started, &halted, &running));
    }

    #[test]
    fn a_uuid_that_the_instance_has_already_is_no_change() {
        let (plain, with) = (domain(&json!({})), domain(&json!({ "firmware": { "uuid": "x" } })));
        let started = vm(&plain).spec;
        assert!(!needs_restart(&started, &vm(&with).spec, &instance(&with)));
        assert!(needs_restart(&started, &vm(&with).spec, &instance(&domain(&json!({ "firmware": { "uuid": "y" } })))));
        let serial = domain(&json!({ "firmware": { "uuid": "x", "serial": "s" } }));
        assert!(needs_restart(&started, &vm(&serial).spec, &instance(&with)));
    }
}
