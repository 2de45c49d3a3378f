//! No second pod for one slot, and no lost finalizer.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt as _;
use kube::core::DynamicObject;
use serde_json::Value;
use tokio::time::Instant;

use super::{HOLD, Heard, controller};
use crate::progress::Lives;
use crate::world::World;

/// What is known so far.
#[derive(Default)]
pub(super) struct Seen {
    pods: BTreeMap<String, Pod>,
    /// When a pod of a replica set last went.
    went: BTreeMap<String, Instant>,
    pub(super) lives: Lives,
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
    /// Whether nobody could have known that there would be one too many.
    excused: bool,
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
    /// The user lets an object go.
    pub(super) fn release(&mut self, uid: String) {
        self.released.insert(uid);
    }

    pub(super) fn look(&mut self, heard: &Heard, world: &World) -> Option<String> {
        let Heard { at, deleted, kind, object, .. } = heard;
        match *kind {
            "Pod" => self.pod(object, *deleted, *at, world),
            "ReplicaSet" => {
                self.replica_set(object);
                None
            }
            "Deployment" => {
                self.deployment(object);
                None
            }
            _ => self.config_map(object, *deleted),
        }
    }

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
        let Some(deployment) = controller(object).map(|owner| owner.uid) else { return };
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

    /// No second pod for one slot: never more of them than their owner ever asked for, and those apart that are excused.
    fn pod(&mut self, object: &DynamicObject, deleted: bool, at: Instant, world: &World) -> Option<String> {
        let (uid, set) = (object.uid()?, controller(object)?.uid);
        let phase = object.data["status"]["phase"].as_str().unwrap_or("Pending");
        let active =
            !deleted && object.metadata.deletion_timestamp.is_none() && !matches!(phase, "Failed" | "Succeeded");
        self.lives.see(&uid, phase == "Running", deleted || matches!(phase, "Failed" | "Succeeded"));
        if deleted {
            self.went.insert(set.clone(), at);
        }
        let before = self.pods.get(&uid).map(|pod| pod.excused);
        let excused = before.unwrap_or_else(|| self.is_excused(object, &set, world));
        self.pods.insert(uid, Pod { set: set.clone(), active: active && !excused, excused });
        if before.is_some() || !active || excused {
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

    /// Two leaders give one slot the same name, so that the later request fails. Not so where the first one saw a pod on its
    /// way out, whose name was free again for the second one, and its own request arrived after it was gone.
    fn is_excused(&self, object: &DynamicObject, set: &str, world: &World) -> bool {
        let left = world.left(&(object.namespace().unwrap_or_default(), object.name_any()));
        left.is_some_and(|left| self.went.get(set).is_some_and(|went| *went >= left))
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
