//! Broken controllers of pools of VMs.

use api::owner::controller_reference;
use api::pool::VirtualMachinePool;
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, ResourceExt as _};
use manager::context::{Context, Started};
use manager::descriptor::Descriptor;
use serde_json::json;
use simulation::{Options, Scene};
use virt_controller as virt;

use super::{NONE, must_catch, without};

/// The scene, with another in the place of one.
fn pools(one: &str, broken: Option<Descriptor<virt::Settings>>) -> impl Fn(u64) -> Options + use<> {
    let controllers = without(virt::DESCRIPTORS, one, broken);
    move |seed| Options { scene: Scene::Pools(controllers), ..Options::pools(seed) }
}

#[test]
fn without_their_controller_pools_have_nothing_and_say_nothing() {
    must_catch(&["VMs and has []", "and shows (None, None, 0)"], pools("pool-controller", None));
}

/// Makes a VM for each change of a pool, whatever its cache shows, under a name that the server chooses.
fn greedy(context: &Context) -> Started {
    let (client, pools) = (context.client.clone(), context.caches.of::<VirtualMachinePool>(&[]));
    Started::new(async move {
        let mut changes = pools.subscribe();
        loop {
            let Some(pool) = changes.next().await.new.filter(|pool| pool.spec.replicas > Some(0)) else { continue };
            let metadata = json!({
                "generateName": "more-", "labels": { "app": pool.name_any() },
                "ownerReferences": [controller_reference(&*pool).unwrap()],
            });
            let (version, kind) = ("kubevirt.io/v1", "VirtualMachine");
            let spec = &pool.spec.virtual_machine_template.spec;
            let vm = json!({ "apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec });
            let api: Api<VirtualMachine> = Api::namespaced(client.clone(), &pool.namespace().unwrap());
            drop(api.create(&PostParams::default(), &serde_json::from_value(vm).unwrap()).await);
        }
    })
}

#[test]
fn a_pool_that_makes_more_than_it_is_asked_for_is_caught() {
    let broken = Descriptor::new("greedy-pool-controller", &[], |context, _| Ok(greedy(context)));
    must_catch(&["for a pool that was never asked for more than"], pools(NONE, Some(broken)));
}

/// Restarts all VMs of a pool at once when it changes.
fn rash(context: &Context) -> Started {
    let (client, pools) = (context.client.clone(), context.caches.of::<VirtualMachinePool>(&[]));
    let (vms, vmis) = (context.caches.of::<VirtualMachine>(&[]), context.caches.of::<VirtualMachineInstance>(&[]));
    Started::new(async move {
        vms.synced().await;
        vmis.synced().await;
        let mut changes = pools.subscribe();
        loop {
            let change = changes.next().await;
            let (Some(old), Some(pool)) = (change.old, change.new) else { continue };
            if old.metadata.generation == pool.metadata.generation {
                continue;
            }
            let is_mine = |vm: &VirtualMachine| api::owner::is_controlled_by(&vm.metadata, &pool.uid().unwrap());
            for vm in vms.all().iter().filter(|vm| is_mine(vm)) {
                let own =
                    |vmi: &VirtualMachineInstance| api::owner::is_controlled_by(&vmi.metadata, &vm.uid().unwrap());
                for vmi in vmis.all().iter().filter(|vmi| own(vmi)) {
                    let preconditions = Some(Preconditions { uid: vmi.uid(), ..Preconditions::default() });
                    let parameters = DeleteParams { preconditions, ..DeleteParams::default() };
                    let api: Api<VirtualMachineInstance> = Api::namespaced(client.clone(), &vmi.namespace().unwrap());
                    drop(api.delete(&vmi.name_any(), &parameters).await);
                }
            }
        }
    })
}

#[test]
fn a_pool_that_takes_down_more_than_it_may_is_caught() {
    let broken = Descriptor::new("rash-pool-controller", &[], |context, _| Ok(rash(context)));
    must_catch(&["and it never might take more than"], pools(NONE, Some(broken)));
}
