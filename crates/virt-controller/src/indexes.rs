//! What the controllers find objects by.

use api::migration::VirtualMachineInstanceMigration as Migration;
use api::names::label;
use api::vm::VirtualMachine;
use api::vmi::{VirtualMachineInstance, VirtualMachineInstanceSpec};
use manager::cache::{Index, controller_of, namespace_of};

/// Selects the pods of instances: others are none of our business, and would cost their memory.
pub(crate) const OUR_PODS: &str = "kubevirt.io in (virt-launcher, hotplug-disk)";

/// Instances by the UID of what controls them, by namespace, by node, and by claim as `namespace/claim`.
pub(crate) const VMIS: [(&str, Index<VirtualMachineInstance>); 4] =
    [("controller", controller_of), ("namespace", namespace_of), ("node", node_of), ("claim", namespaced_claims_of)];

/// Migrations by their instance, as `namespace/name`.
pub(crate) const MIGRATIONS: [(&str, Index<Migration>); 1] = [("instance", instance_of)];

fn instance_of(migration: &Migration) -> Vec<String> {
    let namespace = migration.metadata.namespace.as_deref().unwrap_or_default();
    migration.spec.vmi_name.iter().map(|name| format!("{namespace}/{name}")).collect()
}

/// The names of the claims and data volumes that an instance names.
pub(crate) fn claims_of(vmi: &VirtualMachineInstance) -> Vec<String> {
    claims(&vmi.spec)
}

/// The names of the claims and data volumes that a VM names, in its template or its templates of data volumes.
pub(crate) fn claim_names_of_vm(vm: &VirtualMachine) -> Vec<String> {
    let templates = vm.spec.data_volume_templates.iter().flatten();
    let made = templates.filter_map(|template| template.metadata.as_ref()?.name.clone());
    let mut names: Vec<String> = vm.spec.template.spec.iter().flat_map(claims).chain(made).collect();
    names.sort();
    names.dedup();
    names
}

/// The same, as `namespace/claim`.
pub(crate) fn claims_of_vm(vm: &VirtualMachine) -> Vec<String> {
    let namespace = vm.metadata.namespace.as_deref().unwrap_or_default();
    claim_names_of_vm(vm).into_iter().map(|claim| format!("{namespace}/{claim}")).collect()
}

fn claims(spec: &VirtualMachineInstanceSpec) -> Vec<String> {
    let volumes = spec.volumes.iter().flatten();
    volumes
        .filter_map(|volume| {
            let claim = volume.persistent_volume_claim.as_ref().map(|source| &source.claim_name);
            let ephemeral = volume.ephemeral.as_ref().and_then(|source| source.persistent_volume_claim.as_ref());
            let ephemeral = ephemeral.map(|source| &source.claim_name);
            claim.or(ephemeral).or(volume.data_volume.as_ref().map(|source| &source.name)).cloned()
        })
        .collect()
}

fn namespaced_claims_of(vmi: &VirtualMachineInstance) -> Vec<String> {
    let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
    claims_of(vmi).into_iter().map(|claim| format!("{namespace}/{claim}")).collect()
}

/// The node that an instance is labelled with, if any.
pub(crate) fn node_of(vmi: &VirtualMachineInstance) -> Vec<String> {
    let labels = vmi.metadata.labels.as_ref();
    labels
        .and_then(|labels| labels.get(label::NODE_NAME))
        .filter(|node| !node.is_empty())
        .cloned()
        .into_iter()
        .collect()
}
