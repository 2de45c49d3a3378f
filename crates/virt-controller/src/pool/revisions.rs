//! What the VMs of a pool were made from: its template at a generation, as a ControllerRevision. A generation with the template of an
//! earlier one, such as after a change of its size alone, has none of its own.

use std::collections::BTreeSet;

use api::pool::VirtualMachineTemplateSpec;
use api::vm::VirtualMachine;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use manager::claim::{self, Target};
use serde_json::json;

use super::{Observed, VirtualMachinePool, name_of_pool, revision_of};

/// The revision of the template as it is.
pub(super) struct Current {
    pub(super) name: String,
    /// The revision itself, if nobody has kept it yet.
    pub(super) missing: Option<ControllerRevision>,
}

pub(super) fn current(seen: &Observed<'_>) -> Current {
    let wanted = &seen.pool.spec.virtual_machine_template;
    let known = seen.revisions.iter().filter(|revision| template_of(revision).as_ref() == Some(wanted));
    if let Some(known) = known.max_by_key(|revision| revision.revision) {
        return Current { name: known.metadata.name.clone().unwrap_or_default(), missing: None };
    }
    let (owner, generation) = (&seen.pool.metadata, seen.pool.metadata.generation.unwrap_or(0));
    let name = format!("{}-{generation}", name_of_pool(seen.pool));
    let revision = ControllerRevision {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: owner.namespace.clone(),
            owner_references: Some(vec![claim::reference::<VirtualMachinePool>(owner)]),
            ..ObjectMeta::default()
        },
        revision: generation,
        data: Some(RawExtension(json!({ "virtualMachineTemplate": wanted }))),
    };
    Current { name, missing: Some(revision) }
}

/// The template that a revision holds, if it is one of ours.
pub(super) fn template_of(revision: &ControllerRevision) -> Option<VirtualMachineTemplateSpec> {
    let RawExtension(data) = revision.data.as_ref()?;
    serde_json::from_value(data.get("virtualMachineTemplate")?.clone()).ok()
}

/// The template that a VM was made from, if its revision is known.
pub(super) fn template_of_vm(seen: &Observed<'_>, vm: &VirtualMachine) -> Option<VirtualMachineTemplateSpec> {
    template_named(seen, revision_of(vm.metadata.labels.as_ref()))
}

/// The template of the revision of this name, if it is known.
pub(super) fn template_named(seen: &Observed<'_>, name: &str) -> Option<VirtualMachineTemplateSpec> {
    let found = seen.revisions.iter().find(|revision| revision.metadata.name.as_deref() == Some(name))?;
    template_of(found)
}

/// Revisions that neither a VM of the pool nor the instance of one was made from, and that are not the current one.
pub(super) fn unused(seen: &Observed<'_>, mine: &[&VirtualMachine], current: &str) -> Vec<Target> {
    let of_vms = mine.iter().map(|vm| revision_of(vm.metadata.labels.as_ref()));
    let of_instances = seen.instances.values().map(|instance| revision_of(instance.metadata.labels.as_ref()));
    let used: BTreeSet<&str> = of_vms.chain(of_instances).chain([current]).collect();
    let is_used = |revision: &&&ControllerRevision| {
        revision.metadata.name.as_deref().is_some_and(|name| used.contains(name))
            || revision.metadata.deletion_timestamp.is_some()
    };
    let unused = seen.revisions.iter().filter(|revision| !is_used(revision));
    unused.map(|revision| Target::of(&revision.metadata)).collect()
}
