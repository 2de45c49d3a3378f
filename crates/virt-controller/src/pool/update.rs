//! How a changed template reaches the VMs that are there, and their guests if it concerns these.

use api::pool::VirtualMachineTemplateSpec;
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use manager::claim::Target;
use manager::writing::{difference, guarded};
use serde_json::{Value, json};

use super::{
    BURST, Deletion, Observed, PoolPlan, REVISION, Why, indexed, is_available, name, revision_of, revisions, victims,
};

/// Changes VMs that are outdated, and restarts or replaces as many as may be unavailable.
pub(super) fn plan(seen: &Observed<'_>, active: &[&VirtualMachine], current: &str, plan: &mut PoolPlan) {
    let strategy = seen.pool.spec.update_strategy.as_ref();
    if strategy.is_some_and(|strategy| strategy.unmanaged.is_some()) {
        return;
    }
    let is_proactive = strategy.is_none_or(|strategy| strategy.opportunistic.is_none());
    let policy = strategy.and_then(|one| one.proactive.as_ref()).and_then(|one| one.selection_policy.as_ref());
    let mut room = room(seen, active);
    // One that nobody can use at the moment takes no more from anybody.
    let mut may_go = |vm: &VirtualMachine| {
        let free = !is_available(seen, vm);
        let allowed = free || room > 0;
        room = room.saturating_sub(usize::from(allowed && !free));
        allowed
    };
    // Whoever tries a new template on a few first selects these; all others stay as they are.
    let selectors = policy.and_then(|policy| policy.selectors.as_ref());
    let reached = active.iter().copied().filter(|vm| selectors.is_none_or(|all| victims::is_selected(seen, all, vm)));
    for vm in victims::ordered(seen, reached.collect(), policy) {
        if plan.update.len() + plan.delete.len() + plan.restart.len() + plan.relabel.len() >= BURST {
            break;
        }
        if is_outdated(seen, vm, current) {
            if has_other_disks(seen, vm) {
                if is_proactive && may_go(vm) {
                    let target = Target::of(&vm.metadata);
                    plan.delete.push(Deletion { target, why: Why::OtherDisks, keeps: Vec::new() });
                }
            } else if let Some(patch) = patch(seen, vm, current) {
                plan.update.push((Target::of(&vm.metadata), patch));
            }
            continue;
        }
        let behind = seen.instances.get(name(vm)).filter(|instance| {
            let wanted = revision_of(vm.metadata.labels.as_ref());
            let is_behind = revision_of(instance.metadata.labels.as_ref()) != wanted;
            is_behind && !instance.is_marked_for_deletion() && !instance.is_final()
        });
        let Some(instance) = behind.filter(|_| is_proactive) else { continue };
        if !has_another_guest(seen, instance) {
            let labels = json!({ REVISION: revision_of(vm.metadata.labels.as_ref()) });
            let patch = guarded(&instance.metadata, json!({ "metadata": { "labels": labels } }));
            plan.relabel.push((Target::of(&instance.metadata), patch));
        } else if may_go(vm) {
            plan.restart.push(Target::of(&instance.metadata));
        }
    }
}

/// Whether the template makes another guest than the one that runs. Other labels of the VM alone, or another run strategy, do not;
/// an instance whose revision nobody knows may be anything.
fn has_another_guest(seen: &Observed<'_>, instance: &VirtualMachineInstance) -> bool {
    let guest = |template: &VirtualMachineTemplateSpec| {
        let spec = template.spec.as_ref()?;
        Some((spec.template.clone(), spec.instancetype.clone(), spec.preference.clone()))
    };
    let started_from = revisions::template_named(seen, revision_of(instance.metadata.labels.as_ref()));
    started_from.is_none_or(|template| guest(&template) != guest(&seen.pool.spec.virtual_machine_template))
}

/// How many VMs may be taken down now, beyond those that are.
fn room(seen: &Observed<'_>, active: &[&VirtualMachine]) -> usize {
    let wanted = usize::try_from(seen.pool.spec.replicas.unwrap_or(1)).unwrap_or(0);
    let most = match &seen.pool.spec.max_unavailable {
        None => wanted,
        Some(IntOrString::Int(number)) => usize::try_from(*number).unwrap_or(0),
        Some(IntOrString::String(text)) => {
            let percent = text.strip_suffix('%').and_then(|digits| digits.parse::<usize>().ok());
            percent.map_or(0, |percent| wanted.saturating_mul(percent) / 100)
        }
    };
    let unavailable = active.iter().filter(|vm| !is_available(seen, vm)).count();
    let absent = wanted.saturating_sub(active.len());
    most.max(1).saturating_sub(unavailable + absent)
}

/// Whether a VM was made from another template. One whose revision nobody knows was.
fn is_outdated(seen: &Observed<'_>, vm: &VirtualMachine, current: &str) -> bool {
    if revision_of(vm.metadata.labels.as_ref()) == current {
        return false;
    }
    revisions::template_of_vm(seen, vm).as_ref() != Some(&seen.pool.spec.virtual_machine_template)
}

/// Disks that are there are never changed under a VM: it is made again with those of the template. What counts is what both
/// templates say, since admission may have filled in more on the VM.
fn has_other_disks(seen: &Observed<'_>, vm: &VirtualMachine) -> bool {
    let of = |template: &VirtualMachineTemplateSpec| {
        template.spec.as_ref().and_then(|spec| spec.data_volume_templates.clone()).unwrap_or_default()
    };
    let made_from = revisions::template_of_vm(seen, vm);
    made_from.is_some_and(|template| of(&template) != of(&seen.pool.spec.virtual_machine_template))
}

/// What makes a VM one of the current template. Labels and annotations that the template does not name stay.
fn patch(seen: &Observed<'_>, vm: &VirtualMachine, current: &str) -> Option<Value> {
    let number = indexed::number_of(seen.pool, vm)?;
    let mut new = vm.clone();
    new.spec = indexed::spec(seen.pool, number, current);
    keep_identity(vm, &mut new);
    new.metadata.labels.get_or_insert_default().extend(indexed::labels(seen.pool, current));
    let annotations = indexed::template_metadata(seen.pool).annotations.unwrap_or_default();
    if !annotations.is_empty() {
        new.metadata.annotations.get_or_insert_default().extend(annotations);
    }
    let patch = difference(&json!(vm), &json!(new))?;
    Some(guarded(&vm.metadata, patch))
}

/// What admission has given to the VM once stays where the template says nothing: by its firmware's UUID and serial number, its
/// machine and its architecture a guest knows itself.
fn keep_identity(old: &VirtualMachine, new: &mut VirtualMachine) {
    let (Some(old), Some(new)) = (&old.spec.template.spec, &mut new.spec.template.spec) else { return };
    new.architecture = new.architecture.take().or_else(|| old.architecture.clone());
    if new.domain.machine.is_none() {
        new.domain.machine.clone_from(&old.domain.machine);
    }
    if let Some(known) = &old.domain.firmware {
        let firmware = new.domain.firmware.get_or_insert_default();
        firmware.uuid = firmware.uuid.take().or_else(|| known.uuid.clone());
        firmware.serial = firmware.serial.take().or_else(|| known.serial.clone());
    }
}
