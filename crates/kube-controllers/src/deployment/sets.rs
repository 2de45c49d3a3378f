//! The replica sets of a deployment while a plan is being made: as observed, and as wanted.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};

use super::limits::Limits;
use super::template::Canonical;
use super::{Resize, SetUpdate};
use manager::claim::{self, Target};

use crate::pods;

pub(super) const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
pub(super) const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";

/// All replica sets of one deployment.
pub(super) struct Sets<'a> {
    /// The one that has the deployment's template.
    pub(super) new: Option<Member<'a>>,
    /// The others, the oldest first.
    pub(super) old: Vec<Member<'a>>,
    /// The deployment's template.
    pub(super) template: Canonical,
}

/// One replica set.
pub(super) struct Member<'a> {
    /// As observed; owned by the plan when it is still to be created.
    pub(super) set: Cow<'a, ReplicaSet>,
    /// Its pods that are neither finished nor being deleted.
    active: i32,
    /// Those of them that are ready.
    ready: i32,
    /// The size it shall have; to begin with, the one it has.
    pub(super) size: i32,
    /// Annotations it shall have, beside its others.
    pub(super) annotations: BTreeMap<String, String>,
    /// The `spec.minReadySeconds` it shall have, if it is to change.
    pub(super) min_ready_seconds: Option<i32>,
}

