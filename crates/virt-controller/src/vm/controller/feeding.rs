//! What is news for a VM: itself, its instance, its revisions, claims, data volumes, classes of storage and of snapshots,
//! instancetypes, the configuration.

use std::sync::Arc;

use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::apps::v1::ControllerRevision;
use manager::cache::{Cache, Changed, Key};
use manager::kit::{Expected, Kit, Written};

use super::{Kinds, Vms};

/// Declares all that a VM has to be looked at for.
pub(super) fn feed(kit: Kit, controller: &Vms) -> Kit {
    let Vms { vms, vmis, claims, revisions, kinds, data_volumes, volume_snapshots, configuration, .. } = controller;
    let Kinds { instancetypes, cluster_instancetypes, preferences, cluster_preferences, .. } = kinds;
    let (expected, written) = (controller.expected.clone(), controller.instance_written.clone());
    let (watching, late) = (data_volumes.clone(), late_data_volumes(&kit, controller));
    let copies = volume_snapshots.clone();
    kit.also(async move { watching.run().await })
        .also(async move { copies.run().await })
        .reconciles(vms)
        .watch(vmis, move |change| instance_changed(change, &expected, &written))
        .watch(revisions, revision_made)
        .watch(claims, of_claim(vms))
        .also(late)
        .hears_of(data_volumes.cache(), of_claim(vms))
        .watch(volume_snapshots.storage_classes(), of_classes(vms))
        .hears_of(volume_snapshots.class_objects(), of_classes(vms))
        .watch(instancetypes, of_kinds(vms))
        .watch(cluster_instancetypes, of_kinds(vms))
        .watch(preferences, of_kinds(vms))
        .watch(cluster_preferences, of_kinds(vms))
        .watch(configuration.objects(), of_kinds(vms))
}

/// An instance is news for the VM of its name, and for the one that controls it.
fn instance_changed(change: &Changed<VirtualMachineInstance>, expected: &Expected, written: &Written) -> Vec<Key> {
    let key = &change.key;
    expected.saw(Some(key), Some(key), change);
    if change.new.is_none() {
        written.forget(key);
    }
    let owner = change.new.as_ref().and_then(|vmi| api::owner::controller_of(&vmi.metadata));
    let owner = owner.filter(|owner| owner.kind == "VirtualMachine" && owner.name != key.name);
    let owner = owner.map(|owner| Key { namespace: key.namespace.clone(), name: owner.name.clone() });
    owner.into_iter().chain([key.clone()]).collect()
}

/// What an instance was started from may be known later than the instance: only then can be told what it lacks.
fn revision_made(change: &Changed<ControllerRevision>) -> Option<Key> {
    let new = change.new.as_ref().filter(|_| change.old.is_none())?;
    let owner = api::owner::controller_of(&new.metadata).filter(|owner| owner.kind == "VirtualMachine")?;
    Some(Key { namespace: change.key.namespace.clone(), name: owner.name.clone() })
}

/// A claim, or a data volume, that comes or changes is news for all VMs that name it.
fn of_claim<T>(vms: &Cache<VirtualMachine>) -> impl Fn(&Changed<T>) -> Vec<Key> + Send + use<T> {
    let vms = vms.clone();
    move |change| {
        let users = vms.find("claim", &format!("{}/{}", change.key.namespace, change.key.name));
        users.iter().map(|vm| Key::of(&**vm)).collect()
    }
}

/// Whether a VM's claims can be copied depends on the classes.
fn of_classes<T>(vms: &Cache<VirtualMachine>) -> impl Fn(&Changed<T>) -> Vec<Key> + Send + use<T> {
    let vms = vms.clone();
    move |_| {
        let has_claims = |vm: &&Arc<VirtualMachine>| !crate::indexes::claim_names_of_vm(vm).is_empty();
        vms.all().iter().filter(has_claims).map(|vm| Key::of(&**vm)).collect()
    }
}

/// VMs that wait for an instancetype or preference look again when one comes or changes, and all of them when the cluster's
/// policy does.
fn of_kinds<T>(vms: &Cache<VirtualMachine>) -> impl Fn(&Changed<T>) -> Vec<Key> + Send + use<T> {
    let vms = vms.clone();
    move |_| {
        let refers = |vm: &&Arc<VirtualMachine>| vm.spec.instancetype.is_some() || vm.spec.preference.is_some();
        vms.all().iter().filter(refers).map(|vm| Key::of(&**vm)).collect()
    }
}

/// The kind may come late: whoever said that there is none looks again.
fn late_data_volumes(kit: &Kit, controller: &Vms) -> impl Future<Output = ()> + Send + use<> {
    let (queue, vms, volumes) = (kit.queue(), controller.vms.clone(), controller.data_volumes.clone());
    async move {
        volumes.cache().synced().await;
        let wants = |vm: &&Arc<VirtualMachine>| vm.spec.data_volume_templates.is_some();
        vms.all().iter().filter(wants).for_each(|vm| queue.add(Key::of(&**vm)));
    }
}
