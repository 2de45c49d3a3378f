//! What is news for an instance: itself, its pods, claims, data volumes, the configuration, how launchers are run.

use std::sync::Arc;

use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::core::v1::Pod;
use manager::cache::{Cache, Changed, Key};
use manager::kit::{Kit, Orphans};

use super::Vmis;
use crate::vmi::pods::node;

/// Declares all that an instance has to be looked at for.
pub(super) fn feed(kit: Kit, controller: &Vmis) -> Kit {
    let Vmis { vmis, pods, claims, classes, data_volumes, configuration, surroundings, .. } = controller;
    let (watching, launchers) = (data_volumes.clone(), other_launchers(&kit, controller));
    let (of_configuration, of_pods) = (vmis.clone(), pods.clone());
    kit.also(async move { watching.run().await })
        .reconciles(vmis)
        .owns(pods, vmis, Orphans::Ignored)
        .watch(claims, of_claim(vmis))
        .hears_of(data_volumes.cache(), of_claim(vmis))
        // What was refused may be allowed now.
        .watch(configuration.objects(), move |_| waiting(&of_configuration, &of_pods))
        .also(launchers)
        .needs(classes)
        .needs(surroundings.namespaces())
        .needs(surroundings.quotas())
}

/// A claim, or a data volume, that comes or changes is news for all instances that name it.
fn of_claim<T>(vmis: &Cache<VirtualMachineInstance>) -> impl Fn(&Changed<T>) -> Vec<Key> + Send + use<T> {
    let vmis = vmis.clone();
    move |change| {
        let users = vmis.find("claim", &format!("{}/{}", change.key.namespace, change.key.name));
        users.iter().map(|vmi| Key::of(&**vmi)).collect()
    }
}

/// When launchers are run in another way, a pod that no node has taken may have to be another, and one that runs may be outdated.
fn other_launchers(kit: &Kit, controller: &Vmis) -> impl Future<Output = ()> + Send + use<> {
    let (queue, mut launcher) = (kit.queue(), controller.launcher.clone());
    let vmis = controller.vmis.clone();
    async move {
        while launcher.changed().await.is_ok() {
            let all = vmis.all();
            all.iter().filter(|vmi| !vmi.is_final()).for_each(|vmi| queue.add(Key::of(&**vmi)));
        }
    }
}

/// The instances that no node has taken yet.
fn waiting(vmis: &Cache<VirtualMachineInstance>, pods: &Cache<Pod>) -> Vec<Key> {
    let waits = |vmi: &&Arc<VirtualMachineInstance>| {
        let pods = pods.find("controller", vmi.metadata.uid.as_deref().unwrap_or_default());
        !vmi.is_final() && pods.iter().all(|pod| node(pod).is_empty())
    };
    vmis.all().iter().filter(waits).map(|vmi| Key::of(&**vmi)).collect()
}
