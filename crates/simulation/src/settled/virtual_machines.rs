//! What virtual machines must have come to: each is what its specification says, and tells so.

use std::collections::BTreeMap;

use api::conditions::{self, ConditionStatus};
use api::vm::{VirtualMachine, VirtualMachineRunStrategy as Strategy, VirtualMachineStatus};
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use virt_handler::hollow::Who;

use super::Wrong;
use crate::About;
use crate::ledger::Book;

/// Namespace and name.
type Name = (String, String);

pub(super) async fn check(client: &Client, ledger: &Book, wrong: &mut Wrong) -> Result<(), kube::Error> {
    let vms = Api::<VirtualMachine>::all(client.clone()).list(&ListParams::default()).await?;
    let vmis = Api::<VirtualMachineInstance>::all(client.clone()).list(&ListParams::default()).await?;
    let pods = Api::<Pod>::all(client.clone()).list(&ListParams::default()).await?;
    let vmis: BTreeMap<Name, &VirtualMachineInstance> = vmis.iter().map(|vmi| (name(vmi), vmi)).collect();
    // What is still on its way out is told of with the garbage.
    for vm in vms.iter().filter(|vm| vm.metadata.deletion_timestamp.is_none()) {
        let (namespace, name) = name(vm);
        for what in wrong_with(vm, vmis.get(&(namespace.clone(), name.clone())).copied()) {
            wrong.add(Some(About::of(&vm.metadata)), format!("VM {namespace}/{name} {what} in the end"));
        }
    }
    instances(&vmis, &pods.items, wrong);
    guests(&vmis, ledger, wrong);
    Ok(())
}

