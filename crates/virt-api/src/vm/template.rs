//! The template of a VM and the instance that would be made of it.

use std::sync::Arc;

use api::instancetype::VirtualMachineInstancetypeSpec;
use api::preference::VirtualMachinePreferenceSpec;
use api::vm::{InstancetypeStatusRef, VirtualMachine, VirtualMachineStatus};
use api::vmi::VirtualMachineInstance;
use virt_rules::instancetype::matcher::{self, MatcherError, Reference, Scope};
use virt_rules::instancetype::{Conflict, check_requirements, expand, storage_class};

use crate::denial::{Problems, Reason};
use crate::request::{Known, Requester};
use crate::validate;
use crate::vmi::defaults;

const PREFIX: &str = "spec.template.";

/// What the VM refers to, as far as it exists.
#[derive(Default)]
pub(super) struct Found {
    instancetype: Option<Arc<VirtualMachineInstancetypeSpec>>,
    preference: Option<Arc<VirtualMachinePreferenceSpec>>,
    /// Whether something that it refers to is missing: then sizes cannot be judged.
    incomplete: bool,
}

/// Looks up the instancetype and the preference of a VM: as they were kept for it, if the status says so, else as they
/// are now.
pub(super) fn find(
    vm: &VirtualMachine,
    status: Option<&VirtualMachineStatus>,
    namespace: &str,
    known: &dyn Known,
    problems: &mut Problems,
) -> Found {
    let mut found = Found::default();
    let sizes = |reference: &Reference| known.instancetype(namespace, reference);
    let likes = |reference: &Reference| known.preference(namespace, reference);
    match matcher::instancetype(&vm.spec) {
        Ok(None) => {}
        Ok(Some(reference)) => {
            let kept = kept(&reference, status.and_then(|status| status.instancetype_ref.as_ref()));
            found.instancetype = kept.as_ref().and_then(sizes).or_else(|| sizes(&reference));
            if found.instancetype.is_none() {
                found.incomplete = true;
                missing("spec.instancetype", &reference, namespace, problems);
            }
        }
        Err(error) => found.incomplete |= refused(&error, problems),
    }
    match matcher::preference(&vm.spec) {
        Ok(None) => {}
        Ok(Some(reference)) => {
            let kept = kept(&reference, status.and_then(|status| status.preference_ref.as_ref()));
            found.preference = kept.as_ref().and_then(likes).or_else(|| likes(&reference));
            if found.preference.is_none() {
                found.incomplete = true;
                missing("spec.preference", &reference, namespace, problems);
            }
        }
        Err(error) => found.incomplete |= refused(&error, problems),
    }
    found
}

/// The same reference, bound to the revision that was kept when the VM first used it.
pub(crate) fn kept(reference: &Reference, status: Option<&InstancetypeStatusRef>) -> Option<Reference> {
    let status = status.filter(|_| reference.revision.is_none())?;
    let same = status.name.as_ref() == Some(&reference.name)
        && status.kind.as_deref().is_none_or(|kind| kind == reference.kind());
    let revision = status.controller_revision_ref.as_ref().filter(|_| same)?.name.clone();
    revision.map(|revision| Reference { revision: Some(revision), ..reference.clone() })
}

fn missing(path: &str, reference: &Reference, namespace: &str, problems: &mut Problems) {
    let kind = reference.kind();
    let name = &reference.name;
    if let Some(revision) = &reference.revision {
        let message = format!("revision {revision:?} of the {kind} {name:?} does not exist; remove the field");
        problems.not_found(format!("{path}.revisionName"), message);
        return;
    }
    let place = match reference.scope {
        Scope::Namespaced => format!(" in the namespace {namespace:?}"),
        Scope::Cluster => String::new(),
    };
    let message = format!("{kind} {name:?} does not exist{place}; create it first, or use another");
    problems.not_found(format!("{path}.name"), message);
}

fn refused(error: &MatcherError, problems: &mut Problems) -> bool {
    problems.told(Reason::Invalid, error.path(), &error.to_string());
    true
}

