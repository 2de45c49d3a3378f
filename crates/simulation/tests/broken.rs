//! Controllers that are broken in ways that a review would miss, and the simulation that must catch each of them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use api::names::finalizer;
use api::owner::controller_reference;
use api::vm::{VirtualMachine, VirtualMachineRunStrategy};
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use kube_controllers::table::{DESCRIPTORS, Settings};
use manager::cache::{Key, controller_of};
use manager::context::{Context, Started};
use manager::descriptor::Descriptor;
use manager::worker::{Next, work};
use serde_json::json;
use simulation::{Options, Scene, Violation, VirtualMachines, run};
use tokio::time::sleep;
use virt_controller::table as virt;

/// Seeds in which a broken controller must be caught.
const SEEDS: u64 = 40;

/// The usual controllers without one, and with another.
fn with(broken: Descriptor<Settings>, without: &str) -> &'static [Descriptor<Settings>] {
    let mut table: Vec<_> = DESCRIPTORS.iter().filter(|one| one.name != without).cloned().collect();
    table.push(broken);
    table.leak()
}

fn first_violation(controllers: &'static [Descriptor<Settings>]) -> Option<Violation> {
    violations(controllers).next()
}

fn violations(controllers: &'static [Descriptor<Settings>]) -> impl Iterator<Item = Violation> {
    (0..SEEDS).filter_map(move |seed| run(&Options { controllers, ..Options::seeded(seed) }).unwrap().violation)
}

/// Creates what its cache does not show, without waiting for what it has created, under names that the server chooses: after
/// a lost answer or a late watch there are too many.
fn hasty(context: &Context) -> Started {
    let (client, queue) = (context.client.clone(), context.queue::<Key>("hasty"));
    let (sets, pods) = (context.caches.of::<ReplicaSet>(&[]), context.caches.of::<Pod>(&[]));
    Started::new(async move {
        sets.synced().await;
        pods.synced().await;
        let feed = async {
            let (mut of_sets, mut of_pods) = (sets.subscribe(), pods.subscribe());
            loop {
                tokio::select! {
                    biased;
                    change = of_sets.next() => queue.add(change.key),
                    _ = of_pods.next() => sets.all().iter().for_each(|set| queue.add(Key::of(&**set))),
                }
            }
        };
        let reconcile = |key: Key| {
            let (client, sets, pods) = (client.clone(), sets.clone(), pods.clone());
            async move {
                let Some(set) = sets.get(&key) else { return Ok(Next::Wait) };
                let (uid, spec) = (set.uid(), set.spec.clone().unwrap_or_default());
                let mine = |pod: &Pod| pod.owner_references().iter().any(|owner| Some(&owner.uid) == uid.as_ref());
                let have = pods.all().iter().filter(|pod| mine(pod)).count();
                let api: Api<Pod> = Api::namespaced(client, &key.namespace);
                for _ in have..usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0) {
                    let template = spec.template.clone().unwrap_or_default();
                    let mut pod = Pod { spec: template.spec, ..Pod::default() };
                    pod.metadata = template.metadata.unwrap_or_default();
                    pod.metadata.generate_name = Some(format!("{}-", key.name));
                    pod.metadata.owner_references =
                        kube::Resource::controller_owner_ref(&*set, &()).map(|one| vec![one]);
                    api.create(&PostParams::default(), &pod).await?;
                }
                Ok::<_, kube::Error>(Next::Wait)
            }
        };
        tokio::select! {
            biased;
            () = work("hasty", &queue, 3, reconcile) => {}
            () = feed => {}
        }
    })
}

#[test]
fn a_controller_that_creates_too_much_is_caught() {
    let broken = Descriptor::new("hasty-controller", &[], |context, _| Ok(hasty(context)));
    // It writes no status either, which is found in every seed that it survives until the end.
    let mut found = violations(with(broken, "replicaset-controller"));
    assert!(found.any(|violation| violation.what.contains("never asked for more than")));
}

