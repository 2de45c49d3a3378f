//! Broken controllers of virtual machines.

use std::collections::BTreeSet;
use std::time::Duration;

use api::names::finalizer;
use api::owner::controller_reference;
use api::replicaset::VirtualMachineInstanceReplicaSet;
use api::vm::{VirtualMachine, VirtualMachineRunStrategy};
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use kube_controllers::table as kubernetes;
use manager::cache::controller_of;
use manager::context::{Context, Started};
use manager::descriptor::Descriptor;
use serde_json::{Value, json};
use simulation::{Options, Scene, Seconds, VirtualMachines, check};
use tokio::time::sleep;
use virt_controller as virt;
use virt_handler::hollow::Twin;

use super::{FIRST, NONE, must_catch, must_catch_before, virtual_machines, without};

/// Makes a launcher for each instance that has none in its cache, under a name that the server chooses: after a lost answer
/// or a late watch there are two.
fn hasty_launcher(context: &Context) -> Started {
    let (client, vmis) = (context.client.clone(), context.caches.of::<VirtualMachineInstance>(&[]));
    let pods = context.caches.of::<Pod>(&[("controller", controller_of)]);
    Started::new(async move {
        vmis.synced().await;
        pods.synced().await;
        loop {
            sleep(Duration::from_millis(200)).await;
            for vmi in vmis.all() {
                if vmi.metadata.deletion_timestamp.is_some() {
                    // As the real one does: who waits for the end of an instance would wait for ever, and the test with it.
                    let api: Api<VirtualMachineInstance> = Api::namespaced(client.clone(), &vmi.namespace().unwrap());
                    let patch = json!({ "metadata": { "finalizers": null } });
                    drop(api.patch(&vmi.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await);
                    continue;
                }
                if !pods.find("controller", &vmi.uid().unwrap()).is_empty() {
                    continue;
                }
                let owner = controller_reference(&*vmi).unwrap();
                let metadata = json!({ "generateName": "virt-launcher-", "ownerReferences": [owner] });
                let containers = json!([{ "name": "compute", "image": "launcher" }]);
                let pod = json!({ "metadata": metadata, "spec": { "containers": containers } });
                let api: Api<Pod> = Api::namespaced(client.clone(), &vmi.namespace().unwrap());
                drop(api.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await);
            }
        }
    })
}

#[test]
fn a_controller_that_lets_the_server_name_launchers_is_caught() {
    let broken = Descriptor::new("hasty-launcher-controller", &[], |context, _| Ok(hasty_launcher(context)));
    must_catch(&["a second launcher of one instance"], virtual_machines("vmi-controller", Some(broken)));
}

/// Keeps VMs running as it once saw them, whatever they ask for by now.
fn dreaming(context: &Context) -> Started {
    let (client, vms) = (context.client.clone(), context.caches.of::<VirtualMachine>(&[]));
    Started::new(async move {
        vms.synced().await;
        let seen = vms.all();
        loop {
            sleep(Duration::from_secs(20)).await;
            let always = Some(VirtualMachineRunStrategy::Always);
            for vm in seen.iter().filter(|vm| vm.spec.run_strategy == always) {
                let mut vmi = VirtualMachineInstance::default();
                vmi.metadata.name = vm.metadata.name.clone();
                vmi.metadata.owner_references = controller_reference(&**vm).map(|owner| vec![owner]);
                vmi.spec = vm.spec.template.spec.clone().unwrap();
                let api: Api<VirtualMachineInstance> = Api::namespaced(client.clone(), &vm.namespace().unwrap());
                drop(api.create(&PostParams::default(), &vmi).await);
            }
        }
    })
}

#[test]
fn a_controller_that_starts_a_vm_as_it_once_was_is_caught_in_the_storm() {
    let broken = Descriptor::new("dreaming-controller", &[], |context, _| Ok(dreaming(context)));
    let rule = "for a VM that has asked for none";
    must_catch_before(Seconds(60_000), &[rule], virtual_machines(NONE, Some(broken)));
}

/// Clears away instances that are deleted, without a look at their pods.
fn impatient(context: &Context) -> Started {
    let (client, vmis) = (context.client.clone(), context.caches.of::<VirtualMachineInstance>(&[]));
    Started::new(async move {
        let mut changes = vmis.subscribe();
        loop {
            let Some(vmi) = changes.next().await.new else { continue };
            if vmi.is_marked_for_deletion() {
                let others: Vec<_> = vmi.finalizers().iter().filter(|one| *one != finalizer::VMI).collect();
                let patch = json!({ "metadata": { "finalizers": others } });
                let api: Api<VirtualMachineInstance> = Api::namespaced(client.clone(), &vmi.namespace().unwrap());
                drop(api.patch(&vmi.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await);
            }
        }
    })
}

#[test]
fn a_controller_that_lets_an_instance_go_before_its_pod_is_caught() {
    let broken = Descriptor::new("impatient-controller", &[], |context, _| Ok(impatient(context)));
    must_catch(&["lost its finalizer while it has"], virtual_machines(NONE, Some(broken)));
}

/// Clears away VMs that are deleted, without a look at their instances.
fn heartless(context: &Context) -> Started {
    let (client, vms) = (context.client.clone(), context.caches.of::<VirtualMachine>(&[]));
    Started::new(async move {
        let mut changes = vms.subscribe();
        loop {
            let Some(vm) = changes.next().await.new else { continue };
            if vm.metadata.deletion_timestamp.is_some() {
                let others: Vec<_> = vm.finalizers().iter().filter(|one| *one != finalizer::VM_CONTROLLER).collect();
                let patch = json!({ "metadata": { "finalizers": others } });
                let api: Api<VirtualMachine> = Api::namespaced(client.clone(), &vm.namespace().unwrap());
                drop(api.patch(&vm.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await);
            }
        }
    })
}

#[test]
fn a_controller_that_lets_a_vm_go_before_its_instance_is_caught() {
    let broken = Descriptor::new("heartless-controller", &[], |context, _| Ok(heartless(context)));
    must_catch(&["lost its finalizer while its instance is there"], virtual_machines(NONE, Some(broken)));
}

/// Deletes what belongs to nobody.
fn tidy(context: &Context) -> Started {
    let (client, vmis) = (context.client.clone(), context.caches.of::<VirtualMachineInstance>(&[]));
    Started::new(async move {
        let mut changes = vmis.subscribe();
        loop {
            let Some(vmi) = changes.next().await.new else { continue };
            if vmi.owner_references().is_empty() {
                let api: Api<VirtualMachineInstance> = Api::namespaced(client.clone(), &vmi.namespace().unwrap());
                drop(api.delete(&vmi.name_any(), &DeleteParams::default()).await);
            }
        }
    })
}

#[test]
fn a_controller_that_deletes_an_instance_of_nobody_is_caught() {
    let broken = Descriptor::new("tidy-controller", &[], |context, _| Ok(tidy(context)));
    must_catch(&["was deleted, and belongs to nobody"], virtual_machines(NONE, Some(broken)));
}

async fn set_phase(client: &Client, vmi: &VirtualMachineInstance, phase: &str) {
    let api: Api<VirtualMachineInstance> = Api::namespaced(client.clone(), &vmi.namespace().unwrap());
    let patch = json!({ "metadata": { "uid": vmi.uid() }, "status": { "phase": phase } });
    drop(api.patch(&vmi.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await);
}

/// Begins again with instances that run.
fn rewinding(context: &Context) -> Started {
    let (client, vmis) = (context.client.clone(), context.caches.of::<VirtualMachineInstance>(&[]));
    Started::new(async move {
        let (mut changes, mut seen) = (vmis.subscribe(), BTreeSet::new());
        loop {
            let Some(vmi) = changes.next().await.new else { continue };
            if vmi.is_running() && seen.insert(vmi.uid()) {
                set_phase(&client, &vmi, "Scheduled").await;
            }
        }
    })
}

#[test]
fn a_controller_that_takes_a_phase_back_is_caught() {
    let broken = Descriptor::new("rewinding-controller", &[], |context, _| Ok(rewinding(context)));
    must_catch(&["went from Running to Scheduled"], virtual_machines(NONE, Some(broken)));
}

#[test]
fn a_report_shows_what_has_to_do_with_the_broken_object() {
    let broken = Descriptor::new("rewinding-controller", &[], |context, _| Ok(rewinding(context)));
    let options = virtual_machines(NONE, Some(broken));
    let report = FIRST.into_iter().find_map(|seed| check(&options(seed)).err()).unwrap();
    let about = report.split_once("before that, about ").and_then(|(_, rest)| rest.split(' ').next()).unwrap();
    let (namespace, name) = about.split_once('/').unwrap();
    let requests: Vec<&str> = report.lines().filter(|line| line.contains(" → ")).collect();
    let (place, own) = (format!("/namespaces/{namespace}/"), format!("/virtualmachineinstances/{name}"));
    assert!(
        requests.iter().any(|line| line.contains("rewinding-controller: PATCH") && line.contains(&own)),
        "{report}"
    );
    let of_others = |line: &&&str| !line.contains(&place) || line.contains("/leases") || line.contains("/events");
    assert_eq!(requests.iter().find(of_others), None, "{report}");
}

/// Says of each instance that it runs, without a pod.
fn boastful(context: &Context) -> Started {
    let (client, vmis) = (context.client.clone(), context.caches.of::<VirtualMachineInstance>(&[]));
    Started::new(async move {
        let mut changes = vmis.subscribe();
        loop {
            let Some(vmi) = changes.next().await.new else { continue };
            if !vmi.is_running() {
                set_phase(&client, &vmi, "Running").await;
            }
        }
    })
}

#[test]
fn a_controller_that_tells_of_guests_that_are_not_there_is_caught() {
    let broken = Descriptor::new("boastful-controller", &[], |context, _| Ok(boastful(context)));
    let rules = ["is Running and has 0 live pods in the end", "no guest of it could go on in the end"];
    must_catch(&rules, virtual_machines("vmi-controller", Some(broken)));
}

async fn make_pod(client: &Client, namespace: &str, name: &str, owners: Value) {
    let metadata = json!({ "name": name, "ownerReferences": owners, "labels": { "kubevirt.io": "virt-launcher" } });
    let containers = json!([{ "name": "compute", "image": "launcher" }]);
    let pod = json!({ "metadata": metadata, "spec": { "containers": containers } });
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    drop(api.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await);
}

/// Makes a second launcher, for an instance as it was before.
fn nostalgic(context: &Context) -> Started {
    let (client, vmis) = (context.client.clone(), context.caches.of::<VirtualMachineInstance>(&[]));
    Started::new(async move {
        let mut changes = vmis.subscribe();
        loop {
            let change = changes.next().await;
            let (Some(old), None) = (&change.old, &change.new) else { continue };
            let owners = json!([controller_reference(&**old).unwrap()]);
            make_pod(&client, &change.key.namespace, &format!("late-{}", change.key.name), owners).await;
        }
    })
}

#[test]
fn a_launcher_of_an_earlier_instance_is_caught() {
    let broken = Descriptor::new("nostalgic-controller", &[], |context, _| Ok(nostalgic(context)));
    must_catch(&["while that of an earlier instance has not ended"], virtual_machines(NONE, Some(broken)));
}

/// Without a collector nobody clears such a launcher away. What it writes to is not looked at here: that is the rule above.
#[test]
fn a_launcher_that_outlives_its_instance_is_caught() {
    let late = Descriptor::new("nostalgic-controller", &[], |context, _| Ok(nostalgic(context)));
    let scene = VirtualMachines {
        controllers: without(virt::DESCRIPTORS, NONE, Some(late)),
        by_force: true,
        handlers: Twin::None,
    };
    let controllers = without(kubernetes::DESCRIPTORS, "garbage-collector-controller", None);
    let scene = Scene::VirtualMachines(scene);
    must_catch(&["a pod lives in the end, and its instance"], |seed| Options {
        controllers,
        scene,
        ..Options::virtual_machines(seed)
    });
}

/// Makes pods that nobody owns.
fn littering(context: &Context) -> Started {
    let (client, vmis) = (context.client.clone(), context.caches.of::<VirtualMachineInstance>(&[]));
    Started::new(async move {
        let mut changes = vmis.subscribe();
        loop {
            let change = changes.next().await;
            make_pod(&client, &change.key.namespace, &format!("of-nobody-{}", change.key.name), Value::Null).await;
        }
    })
}

#[test]
fn a_pod_of_nobody_is_caught() {
    let broken = Descriptor::new("littering-controller", &[], |context, _| Ok(littering(context)));
    must_catch(&["is nobody's in the end"], virtual_machines(NONE, Some(broken)));
}

/// Makes an instance for each change of a set, whatever its cache shows, under a name that the server chooses.
fn greedy(context: &Context) -> Started {
    let (client, sets) = (context.client.clone(), context.caches.of::<VirtualMachineInstanceReplicaSet>(&[]));
    Started::new(async move {
        let mut changes = sets.subscribe();
        loop {
            let Some(set) = changes.next().await.new.filter(|set| set.spec.replicas > Some(0)) else { continue };
            let metadata = json!({
                "generateName": "more-", "labels": { "app": set.name_any() },
                "ownerReferences": [controller_reference(&*set).unwrap()],
            });
            let (version, kind) = ("kubevirt.io/v1", "VirtualMachineInstance");
            let vmi =
                json!({ "apiVersion": version, "kind": kind, "metadata": metadata, "spec": set.spec.template.spec });
            let api: Api<VirtualMachineInstance> = Api::namespaced(client.clone(), &set.namespace().unwrap());
            drop(api.create(&PostParams::default(), &serde_json::from_value(vmi).unwrap()).await);
        }
    })
}

#[test]
fn a_set_that_makes_more_than_it_is_asked_for_is_caught() {
    let broken = Descriptor::new("greedy-controller", &[], |context, _| Ok(greedy(context)));
    must_catch(&["for a set that was never asked for more than"], virtual_machines(NONE, Some(broken)));
}
