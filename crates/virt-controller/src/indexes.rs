//! What the controllers read of kinds that there are many of, and what they find them by. They look at one or a few at a time, so
//! that caches keep text: an instance that was read takes ten times of it.

use api::migration::VirtualMachineInstanceMigration as Migration;
use api::names::label;
use api::vm::VirtualMachine;
use api::vmi::{VirtualMachineInstance, VirtualMachineInstanceSpec};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;
use manager::cache::{Cache, Index, Keeping, controller_of, namespace_of};
use manager::caches::Caches;

/// Selects the pods of instances: others are none of our business, and would cost their memory.
const OUR_PODS: &str = "kubevirt.io in (virt-launcher, hotplug-disk)";

/// Instances by the UID of what controls them, by namespace, by the namespace of those that nothing controls, by node, and by claim
/// as `namespace/claim`.
const VMIS: [(&str, Index<VirtualMachineInstance>); 5] = [
    ("controller", controller_of),
    ("namespace", namespace_of),
    ("orphans", namespace_of_orphan),
    ("node", node_of),
    ("claim", namespaced_claims_of),
];

/// VMs by claim as `namespace/claim`, by the UID of what controls them, and by namespace.
const VMS: [(&str, Index<VirtualMachine>); 3] =
    [("claim", claims_of_vm), ("controller", controller_of), ("namespace", namespace_of)];

/// All instances.
pub(crate) fn vmis(caches: &Caches) -> Cache<VirtualMachineInstance> {
    caches.kept("", Keeping::packed(), &VMIS)
}

/// All VMs.
pub(crate) fn vms(caches: &Caches) -> Cache<VirtualMachine> {
    caches.kept("", Keeping::packed(), &VMS)
}

/// The pods of instances, by the UID of what controls them.
pub(crate) fn pods(caches: &Caches) -> Cache<Pod> {
    caches.kept(OUR_PODS, Keeping::slim_and_packed(), &[("controller", controller_of)])
}

/// What VMs were started from, by the UID of what controls it.
pub(crate) fn revisions(caches: &Caches) -> Cache<ControllerRevision> {
    caches.kept("", Keeping::packed(), &[("controller", controller_of)])
}

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

fn namespace_of_orphan(vmi: &VirtualMachineInstance) -> Vec<String> {
    if controller_of(vmi).is_empty() { namespace_of(vmi) } else { Vec::new() }
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
