//! What replica sets of instances must have come to: as many that run as asked for, and they tell so. And no instance has a
//! disruption budget.

use api::replicaset::VirtualMachineInstanceReplicaSet;
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};

use super::Wrong;
use crate::About;

pub(super) async fn check(client: &Client, wrong: &mut Wrong) -> Result<(), kube::Error> {
    let sets = Api::<VirtualMachineInstanceReplicaSet>::all(client.clone()).list(&ListParams::default()).await?;
    let vmis = Api::<VirtualMachineInstance>::all(client.clone()).list(&ListParams::default()).await?;
    for set in sets.iter().filter(|set| set.metadata.deletion_timestamp.is_none()) {
        let uid = set.uid().unwrap_or_default();
        let is_mine = |vmi: &&VirtualMachineInstance| {
            api::owner::is_controlled_by(&vmi.metadata, &uid) && vmi.namespace() == set.namespace()
        };
        for what in wrong_with(set, &vmis.iter().filter(is_mine).collect::<Vec<_>>()) {
            let (namespace, name) = (set.namespace().unwrap_or_default(), set.name_any());
            wrong.add(Some(About::of(&set.metadata)), format!("set {namespace}/{name} {what} in the end"));
        }
    }
    for budget in Api::<PodDisruptionBudget>::all(client.clone()).list(&ListParams::default()).await? {
        if budget.owner_references().iter().any(|owner| owner.kind == "VirtualMachineInstance") {
            let what = format!("budget {} of an instance is there in the end", budget.name_any());
            wrong.add(Some(About::of(&budget.metadata)), what);
        }
    }
    Ok(())
}

fn wrong_with(set: &VirtualMachineInstanceReplicaSet, mine: &[&VirtualMachineInstance]) -> Vec<String> {
    let wanted = set.spec.replicas.unwrap_or(1);
    let running = mine.iter().filter(|vmi| vmi.is_running() && !vmi.is_marked_for_deletion()).count();
    let mut wrong = Vec::new();
    if i32::try_from(running).ok() != Some(wanted) || mine.len() != running {
        let phases: Vec<String> = mine.iter().map(|vmi| format!("{} {}", vmi.name_any(), vmi.phase())).collect();
        wrong.push(format!("wants {wanted} instances and has {phases:?}"));
    }
    let status = set.status.as_ref().cloned().unwrap_or_default();
    let told = (status.replicas, status.ready_replicas, status.conditions.map_or(0, |all| all.len()));
    if told != (Some(wanted), Some(wanted), 0) {
        wrong.push(format!("wants {wanted} instances and shows {told:?}"));
    }
    wrong
}