fn name<K: kube::ResourceExt>(object: &K) -> Name {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn strategy(vm: &VirtualMachine) -> Strategy {
    let by_the_old_field = if vm.spec.running == Some(true) { Strategy::Always } else { Strategy::Halted };
    vm.spec.run_strategy.clone().unwrap_or(by_the_old_field)
}

fn wrong_with(vm: &VirtualMachine, vmi: Option<&VirtualMachineInstance>) -> Vec<String> {
    let strategy = strategy(vm);
    let status = vm.status.clone().unwrap_or_default();
    let word = status.printable_status.clone().unwrap_or_default();
    let is_running = vmi.is_some_and(VirtualMachineInstance::is_running);
    let is_final = vmi.is_some_and(VirtualMachineInstance::is_final);
    let fits = match strategy {
        Strategy::Always => is_running,
        Strategy::Halted => vmi.is_none(),
        Strategy::Once => is_running || is_final,
        // It was stopped, or never started, or has ended.
        _ => is_running || is_final || vmi.is_none(),
    };
    let mut wrong = Vec::new();
    let phase = vmi.map(|vmi| vmi.phase().to_string());
    if !fits {
        wrong.push(format!("is {strategy}, has an instance in phase {phase:?} and tells {word}"));
    }
    let told = (word.to_string(), status.created.unwrap_or(false), status.ready.unwrap_or(false));
    let wanted = (if is_running { "Running" } else { "Stopped" }.to_owned(), vmi.is_some(), is_running);
    // One that never came to run under a strategy that does not try again tells why.
    let gave_up = is_final && strategy == Strategy::Once && told.0 == "CrashLoopBackOff";
    if told != wanted && !gave_up {
        wrong.push(format!("({strategy}) tells {told:?} of an instance in phase {phase:?}"));
    }
    if status.run_strategy.as_ref() != Some(&strategy) {
        wrong.push(format!("is {strategy} and tells {:?}", status.run_strategy));
    }
    wrong.extend(generations(vm, &status, vmi.filter(|vmi| vmi.is_running())));
    wrong.extend(left_open(&strategy, &status));
    wrong
}

/// The instance is of the VM's last change, or a restart is said to be needed. Of an instance that the VM did not make itself
/// nobody knows.
fn generations(
    vm: &VirtualMachine,
    status: &VirtualMachineStatus,
    running: Option<&VirtualMachineInstance>,
) -> Option<String> {
    let generation = vm.metadata.generation;
    let revision = running.and_then(|vmi| vmi.status.as_ref()?.virtual_machine_revision_name.as_deref());
    let own = revision.is_some_and(|name| name.contains(&vm.uid().unwrap_or_default()));
    let restart = conditions::has(status.conditions.as_deref(), "RestartRequired", &ConditionStatus::True);
    let follows = match own {
        true => restart || status.observed_generation == generation,
        false => running.is_none() || status.observed_generation.is_none(),
    };
    let told = (status.desired_generation, status.observed_generation);
    (status.desired_generation != generation || !follows)
        .then(|| format!("has generation {generation:?} and tells {told:?} as desired and observed"))
}

/// Every request can be done, or will never be: none is left.
fn left_open(strategy: &Strategy, status: &VirtualMachineStatus) -> Option<String> {
    let first = status.state_change_requests.as_ref()?.first()?;
    Some(format!("({strategy}) has a request left: {first:?}"))
}

/// An instance that lives has one pod that lives, and nobody else has one.
fn instances(vmis: &BTreeMap<Name, &VirtualMachineInstance>, pods: &[Pod], wrong: &mut Wrong) {
    let mut live: BTreeMap<String, u32> = BTreeMap::new();
    for pod in pods {
        let owners = pod.owner_references();
        let Some(owner) = owners.iter().find(|owner| owner.kind == "VirtualMachineInstance") else {
            let what = format!("pod {} is nobody's in the end", pod.name_any());
            wrong.add(Some(About::of(&pod.metadata)), what);
            continue;
        };
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
        if !matches!(phase, "Succeeded" | "Failed") {
            *live.entry(owner.uid.clone()).or_default() += 1;
        }
    }
    for ((namespace, name), vmi) in vmis {
        let (phase, about) = (vmi.phase(), About::of(&vmi.metadata));
        if !vmi.is_running() && !vmi.is_final() {
            wrong.add(Some(about.clone()), format!("VMI {namespace}/{name} is {phase} in the end"));
        }
        let has = live.remove(&vmi.uid().unwrap_or_default()).unwrap_or(0);
        if has != u32::from(vmi.is_running()) {
            let what = format!("VMI {namespace}/{name} is {phase} and has {has} live pods in the end");
            wrong.add(Some(about), what);
        }
    }
    for uid in live.keys() {
        let about = About { uid: uid.clone(), ..About::default() };
        wrong.add(Some(about), format!("a pod lives in the end, and its instance {uid} is gone"));
    }
}

/// An instance that says it runs has a guest that could go on, and no guest goes on without one.
fn guests(vmis: &BTreeMap<Name, &VirtualMachineInstance>, ledger: &Book, wrong: &mut Wrong) {
    let running: BTreeMap<String, &Name> = vmis
        .iter()
        .filter(|(_, vmi)| vmi.is_running())
        .map(|(name, vmi)| (vmi.uid().unwrap_or_default(), name))
        .collect();
    for (uid, (namespace, name)) in &running {
        if ledger.holder(uid).is_none() {
            let about = About { namespace: namespace.clone(), name: name.clone(), uid: uid.clone() };
            wrong.add(
                Some(about),
                format!("VMI {namespace}/{name} is Running, and no guest of it could go on in the end"),
            );
        }
    }
    for who in ledger.holders().into_iter().filter(|who| !running.contains_key(&who.instance)) {
        let Who { namespace, name, instance, pod } = who;
        let what =
            format!("a guest of {namespace}/{name} goes on in pod {pod} in the end, and its instance does not say so");
        wrong.add(Some(About { namespace, name, uid: instance }), what);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use virt_handler::hollow::{Ledger as _, Standing};

    use super::*;

    /// No controller can bring this about without breaking another rule first: pods outlive their instance, and nobody stops them.
    #[test]
    fn a_guest_without_an_instance_is_told() {
        let text = |text: &str| text.to_owned();
        let who = |instance: &str| Who {
            namespace: text("n"),
            name: text(instance),
            instance: text(instance),
            pod: text("p"),
        };
        let vmi = |uid: &str, phase: &str| -> VirtualMachineInstance {
            let spec = json!({ "domain": { "devices": {} } });
            let metadata = json!({ "namespace": "n", "name": uid, "uid": uid });
            serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": { "phase": phase } })).unwrap()
        };
        let (runs, over) = (vmi("runs", "Running"), vmi("over", "Failed"));
        let vmis = BTreeMap::from([(name(&runs), &runs), (name(&over), &over)]);
        let ledger = Book::default();
        for uid in ["runs", "over", "gone"] {
            ledger.note(&who(uid), Standing::Holds { runs: true });
        }
        let mut wrong = Wrong::default();
        guests(&vmis, &ledger, &mut wrong);
        let about: Vec<_> = wrong.0.iter().map(|(about, _)| about.as_ref().unwrap().name.as_str()).collect();
        assert_eq!(about, ["gone", "over"]);
    }
}