impl<'a> Sets<'a> {
    pub(super) fn sort(mine: &[&'a ReplicaSet], pods: &[&Pod], template: &PodTemplateSpec) -> Self {
        let pods = PodsOf::count(pods);
        let template = Canonical::of(template);
        let mut by_age = mine.to_vec();
        by_age.sort_by_key(|set| age(set));
        let mut sets = Self { new: None, old: Vec::new(), template };
        for set in by_age {
            let member = Member::observed(set, &pods);
            let same = set.spec.as_ref().and_then(|spec| spec.template.as_ref()).map(Canonical::of);
            // Two of one template are a rare left-over; the oldest wins, whoever looks.
            if sets.new.is_none() && same.as_ref() == Some(&sets.template) {
                sets.new = Some(member);
            } else {
                sets.old.push(member);
            }
        }
        sets
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Member<'a>> {
        self.old.iter().chain(&self.new)
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Member<'a>> {
        self.old.iter_mut().chain(&mut self.new)
    }

    /// The sum of one figure over all sets.
    pub(super) fn sum(&self, figure: impl Fn(&Member<'a>) -> i32) -> i32 {
        self.all().map(figure).fold(0, i32::saturating_add)
    }

    /// The writes that lead from observed to wanted.
    pub(super) fn into_writes(self) -> (Option<Box<ReplicaSet>>, Vec<SetUpdate>) {
        let mut create = None;
        let mut update = Vec::new();
        for member in self.old.into_iter().chain(self.new) {
            match member.set {
                Cow::Owned(mut set) => {
                    set.spec.get_or_insert_default().replicas = Some(member.size);
                    set.metadata.annotations.get_or_insert_default().extend(member.annotations);
                    create = Some(Box::new(set));
                }
                Cow::Borrowed(_) => update.extend(member.update()),
            }
        }
        (create, update)
    }
}

impl<'a> Member<'a> {
    fn observed(set: &'a ReplicaSet, pods: &PodsOf<'_>) -> Self {
        let (active, ready) = pods.of(set);
        let size = observed_size(set);
        Self { set: Cow::Borrowed(set), active, ready, size, annotations: BTreeMap::new(), min_ready_seconds: None }
    }

    pub(super) fn to_create(set: ReplicaSet) -> Self {
        let annotations = BTreeMap::new();
        Self { set: Cow::Owned(set), active: 0, ready: 0, size: 0, annotations, min_ready_seconds: None }
    }

    pub(super) fn is_to_create(&self) -> bool {
        matches!(self.set, Cow::Owned(_))
    }

    pub(super) fn name(&self) -> &str {
        self.set.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn status(&self) -> Cow<'_, ReplicaSetStatus> {
        self.set.status.as_ref().map_or_else(Cow::default, Cow::Borrowed)
    }

    /// Pods that it has or may still make: those that it was told to give up count until they are gone.
    ///
    /// None while its controller has not seen its size: until then it may be making pods for an earlier one.
    pub(super) fn at_most(&self) -> Option<i32> {
        let status = self.status();
        let generation = self.set.metadata.generation.unwrap_or(0);
        let settled = generation <= 1 || status.observed_generation.unwrap_or(0) >= generation;
        settled.then(|| self.size.max(status.replicas).max(self.active))
    }

    /// Available pods that stay available once it has the size it shall have.
    ///
    /// A status is written before the deletions that the same plan makes, so it may count pods that are gone: a set
    /// that was given up and is wanted again at once must not be taken for healthy. Its pods tell.
    pub(super) fn available(&self) -> i32 {
        self.status().available_replicas.unwrap_or(0).min(self.ready).min(self.size)
    }

    /// An annotation as it shall be.
    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        let observed = || self.set.metadata.annotations.as_ref().and_then(|annotations| annotations.get(key));
        self.annotations.get(key).or_else(observed).map(String::as_str)
    }

    pub(super) fn annotate(&mut self, key: &str, value: impl Into<String>) {
        self.annotations.insert(key.to_owned(), value.into());
    }

    /// The deployment's size when this set was last sized.
    pub(super) fn sized_for(&self) -> Option<i32> {
        self.annotation(DESIRED_REPLICAS)?.parse().ok().filter(|size| *size >= 0)
    }

    /// Resizes, and notes for which size of the deployment.
    pub(super) fn resize(&mut self, size: i32, limits: &Limits) {
        if self.size != size {
            self.size = size;
            self.note_size(limits);
        }
    }

    /// Notes for which size of the deployment this set has its size.
    pub(super) fn note_size(&mut self, limits: &Limits) {
        self.annotate(DESIRED_REPLICAS, limits.desired.to_string());
        self.annotate(MAX_REPLICAS, limits.most().to_string());
    }

    fn update(self) -> Option<SetUpdate> {
        let metadata = &self.set.metadata;
        let has =
            |key: &String, value: &String| metadata.annotations.iter().flatten().any(|known| known == (key, value));
        let annotations: BTreeMap<_, _> =
            self.annotations.into_iter().filter(|(key, value)| !has(key, value)).collect();
        let from = observed_size(&self.set);
        let resize = (from != self.size).then_some(Resize { from, to: self.size });
        (resize.is_some() || self.min_ready_seconds.is_some() || !annotations.is_empty()).then(|| SetUpdate {
            target: Target::of(metadata),
            resource_version: metadata.resource_version.clone(),
            resize,
            min_ready_seconds: self.min_ready_seconds,
            annotations,
        })
    }
}

/// Active and ready pods by the UID of their controller.
struct PodsOf<'a>(BTreeMap<&'a str, (i32, i32)>);

impl<'a> PodsOf<'a> {
    fn count(pods: &[&'a Pod]) -> Self {
        let mut by_controller: BTreeMap<&str, (i32, i32)> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| pods::is_active(pod)) {
            if let Some(controller) = claim::controller_of(&pod.metadata) {
                let (active, ready) = by_controller.entry(controller.uid.as_str()).or_default();
                *active += 1;
                *ready += i32::from(pods::is_ready(pod));
            }
        }
        Self(by_controller)
    }

    fn of(&self, set: &ReplicaSet) -> (i32, i32) {
        set.metadata.uid.as_deref().and_then(|uid| self.0.get(uid).copied()).unwrap_or_default()
    }
}

/// Orders replica sets from the oldest to the newest.
pub(super) fn age(set: &ReplicaSet) -> (Option<jiff::Timestamp>, Option<&str>) {
    (set.metadata.creation_timestamp.as_ref().map(|time| time.0), set.metadata.name.as_deref())
}

fn observed_size(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}
