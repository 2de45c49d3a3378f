//! What pools must have come to: as many VMs as asked for, each with the last template and running it, and they tell so.

use api::pool::VirtualMachinePool;
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};

use super::Wrong;
use crate::About;

pub(super) async fn check(client: &Client, wrong: &mut Wrong) -> Result<(), kube::Error> {
    let pools = Api::<VirtualMachinePool>::all(client.clone()).list(&ListParams::default()).await?;
    let vms = Api::<VirtualMachine>::all(client.clone()).list(&ListParams::default()).await?;
    let vmis = Api::<VirtualMachineInstance>::all(client.clone()).list(&ListParams::default()).await?;
    for pool in pools.iter().filter(|pool| pool.metadata.deletion_timestamp.is_none()) {
        let uid = pool.uid().unwrap_or_default();
        let mine: Vec<&VirtualMachine> =
            vms.iter().filter(|vm| api::owner::is_controlled_by(&vm.metadata, &uid)).collect();
        for what in wrong_with(pool, &mine, &vmis.items) {
            let (namespace, name) = (pool.namespace().unwrap_or_default(), pool.name_any());
            wrong.add(Some(About::of(&pool.metadata)), format!("pool {namespace}/{name} {what} in the end"));
        }
    }
    Ok(())
}

fn wrong_with(pool: &VirtualMachinePool, mine: &[&VirtualMachine], vmis: &[VirtualMachineInstance]) -> Vec<String> {
    let wanted = pool.spec.replicas.unwrap_or(1);
    let mut wrong = Vec::new();
    let names: Vec<String> = mine.iter().map(|vm| vm.name_any()).collect();
    if i32::try_from(mine.len()).ok() != Some(wanted) {
        wrong.push(format!("wants {wanted} VMs and has {names:?}"));
    }
    let status = pool.status.as_ref().cloned().unwrap_or_default();
    let told = (status.replicas, status.ready_replicas, status.conditions.map_or(0, |all| all.len()));
    if told != (Some(wanted), Some(wanted), 0) {
        wrong.push(format!("wants {wanted} VMs and shows {told:?}"));
    }
    let hostname = |vm: &VirtualMachine| vm.spec.template.spec.as_ref().and_then(|spec| spec.hostname.clone());
    let template = pool.spec.virtual_machine_template.spec.as_ref();
    let last = template.and_then(|spec| spec.template.spec.as_ref()?.hostname.clone());
    for vm in mine {
        let runs = vmis.iter().find(|vmi| api::owner::is_controlled_by(&vmi.metadata, &vm.uid().unwrap_or_default()));
        let running = runs.and_then(|vmi| vmi.spec.hostname.clone());
        if hostname(vm) != last || running != last {
            let (name, of_vm) = (vm.name_any(), hostname(vm));
            wrong.push(format!("says {last:?}, its VM {name} {of_vm:?} and the instance of that {running:?}"));
        }
    }
    wrong
}