/// Fills in what a VM keeps: architecture and machine, so that they stay when the cluster's defaults move on, and the
/// storage class of its data volumes.
pub(super) fn fill_in(vm: &mut VirtualMachine, found: &Found, known: &dyn Known) {
    let config = known.config();
    let Some(spec) = &mut vm.spec.template.spec else { return };
    let preference = found.preference.as_deref();
    if unset(spec.architecture.as_deref()) {
        let preferred = preference.and_then(|preference| preference.preferred_architecture.clone());
        let preferred = preferred.filter(|name| !name.is_empty());
        let own = config.default_architecture().unwrap_or(known.architecture());
        spec.architecture = Some(preferred.unwrap_or_else(|| own.to_owned()));
    }
    let machine = spec.domain.machine.get_or_insert_default();
    if unset(machine.type_.as_deref()) {
        let preferred = preference.and_then(|preference| preference.machine.as_ref()?.preferred_machine_type.clone());
        let preferred = preferred.filter(|name| !name.is_empty());
        let own = config.architecture(spec.architecture.as_deref()).machine_type;
        machine.type_ = Some(preferred.unwrap_or_else(|| own.to_owned()));
    }
    if let (Some(preference), Some(templates)) = (preference, &mut vm.spec.data_volume_templates) {
        storage_class(templates, preference);
    }
}

/// Gives the machine an identity that outlives its instances.
pub(super) fn name_firmware(vm: &mut VirtualMachine, known: &dyn Known) {
    let Some(spec) = &mut vm.spec.template.spec else { return };
    let firmware = spec.domain.firmware.get_or_insert_default();
    if unset(firmware.uuid.as_deref()) {
        firmware.uuid = Some(known.random_uuid());
    }
    if unset(firmware.serial.as_deref()) {
        firmware.serial = Some(known.random_uuid());
    }
}

/// Checks the instance that would be made of the template.
pub(super) fn check(
    vm: &VirtualMachine,
    found: &Found,
    known: &dyn Known,
    requester: Requester,
    problems: &mut Problems,
) {
    if vm.spec.template.spec.is_none() {
        problems.required("spec.template.spec", "is required; set at least domain");
        return;
    }
    let config = known.config();
    let mut vmi = instance(vm);
    let (instancetype, preference) = (found.instancetype.as_deref(), found.preference.as_deref());
    if let Err(conflicts) = expand(&mut vmi, &config, instancetype, preference) {
        for conflict in conflicts.0 {
            let reason = match &conflict {
                Conflict::Taken { .. } | Conflict::Spread { .. } => Reason::Invalid,
                Conflict::Unknown { .. } => Reason::NotSupported,
            };
            problems.told(reason, conflict.path(), &conflict.to_string());
        }
        // The rest is judged with the size it would have, so that all problems are told at once.
        if let Some(instancetype) = instancetype {
            let memory = vmi.spec.domain.memory.get_or_insert_default();
            memory.guest.get_or_insert_with(|| instancetype.memory.guest.clone());
        }
    }
    defaults::fill_in_spec(&mut vmi.spec, &config, known.architecture());
    if let Some(preference) = preference
        && let Err(unmet) = check_requirements(&vmi.spec, known.architecture(), instancetype, preference)
    {
        for unmet in unmet {
            problems.told(Reason::Invalid, unmet.path(), &unmet.to_string());
        }
    }
    // Without its instancetype the VM has no size, and that is told already.
    if !found.incomplete {
        problems.append(PREFIX, validate::instance(&vmi, &config, requester));
    }
}

/// The template as an instance, before anything is applied.
pub(super) fn instance(vm: &VirtualMachine) -> VirtualMachineInstance {
    VirtualMachineInstance {
        api_version: None,
        kind: None,
        metadata: vm.spec.template.metadata.as_ref().cloned().unwrap_or_default(),
        spec: vm.spec.template.spec.clone().unwrap_or_default(),
        status: None,
    }
}

fn unset(text: Option<&str>) -> bool {
    text.is_none_or(str::is_empty)
}
