//! Watches the server without being in the way, and says what did not hold, event by event in the order of their revisions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use tokio::time::Instant;

use crate::ledger::Book;
use crate::world::World;
use crate::{About, Progress, Scene};

mod deployments;
mod pools;
mod services;
mod virtual_machines;

/// What the user holds objects by.
pub(crate) const HOLD: &str = "simulation.orlop.dev/hold";

/// The kind of replica sets of instances.
const SET: &str = "VirtualMachineInstanceReplicaSet";

/// Group, version and kind.
type Kind = (&'static str, &'static str, &'static str);

const WITH_DEPLOYMENTS: [Kind; 4] =
    [("", "v1", "Pod"), ("apps", "v1", "ReplicaSet"), ("apps", "v1", "Deployment"), ("", "v1", "ConfigMap")];

const WITH_SERVICES: [Kind; 2] = [("", "v1", "Pod"), ("policy", "v1", "PodDisruptionBudget")];

const WITH_VIRTUAL_MACHINES: [Kind; 5] = [
    ("", "v1", "Pod"),
    ("", "v1", "Namespace"),
    ("kubevirt.io", "v1", "VirtualMachine"),
    ("kubevirt.io", "v1", VMI),
    ("kubevirt.io", "v1", SET),
];
const VMI: &str = "VirtualMachineInstance";

const WITH_POOLS: [Kind; 5] = [
    ("", "v1", "Pod"),
    ("", "v1", "Namespace"),
    ("kubevirt.io", "v1", "VirtualMachine"),
    ("kubevirt.io", "v1", VMI),
    ("pool.kubevirt.io", "v1beta1", POOL),
];
const POOL: &str = "VirtualMachinePool";

/// Sees everything.
#[derive(Clone)]
pub(crate) struct Witness {
    kinds: &'static [Kind],
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    /// What was heard and not looked at yet, by revision.
    heard: BTreeMap<u64, Heard>,
    seen: Seen,
}

struct Heard {
    at: Instant,
    deleted: bool,
    kind: &'static str,
    object: Box<DynamicObject>,
    /// The pod in which its guest could go on at that moment, of an instance.
    holder: Option<String>,
}

/// What is known so far.
enum Seen {
    Deployments(deployments::Seen),
    Services(services::Seen),
    VirtualMachines(virtual_machines::Seen),
    Pools(pools::Seen),
}

impl Witness {
    pub(crate) fn new(scene: Scene) -> Self {
        let (kinds, seen): (&[Kind], _) = match scene {
            Scene::Deployments => (&WITH_DEPLOYMENTS, Seen::Deployments(deployments::Seen::default())),
            Scene::Services => (&WITH_SERVICES, Seen::Services(services::Seen::default())),
            Scene::VirtualMachines(scene) => {
                (&WITH_VIRTUAL_MACHINES, Seen::VirtualMachines(virtual_machines::Seen::new(scene.by_force)))
            }
            Scene::Pools(_) => (&WITH_POOLS, Seen::Pools(pools::Seen::new())),
        };
        Self { kinds, shared: Arc::new(Mutex::new(Shared { heard: BTreeMap::new(), seen })) }
    }

    /// Starts to watch; ends with the runtime.
    pub(crate) fn start(&self, client: &Client, world: &Arc<World>) {
        for (group, version, kind) in self.kinds {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            let (witness, ledger) = (self.clone(), world.ledger.clone());
            tokio::spawn(async move {
                let mut events = std::pin::pin!(watcher(api, watcher::Config::default()));
                while let Some(event) = events.next().await {
                    match event {
                        Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                            witness.hear(kind, false, object, &ledger);
                        }
                        Ok(watcher::Event::Delete(object)) => witness.hear(kind, true, object, &ledger),
                        Ok(watcher::Event::Init | watcher::Event::InitDone) | Err(_) => {}
                    }
                }
            });
        }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, kind: &'static str, deleted: bool, object: DynamicObject, ledger: &Book) {
        let revision = object.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0);
        let holder = object.uid().filter(|_| kind == VMI).and_then(|uid| ledger.holder(&uid));
        let heard = Heard { at: Instant::now(), deleted, kind, object: Box::new(object), holder };
        self.shared().heard.insert(revision, heard);
    }

    /// The user lets an object go.
    pub(crate) fn release(&self, uid: String) {
        match &mut self.shared().seen {
            Seen::Deployments(seen) => seen.release(uid),
            Seen::Services(_) => {}
            Seen::VirtualMachines(seen) => seen.release(uid),
            Seen::Pools(seen) => seen.machines.release(uid),
        }
    }

    /// Looks at all that was heard. To be called when everybody waits, so that all was heard.
    pub(crate) fn look(&self, world: &World) {
        let mut shared = self.shared();
        let Shared { heard, seen } = &mut *shared;
        for (about, what) in world.ledger.take_broken() {
            world.violated(Some(about), what);
        }
        for (revision, heard) in std::mem::take(heard) {
            let broken = match seen {
                Seen::Deployments(seen) => seen.look(&heard, world),
                Seen::Services(seen) => seen.look(&heard, world),
                Seen::VirtualMachines(seen) => seen.look(&heard, world),
                Seen::Pools(seen) => seen.look(&heard, world),
            };
            if let Some(what) = broken {
                world.violated(Some(about(&heard)), format!("revision {revision}: {what}"));
            }
        }
    }

    /// What came about so far.
    pub(crate) fn progress(&self) -> Progress {
        match &self.shared().seen {
            Seen::Deployments(seen) => seen.lives.progress(),
            Seen::Services(seen) => seen.lives.progress(),
            Seen::VirtualMachines(seen) => seen.lives.progress(),
            Seen::Pools(seen) => seen.machines.lives.progress(),
        }
    }
}

/// Of a pod, whoever controls it: they have the same story, and the pod is named after it.
fn about(heard: &Heard) -> About {
    let object = &heard.object;
    match controller(object).filter(|_| heard.kind == "Pod") {
        Some(OwnerReference { name, uid, .. }) => {
            About { namespace: object.namespace().unwrap_or_default(), name, uid }
        }
        None => About::of(&object.metadata),
    }
}

fn controller(object: &DynamicObject) -> Option<OwnerReference> {
    object.owner_references().iter().find(|owner| owner.controller == Some(true)).cloned()
}
