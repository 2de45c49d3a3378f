//! The VM of a number: the template, with the number in its name, in those of its data volumes, and where the pool asks for it in
//! those of its config maps and secrets.

use std::collections::{BTreeMap, BTreeSet};

use api::pool::VirtualMachinePool;
use api::vm::{VirtualMachine, VirtualMachineSpec};
use api::volumes::Volume;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manager::claim;

use super::{REVISION, name_of_pool};

/// The lowest numbers whose names are not in use.
pub(super) fn free_numbers(pool: &str, in_use: &BTreeSet<&str>, count: usize) -> Vec<u32> {
    (0..u32::MAX).filter(|number| !in_use.contains(named(pool, *number).as_str())).take(count).collect()
}

fn named(base: &str, number: u32) -> String {
    format!("{base}-{number}")
}

/// The number of a VM; none, if it does not have such a name.
pub(super) fn number_of(pool: &VirtualMachinePool, vm: &VirtualMachine) -> Option<u32> {
    vm.metadata.name.as_deref()?.strip_prefix(name_of_pool(pool))?.strip_prefix('-')?.parse().ok()
}

/// The VM of a number.
pub(super) fn vm(pool: &VirtualMachinePool, number: u32, revision: &str) -> VirtualMachine {
    let owner = &pool.metadata;
    VirtualMachine {
        metadata: ObjectMeta {
            name: Some(named(name_of_pool(pool), number)),
            namespace: owner.namespace.clone(),
            labels: Some(labels(pool, revision)),
            annotations: template_metadata(pool).annotations,
            owner_references: Some(vec![claim::reference::<VirtualMachinePool>(owner)]),
            ..ObjectMeta::default()
        },
        spec: spec(pool, number, revision),
        ..VirtualMachine::default()
    }
}

/// What the template says about the object itself.
pub(super) fn template_metadata(pool: &VirtualMachinePool) -> ObjectMeta {
    pool.spec.virtual_machine_template.metadata.as_ref().cloned().unwrap_or_default()
}

/// The labels of a VM: those of the template, and which revision it is of.
pub(super) fn labels(pool: &VirtualMachinePool, revision: &str) -> BTreeMap<String, String> {
    let mut labels = template_metadata(pool).labels.unwrap_or_default();
    labels.insert(REVISION.to_owned(), revision.to_owned());
    labels
}

/// The specification of a VM.
pub(super) fn spec(pool: &VirtualMachinePool, number: u32, revision: &str) -> VirtualMachineSpec {
    let mut spec = pool.spec.virtual_machine_template.spec.clone().unwrap_or_default();
    let mut of_instance = spec.template.metadata.as_ref().cloned().unwrap_or_default();
    of_instance.labels.get_or_insert_default().insert(REVISION.to_owned(), revision.to_owned());
    spec.template.metadata = of_instance.into();
    let made = disks(&mut spec, number);
    let names = pool.spec.name_generation.as_ref();
    let (maps, secrets) = (
        names.and_then(|names| names.append_index_to_config_map_refs) == Some(true),
        names.and_then(|names| names.append_index_to_secret_refs) == Some(true),
    );
    let volumes = spec.template.spec.iter_mut().flat_map(|spec| spec.volumes.iter_mut().flatten());
    for volume in volumes {
        if let Some(source) = &mut volume.data_volume {
            made.get(&source.name).into_iter().for_each(|name| source.name.clone_from(name));
        }
        if let Some(source) = &mut volume.persistent_volume_claim {
            made.get(&source.claim_name).into_iter().for_each(|name| source.claim_name.clone_from(name));
        }
        if let Some(name) = volume.config_map.as_mut().and_then(|source| source.name.as_mut()).filter(|_| maps) {
            *name = named(name, number);
        }
        if secrets {
            secret_names(volume).for_each(|name| *name = named(name, number));
        }
    }
    spec
}

/// The names of secrets that a volume is made of: its own, or those with the data of cloud-init.
fn secret_names(volume: &mut Volume) -> impl Iterator<Item = &mut String> {
    let own = volume.secret.as_mut().and_then(|source| source.secret_name.as_mut());
    let no_cloud = volume.cloud_init_no_cloud.as_mut();
    let no_cloud = no_cloud.map(|source| [source.secret_ref.as_mut(), source.network_data_secret_ref.as_mut()]);
    let drive = volume.cloud_init_config_drive.as_mut();
    let drive = drive.map(|source| [source.secret_ref.as_mut(), source.network_data_secret_ref.as_mut()]);
    let references = no_cloud.into_iter().chain(drive).flatten().flatten();
    own.into_iter().chain(references.map(|reference| &mut reference.name))
}

/// Numbers the templates of data volumes: what each was called, and what it is called now.
fn disks(spec: &mut VirtualMachineSpec, number: u32) -> BTreeMap<String, String> {
    let mut made = BTreeMap::new();
    for template in spec.data_volume_templates.iter_mut().flatten() {
        if let Some(name) = template.metadata.as_mut().and_then(|metadata| metadata.name.as_mut()) {
            let new = named(name, number);
            made.insert(std::mem::replace(name, new.clone()), new);
        }
    }
    made
}
