//! What a VM was started from: its specification as a ControllerRevision, and what a change since then means.

use api::names::annotation;
use api::owner::controller_reference;
use api::vm::{InstancetypeStatusRef, VirtualMachine, VirtualMachineSpec};
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::json;

use super::instancetypes::Chosen;

/// The name of the revision of a start: another start of the same specification is the same revision.
#[must_use]
pub fn name(uid: &str, generation: i64) -> String {
    format!("{}{generation}", prefix(uid))
}

/// What the names of all revisions of a VM's starts begin with.
#[must_use]
pub(super) fn prefix(uid: &str) -> String {
    format!("revision-start-vm-{uid}-")
}

/// The revision to be kept with a start of this VM as it is now, bound to the instancetype and preference of this start.
#[must_use]
pub fn of_start(vm: &VirtualMachine, chosen: &Chosen) -> ControllerRevision {
    let metadata = &vm.metadata;
    let (uid, generation) = (metadata.uid.clone().unwrap_or_default(), metadata.generation.unwrap_or(0));
    let kept = |status: Option<&InstancetypeStatusRef>| status?.controller_revision_ref.as_ref()?.name.clone();
    let mut spec = vm.spec.clone();
    if let Some(matcher) = &mut spec.instancetype {
        matcher.revision_name = kept(chosen.instancetype_ref.as_ref()).or(matcher.revision_name.take());
    }
    if let Some(matcher) = &mut spec.preference {
        matcher.revision_name = kept(chosen.preference_ref.as_ref()).or(matcher.revision_name.take());
    }
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(name(&uid, generation)),
            namespace: metadata.namespace.clone(),
            owner_references: controller_reference(vm).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        revision: generation,
        data: Some(RawExtension(json!({ "spec": spec }))),
    }
}

/// The specification that a revision holds, if it is one of ours.
#[must_use]
pub fn specification(revision: &ControllerRevision) -> Option<VirtualMachineSpec> {
    let RawExtension(data) = revision.data.as_ref()?;
    serde_json::from_value(data.get("spec")?.clone()).ok()
}

/// Whether an instance was made of the VM as it is, or was told that the VM has changed without it.
pub(super) fn has_heard_of(vm: &VirtualMachine, instance: &VirtualMachineInstance) -> bool {
    let generation = vm.metadata.generation.unwrap_or(0).to_string();
    let annotations = instance.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(annotation::VM_GENERATION)) == Some(&generation)
}

/// Whether an instance was started from the revision of this name.
pub(super) fn was_started_from(instance: &VirtualMachineInstance, revision: &str) -> bool {
    let status = instance.status.as_ref();
    status.and_then(|status| status.virtual_machine_revision_name.as_deref()) == Some(revision)
}

/// Whether the running instance lacks something that the VM asks for by now: only a restart brings it.
///
/// Nothing of a running guest is changed from the outside yet, so every difference of the template counts, and another
/// instancetype or preference; but for a firmware UUID that only spells out the one the instance has.
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
    let sizes = |spec: &VirtualMachineSpec| {
        let instancetype = spec.instancetype.as_ref().map(|one| (one.kind.clone(), one.name.clone()));
        (instancetype, spec.preference.as_ref().map(|one| (one.kind.clone(), one.name.clone())))
    };
    wanted != started.template.spec || sizes(started) != sizes(current)
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
        let revision = of_start(&vm, &Chosen::default());
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