/// Writes the time somewhere, again and again.
fn restless(context: &Context) -> Started {
    let (client, now) = (context.client.clone(), context.now.clone());
    Started::new(async move {
        let api: Api<ConfigMap> = Api::namespaced(client, "kube-system");
        let mut heartbeat = ConfigMap::default();
        heartbeat.metadata.name = Some("heartbeat".to_owned());
        loop {
            sleep(Duration::from_secs(60)).await;
            drop(api.create(&PostParams::default(), &heartbeat).await);
            let patch = json!({ "data": { "at": now().to_string() } });
            drop(api.patch("heartbeat", &PatchParams::default(), &Patch::Merge(&patch)).await);
        }
    })
}

#[test]
fn a_controller_that_never_rests_is_caught() {
    let broken = Descriptor::new("restless-controller", &[], |context, _| Ok(restless(context)));
    let violation = first_violation(with(broken, "none")).unwrap();
    assert!(violation.what.contains("somebody writes for ever"), "{violation}");
}

/// Clears away what is deleted, and the finalizers of others with it.
fn careless(context: &Context) -> Started {
    let (client, maps) = (context.client.clone(), context.caches.of::<ConfigMap>(&[]));
    Started::new(async move {
        let mut changes = maps.subscribe();
        loop {
            let Some(map) = changes.next().await.new else { continue };
            if map.metadata.deletion_timestamp.is_some() {
                let api: Api<ConfigMap> = Api::namespaced(client.clone(), &map.namespace().unwrap_or_default());
                let patch = json!({ "metadata": { "finalizers": null } });
                drop(api.patch(&map.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await);
            }
        }
    })
}

#[test]
fn a_controller_that_drops_finalizers_is_caught() {
    let broken = Descriptor::new("careless-controller", &[], |context, _| Ok(careless(context)));
    let violation = first_violation(with(broken, "none")).unwrap();
    assert!(violation.what.contains("lost the finalizer"), "{violation}");
}

#[test]
fn without_a_collector_garbage_is_found() {
    let idle = Descriptor::new("idle-controller", &[], |_, _| Ok(Started::new(std::future::pending())));
    let violation = first_violation(with(idle, "garbage-collector-controller")).unwrap();
    assert!(violation.what.contains("garbage") || violation.what.contains("still there"), "{violation}");
}

/// The usual controllers of virtual machines without one, and with another.
fn with_virtual(broken: Descriptor<virt::Settings>, without: &str) -> impl Iterator<Item = Violation> {
    let mut table: Vec<_> = virt::DESCRIPTORS.iter().filter(|one| one.name != without).cloned().collect();
    table.push(broken);
    let scene = Scene::VirtualMachines(VirtualMachines { controllers: table.leak(), by_force: false });
    (0..SEEDS).filter_map(move |seed| run(&Options { scene, ..Options::virtual_machines(seed) }).unwrap().violation)
}

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
    let mut found = with_virtual(broken, "vmi-controller");
    assert!(found.any(|violation| violation.what.contains("a second launcher of one instance")));
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
fn a_controller_that_starts_a_vm_as_it_once_was_is_caught() {
    let broken = Descriptor::new("dreaming-controller", &[], |context, _| Ok(dreaming(context)));
    let mut found = with_virtual(broken, "none");
    assert!(found.any(|violation| violation.what.contains("for a VM that has asked for none")));
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
    let violation = with_virtual(broken, "none").next().unwrap();
    assert!(violation.what.contains("lost its finalizer while it has"), "{violation}");
}

#[test]
fn two_runs_of_a_seed_are_equal_and_two_seeds_are_not() {
    let logs = [7, 7, 8].map(|seed| run(&Options::seeded(seed)).unwrap().log.lines());
    assert_eq!(logs[0], logs[1]);
    assert_ne!(logs[0], logs[2]);
}
