//! No budget is overdrawn, and no eviction that was granted is forgotten before its pod goes.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use kube::core::DynamicObject;
use serde_json::Value;

use super::Heard;
use crate::progress::Lives;
use crate::world::World;

/// So long a granted eviction counts. Times are whole seconds.
const COUNTS: SignedDuration = SignedDuration::from_secs(119);

/// Namespace and name.
type Name = (String, String);

/// What is known so far.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) lives: Lives,
    pods: BTreeMap<Name, Pod>,
    budgets: BTreeMap<Name, Budget>,
}

struct Pod {
    created: Option<Timestamp>,
    going: bool,
    ready: bool,
    labels: BTreeMap<String, String>,
}

#[derive(Clone, Default, PartialEq)]
struct Budget {
    uid: String,
    granted: BTreeMap<String, Timestamp>,
    app: String,
}

impl Seen {
    pub(super) fn look(&mut self, heard: &Heard, world: &World) -> Option<String> {
        let Heard { deleted, kind, object, .. } = heard;
        match *kind {
            "Pod" => self.pod(object, *deleted),
            _ => self.budget(object, *deleted, world.time()),
        }
    }

    /// A healthy pod under a budget that is evicted was granted by it.
    fn pod(&mut self, object: &DynamicObject, deleted: bool) -> Option<String> {
        let name = (object.namespace().unwrap_or_default(), object.name_any());
        let status = &object.data["status"];
        let phase = status["phase"].as_str().unwrap_or("Pending");
        let ended = matches!(phase, "Failed" | "Succeeded");
        self.lives.see(&object.uid().unwrap_or_default(), phase == "Running", deleted || ended);
        let has = |kind: &str, reason: Option<&str>| {
            let conditions = status["conditions"].as_array().into_iter().flatten();
            conditions.into_iter().any(|one| {
                one["type"] == kind && one["status"] == "True" && reason.is_none_or(|reason| one["reason"] == reason)
            })
        };
        let going = deleted || object.metadata.deletion_timestamp.is_some();
        let evicted = going && has("DisruptionTarget", Some("EvictionByEvictionAPI"));
        let was_healthy = self.pods.get(&name).is_some_and(|known| known.ready && !known.going);
        let created = object.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let labels = object.labels().clone();
        let covering: Vec<&Budget> = self
            .budgets
            .iter()
            .filter(|((namespace, _), budget)| *namespace == name.0 && labels.get("app") == Some(&budget.app))
            .map(|(_, budget)| budget)
            .collect();
        let granted = covering.iter().any(|budget| budget.granted.contains_key(&name.1));
        let overdrawn = evicted && was_healthy && !covering.is_empty() && !granted;
        match deleted {
            true => drop(self.pods.remove(&name)),
            false => {
                let pod = Pod { created, going, ready: phase == "Running" && has("Ready", None), labels };
                self.pods.insert(name.clone(), pod);
            }
        }
        overdrawn.then(|| format!("pod {} was evicted, and its budget knows nothing of it", name.1))
    }

    fn budget(&mut self, object: &DynamicObject, deleted: bool, now: Timestamp) -> Option<String> {
        let name = (object.namespace().unwrap_or_default(), object.name_any());
        if deleted {
            self.budgets.remove(&name);
            return None;
        }
        let status = &object.data["status"];
        let time = |value: &Value| value.as_str().and_then(|text| text.parse().ok()).unwrap_or(now);
        let notes = status["disruptedPods"].as_object().into_iter().flatten();
        let granted: BTreeMap<String, Timestamp> = notes.map(|(pod, at)| (pod.clone(), time(at))).collect();
        let app = object.data["spec"]["selector"]["matchLabels"]["app"].as_str().unwrap_or_default().to_owned();
        let new = Budget { uid: object.uid().unwrap_or_default(), granted, app };
        let old = self.budgets.insert(name.clone(), new.clone()).filter(|old| old.uid == new.uid);
        let number = |field: &str| status[field].as_i64().unwrap_or(0);
        let (allowed, healthy, desired) =
            (number("disruptionsAllowed"), number("currentHealthy"), number("desiredHealthy"));
        if allowed > (healthy - desired).max(0) {
            return Some(format!(
                "budget {} allows {allowed} disruptions with {healthy} healthy pods of {desired} that it needs",
                name.1
            ));
        }
        let forgotten = old?.granted.into_iter().find(|(pod, at)| {
            !new.granted.contains_key(pod)
                && now.duration_since(*at) < COUNTS
                && self.stays(&name.0, pod, *at, &new.app)
        });
        forgotten.map(|(pod, _)| format!("budget {} forgot that {pod} was to go, and it has not", name.1))
    }

    /// Whether a pod that was to go is still there, as it was.
    fn stays(&self, namespace: &str, pod: &str, granted: Timestamp, app: &String) -> bool {
        let known = self.pods.get(&(namespace.to_owned(), pod.to_owned()));
        known.is_some_and(|pod| {
            !pod.going && pod.created.is_none_or(|created| created <= granted) && pod.labels.get("app") == Some(app)
        })
    }
}
