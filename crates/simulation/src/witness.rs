//! Watches the server without being in the way, and says what did not hold, event by event in the order of their revisions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt as _;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;

use crate::world::World;

/// What the user holds objects by.
pub(crate) const HOLD: &str = "simulation.orlop.dev/hold";

const KINDS: [(&str, &str, &str); 4] =
    [("", "v1", "Pod"), ("apps", "v1", "ReplicaSet"), ("apps", "v1", "Deployment"), ("", "v1", "ConfigMap")];

/// Sees everything.
#[derive(Clone, Default)]
pub(crate) struct Witness {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    /// What was heard and not looked at yet, by revision.
    heard: BTreeMap<u64, Heard>,
    seen: Seen,
}

struct Heard {
    deleted: bool,
    kind: &'static str,
    object: Box<DynamicObject>,
}

/// What is known so far.
#[derive(Default)]
struct Seen {
    pods: BTreeMap<String, Pod>,
    /// The most pods that a replica set or a deployment ever asked for, by UID.
    most: BTreeMap<String, i64>,
    /// Which deployment a replica set belongs to.
    deployment_of: BTreeMap<String, String>,
    /// Config maps that the user holds.
    held: BTreeSet<String>,
    /// Those that the user has let go.
    released: BTreeSet<String>,
}

struct Pod {
    set: String,
    active: bool,
}

impl Witness {
    /// Starts to watch; ends with the runtime.
    pub(crate) fn start(&self, client: &Client) {
        for (group, version, kind) in KINDS {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            let witness = self.clone();
            tokio::spawn(async move {
                let mut events = std::pin::pin!(watcher(api, watcher::Config::default()));
                while let Some(event) = events.next().await {
                    match event {
                        Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                            witness.hear(kind, false, object);
                        }
                        Ok(watcher::Event::Delete(object)) => witness.hear(kind, true, object),
                        Ok(watcher::Event::Init | watcher::Event::InitDone) | Err(_) => {}
                    }
                }
            });
        }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, kind: &'static str, deleted: bool, object: DynamicObject) {
        let revision = object.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0);
        self.shared().heard.insert(revision, Heard { deleted, kind, object: Box::new(object) });
    }

    /// The user lets an object go.
    pub(crate) fn release(&self, uid: String) {
        self.shared().seen.released.insert(uid);
    }

    /// Looks at all that was heard. To be called when everybody waits, so that all was heard.
    pub(crate) fn look(&self, world: &World) {
        let mut shared = self.shared();
        let Shared { heard, seen } = &mut *shared;
        for (revision, Heard { deleted, kind, object }) in std::mem::take(heard) {
            let broken = match kind {
                "Pod" => seen.pod(&object, deleted),
                "ReplicaSet" => {
                    seen.replica_set(&object);
                    None
                }
                "Deployment" => {
                    seen.deployment(&object);
                    None
                }
                _ => seen.config_map(&object, deleted),
            };
            if let Some(what) = broken {
                world.violated(format!("revision {revision}: {what}"));
            }
        }
    }
}

fn controller(object: &DynamicObject) -> Option<String> {
    object.owner_references().iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone())
}

/// A number, or a part of a hundred, rounded up.
fn share(value: &Value, of: i64) -> i64 {
    match value {
        Value::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            (percent * of + 99) / 100
        }
        value => value.as_i64().unwrap_or(0),
    }
}

impl Seen {
    fn deployment(&mut self, object: &DynamicObject) {
        let spec = &object.data["spec"];
        let replicas = spec["replicas"].as_i64().unwrap_or(1);
        let surge = match spec["strategy"]["type"].as_str() {
            Some("Recreate") => 0,
            _ => share(&spec["strategy"]["rollingUpdate"]["maxSurge"], replicas),
        };
        self.asks_for(object, replicas + surge);
    }

    fn replica_set(&mut self, object: &DynamicObject) {
        let replicas = object.data["spec"]["replicas"].as_i64().unwrap_or(1);
        let uid = object.uid().unwrap_or_default();
        let is_new = !self.most.contains_key(&uid);
        self.asks_for(object, replicas);
        let Some(deployment) = controller(object) else { return };
        let before = self.deployment_of.insert(uid, deployment.clone());
        // Who adopts a replica set has its pods as well, and the set goes on until it is told otherwise.
        if !is_new && before.as_ref() != Some(&deployment) {
            *self.most.entry(deployment).or_insert(0) += replicas;
        }
    }

    fn asks_for(&mut self, object: &DynamicObject, pods: i64) {
        let most = self.most.entry(object.uid().unwrap_or_default()).or_insert(0);
        *most = (*most).max(pods);
    }

    /// No second pod for one slot: never more of them than their owner ever asked for.
    fn pod(&mut self, object: &DynamicObject, deleted: bool) -> Option<String> {
        let (uid, set) = (object.uid()?, controller(object)?);
        let phase = object.data["status"]["phase"].as_str().unwrap_or("Pending");
        let active =
            !deleted && object.metadata.deletion_timestamp.is_none() && !matches!(phase, "Failed" | "Succeeded");
        let before = self.pods.insert(uid, Pod { set: set.clone(), active });
        if before.is_some() || !active {
            return None;
        }
        let count = |of: &dyn Fn(&str) -> bool| {
            self.pods.values().filter(|pod| pod.active && of(&pod.set)).count().try_into().unwrap_or(i64::MAX)
        };
        let (have, most) = (count(&|one| one == set), self.most.get(&set).copied().unwrap_or(0));
        if have > most {
            return Some(format!(
                "{} is pod {have} of a replica set that never asked for more than {most}",
                object.name_any()
            ));
        }
        let deployment = self.deployment_of.get(&set)?;
        let have = count(&|one| self.deployment_of.get(one) == Some(deployment));
        let most = self.most.get(deployment).copied().unwrap_or(0);
        (have > most).then(|| {
            format!("{} is pod {have} of a deployment that never asked for more than {most}", object.name_any())
        })
    }

    /// No finalizer is lost: what the user holds stays until the user lets it go.
    fn config_map(&mut self, object: &DynamicObject, deleted: bool) -> Option<String> {
        let uid = object.uid()?;
        let holds = object.finalizers().iter().any(|one| one == HOLD);
        if holds && !deleted {
            self.held.insert(uid);
            return None;
        }
        let lost = self.held.contains(&uid) && !self.released.contains(&uid);
        lost.then(|| format!("config map {} lost the finalizer of its user", object.name_any()))
    }
}
