//! A small world: a deployment, its replica sets and pods, and both decisions carried out at the test's bidding.

use std::collections::BTreeSet;

use jiff::SignedDuration;

use super::*;
use crate::replicaset;

pub(super) struct World {
    pub(super) deployment: Deployment,
    pub(super) sets: Vec<ReplicaSet>,
    pub(super) pods: Vec<Pod>,
    pub(super) now: Timestamp,
    born: u32,
    /// The most active pods there ever were right after one was created.
    pub(super) peak: usize,
}

impl World {
    pub(super) fn new(deployment: Deployment) -> Self {
        Self { deployment, sets: Vec::new(), pods: Vec::new(), now: now(), born: 0, peak: 0 }
    }

    pub(super) fn edit(&mut self, change: impl FnOnce(&mut DeploymentSpec)) {
        change(self.deployment.spec.as_mut().unwrap());
        *self.deployment.metadata.generation.as_mut().unwrap() += 1;
    }

    pub(super) fn active(&self) -> usize {
        self.pods.iter().filter(|pod| crate::pods::is_active(pod)).count()
    }

    pub(super) fn ready(&self) -> usize {
        let active = self.pods.iter().filter(|pod| crate::pods::is_active(pod));
        active.filter(|pod| crate::pods::is_ready(pod)).count()
    }

    /// One turn of the deployment controller. Says whether there was anything to write.
    pub(super) fn deploy(&mut self) -> bool {
        let seen = Observed {
            deployment: &self.deployment,
            replica_sets: self.sets.iter().collect(),
            pods: self.pods.iter().collect(),
            taken_names: BTreeSet::new(),
        };
        let plan = decide(&seen, self.now).unwrap();
        assert_eq!(plan, decide(&seen, self.now).unwrap(), "equal observations give equal plans");
        let writes = Plan { recheck_after: None, ..plan.clone() } != Plan::default();
        if let Some(mut set) = plan.create {
            assert!(self.sets.iter().all(|known| known.metadata.name != set.metadata.name));
            self.born += 1;
            set.metadata.uid = Some(format!("u-set-{}", self.born));
            set.metadata.generation = Some(1);
            set.metadata.creation_timestamp = Some(self.now.into());
            self.sets.push(*set);
        }
        for update in plan.update {
            let set = self.sets.iter_mut().find(|set| set.metadata.uid.as_ref() == Some(&update.target.uid)).unwrap();
            let mut changed = serde_json::to_value(&*set).unwrap();
            merge(&mut changed, &update.patch());
            let mut changed: ReplicaSet = serde_json::from_value(changed).unwrap();
            if changed.spec != set.spec {
                *changed.metadata.generation.as_mut().unwrap() += 1;
            }
            *set = changed;
        }
        self.sets.retain(|set| !plan.delete.iter().any(|target| set.metadata.uid.as_ref() == Some(&target.uid)));
        if let Some(revision) = plan.revision {
            let annotations = self.deployment.metadata.annotations.get_or_insert_default();
            annotations.insert("deployment.kubernetes.io/revision".to_owned(), revision);
        }
        if plan.status.is_some() {
            self.deployment.status = plan.status;
        }
        writes
    }

    /// One turn of the replica set controller for one set. Says whether there was anything to write.
    pub(super) fn replicate(&mut self, index: usize) -> bool {
        let Some(set) = self.sets.get(index) else { return false };
        let is_mine = |pod: &&Pod| claim::is_controlled_by(&pod.metadata, &set.metadata);
        let seen = replicaset::Observed {
            replica_set: set,
            pods: self.pods.iter().filter(is_mine).collect(),
            siblings: self.pods.iter().filter(|pod| !is_mine(pod)).collect(),
            taken_names: BTreeSet::new(),
            failure: None,
        };
        let plan = replicaset::decide(&seen, self.now).unwrap();
        let writes = replicaset::Plan { recheck_after: None, ..plan.clone() } != replicaset::Plan::default();
        for mut pod in plan.create.iter().flat_map(replicaset::Creations::pods) {
            assert!(self.pods.iter().all(|known| known.metadata.name != pod.metadata.name));
            self.born += 1;
            pod.metadata.uid = Some(format!("u-pod-{}", self.born));
            pod.metadata.creation_timestamp = Some(self.now.into());
            self.pods.push(pod);
            self.peak = self.peak.max(self.active());
        }
        for target in &plan.delete {
            let pod = self.pods.iter_mut().find(|pod| pod.metadata.uid.as_ref() == Some(&target.uid)).unwrap();
            pod.metadata.deletion_timestamp = Some(self.now.into());
        }
        if plan.status.is_some() {
            self.sets[index].status = plan.status;
        }
        writes
    }

    /// A pod starts and becomes ready, or stops being ready.
    pub(super) fn set_ready(&mut self, index: usize, ready: bool) {
        let since = json!(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(self.now));
        if let Some(pod) = self.pods.get_mut(index)
            && crate::pods::is_ready(pod) != ready
            && !crate::pods::is_finished(pod)
        {
            let status = if ready { "True" } else { "False" };
            let condition = json!({ "type": "Ready", "status": status, "lastTransitionTime": since });
            pod.status = serde_json::from_value(json!({ "phase": "Running", "conditions": [condition] })).unwrap();
        }
    }

    /// A pod's containers end for good.
    pub(super) fn fail(&mut self, index: usize) {
        if let Some(pod) = self.pods.get_mut(index) {
            pod.status = serde_json::from_value(json!({ "phase": "Failed" })).unwrap();
        }
    }

    /// A pod that is being deleted is gone.
    pub(super) fn finish(&mut self, index: usize) {
        if self.pods.get(index).is_some_and(|pod| pod.metadata.deletion_timestamp.is_some()) {
            self.pods.remove(index);
        }
    }

    pub(super) fn wait(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    /// Everybody takes turns and all pods do well, until nobody has anything to write.
    pub(super) fn settle(&mut self) -> Result<(), &'static str> {
        for _ in 0..500 {
            self.pods.retain(crate::pods::is_active);
            for index in 0..self.pods.len() {
                self.set_ready(index, true);
            }
            self.wait(20);
            let mut writes = self.deploy();
            for index in 0..self.sets.len() {
                writes |= self.replicate(index);
            }
            if !writes && self.ready() == self.pods.len() && self.pods.iter().all(crate::pods::is_active) {
                return Ok(());
            }
        }
        Err("never comes to rest")
    }
}
