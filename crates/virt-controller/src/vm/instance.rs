//! The instance that a start makes.

use api::conditions::ConditionStatus;
use api::firmware::Firmware;
use api::names::{annotation, finalizer};
use api::owner::controller_reference;
use api::vm::VirtualMachine;
use api::vmi::{StartStrategy, VirtualMachineInstance};
use api::vmi_status::{
    VirtualMachineInstanceCondition, VirtualMachineInstancePhase as Phase,
    VirtualMachineInstancePhaseTransitionTimestamp as Transition, VirtualMachineInstanceStatus,
};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manager::writing::whole_second;
use uuid::Uuid;
use virt_rules::config::ClusterConfig;
use virt_rules::instancetype::{Conflicts, expand};

use super::instancetypes::Chosen;
use crate::vmi::not_running;

/// The space in which the name of a VM is its firmware's UUID; other tools know it.
const FIRMWARE: Uuid = Uuid::from_u128(0x6a1a_24a1_4061_4607_8bf4_a396_3d0c_5895);

/// The firmware UUID of a VM that names none: the same at each start.
#[must_use]
pub fn firmware_uuid(name: &str) -> Uuid {
    Uuid::new_v5(&FIRMWARE, name.as_bytes())
}

/// The instance of a VM.
///
/// # Guarantees
/// - It has the VM's name, is controlled by it, and carries the finalizers of both controllers.
/// - It is born Pending and not ready, so that nobody has to write that.
///
/// # Errors
/// When the template and the instancetype do not go together.
pub fn of(
    vm: &VirtualMachine,
    chosen: &Chosen,
    config: &ClusterConfig,
    revision: &ControllerRevision,
    paused: bool,
    now: Timestamp,
) -> Result<VirtualMachineInstance, Conflicts> {
    let template = vm.spec.template.metadata.as_ref();
    let mut annotations = template.and_then(|metadata| metadata.annotations.clone()).unwrap_or_default();
    let generation = vm.metadata.generation.unwrap_or(0).to_string();
    annotations.insert(annotation::VM_GENERATION.to_owned(), generation);
    // A template is not where it comes from.
    annotations.remove(annotation::GUEST);
    let kept = vm.metadata.annotations.as_ref().and_then(|annotations| annotations.get(annotation::GUEST));
    annotations.extend(kept.map(|guest| (annotation::GUEST.to_owned(), guest.clone())));
    for reference in &chosen.references {
        let (key, name) = reference.annotation();
        annotations.insert(key.to_owned(), name.to_owned());
    }
    let metadata = ObjectMeta {
        name: vm.metadata.name.clone(),
        namespace: vm.metadata.namespace.clone(),
        labels: template.and_then(|metadata| metadata.labels.clone()),
        annotations: Some(annotations),
        finalizers: Some(vec![finalizer::VM_CONTROLLER.to_owned(), finalizer::VMI.to_owned()]),
        owner_references: controller_reference(vm).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    };
    let spec = vm.spec.template.spec.clone().unwrap_or_default();
    let mut instance = VirtualMachineInstance { metadata, spec, ..VirtualMachineInstance::default() };
    expand(&mut instance, config, chosen.instancetype.as_ref(), chosen.preference.as_ref())?;
    let firmware = instance.spec.domain.firmware.get_or_insert_with(Firmware::default);
    if firmware.uuid.as_ref().is_none_or(String::is_empty) {
        firmware.uuid = Some(firmware_uuid(vm.metadata.name.as_deref().unwrap_or_default()).to_string());
    }
    if paused {
        instance.spec.start_strategy = Some(StartStrategy::Paused);
    }
    instance.status = Some(born(revision, now));
    Ok(instance)
}

fn born(revision: &ControllerRevision, now: Timestamp) -> VirtualMachineInstanceStatus {
    let (reason, message) = not_running();
    let ready = VirtualMachineInstanceCondition {
        type_: "Ready".to_owned(),
        status: ConditionStatus::False,
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: whole_second(now).into(),
        ..VirtualMachineInstanceCondition::default()
    };
    let entered = Transition { phase: Some(Phase::Pending), phase_transition_timestamp: Some(whole_second(now)) };
    VirtualMachineInstanceStatus {
        phase: Some(Phase::Pending),
        phase_transition_timestamps: Some(vec![entered]),
        conditions: Some(vec![ready]),
        virtual_machine_revision_name: revision.metadata.name.clone(),
        ..VirtualMachineInstanceStatus::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vm_has_the_same_firmware_uuid_at_each_start_and_with_other_tools() {
        assert_eq!(firmware_uuid("vm-cirros").to_string(), "0d2a2043-41c0-59c3-9b17-025022203668");
    }
}
