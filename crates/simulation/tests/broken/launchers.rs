//! Broken handlers, over simulated launchers that say themselves who may write.

use std::collections::BTreeMap;
use std::time::Duration;

use api::names::label;
use api::owner::controller_reference;
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt as _};
use manager::context::{Context, Started};
use manager::descriptor::Descriptor;
use serde_json::json;
use simulation::{Options, Scene, VirtualMachines, run};
use tokio::time::{Instant, sleep};
use virt_controller as virt;
use virt_handler::hollow::Twin;
use virt_rules::launchers::name;

use super::{NONE, must_catch, without};

const NODES: [&str; 3] = ["node-0", "node-1", "node-2"];
/// How long a launcher waits for a guest that never comes.
const WAITS: Duration = Duration::from_secs(8);

/// Has a second launcher made for each instance that runs, once, and takes it away again: a migration that comes to nothing.
fn wavering(context: &Context) -> Started {
    let (client, vmis) = (context.client.clone(), context.caches.of::<VirtualMachineInstance>(&[]));
    Started::new(async move {
        vmis.synced().await;
        let mut made: BTreeMap<(String, String), Option<Instant>> = BTreeMap::new();
        loop {
            sleep(Duration::from_millis(500)).await;
            for vmi in vmis.all().iter().filter(|vmi| vmi.is_running() && !vmi.is_marked_for_deletion()) {
                let (namespace, uid) = (vmi.namespace().unwrap(), vmi.uid().unwrap());
                let own = vmi.status.as_ref().and_then(|status| status.node_name.clone()).unwrap_or_default();
                let node = NODES.into_iter().find(|node| **node != own).unwrap();
                let target = name::target(&vmi.name_any(), &uid);
                let place = (namespace.clone(), target.clone());
                if made.contains_key(&place) {
                    continue;
                }
                let labels =
                    json!({ "kubevirt.io": "virt-launcher", label::CREATED_BY: uid, label::MIGRATION_JOB_UID: "m" });
                let owner = controller_reference(&**vmi).unwrap();
                let metadata = json!({ "name": target, "labels": labels, "ownerReferences": [owner] });
                let spec = json!({ "nodeName": node, "containers": [{ "name": "compute", "image": "launcher:v1" }] });
                let pod = serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap();
                let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
                drop(api.create(&PostParams::default(), &pod).await);
                made.insert(place, Some(Instant::now()));
            }
            for ((namespace, target), since) in &mut made {
                if since.is_none_or(|since| since.elapsed() < WAITS) {
                    continue;
                }
                let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
                if api.delete(target, &DeleteParams::default().grace_period(0)).await.is_ok()
                    || gone(&api, target).await
                {
                    *since = None;
                }
            }
        }
    })
}

async fn gone(api: &Api<Pod>, name: &str) -> bool {
    matches!(api.get_opt(name).await, Ok(None))
}

/// Instances that have two launchers for a while, under handlers that are broken like this.
fn with_two(handlers: Twin) -> impl Fn(u64) -> Options {
    let wavering = Descriptor::new("wavering-controller", &[], |context, _| Ok(wavering(context)));
    let controllers = without(virt::DESCRIPTORS, NONE, Some(wavering));
    let scene = Scene::VirtualMachines(VirtualMachines { controllers, by_force: false, handlers });
    move |seed| Options { scene, ..Options::virtual_machines(seed) }
}

#[test]
fn a_handler_that_starts_a_guest_in_a_launcher_that_awaits_one_is_caught() {
    must_catch(&["2 launchers may write to the disks of"], with_two(Twin::StartsTargets));
}

#[test]
fn a_handler_that_speaks_for_a_launcher_that_does_not_hold_the_guest_is_caught() {
    must_catch(&["while its guest goes on in pod"], with_two(Twin::SpeaksForOthers));
}

/// What is broken above are the handlers, and not that there are two launchers.
#[test]
fn two_launchers_of_one_instance_break_nothing() {
    for seed in 0..6 {
        let outcome = run(&with_two(Twin::None)(seed)).unwrap();
        let rules = ["may write to the disks", "while its guest goes on", "in the end"];
        let broken = outcome.violations.iter().find(|one| rules.iter().any(|rule| one.what.contains(rule)));
        assert_eq!(broken, None, "seed {seed}");
    }
}
