//! The pods on nodes, counted by what pod affinity can tell apart: a decision looks once at each sort of pod and at each
//! wish, and not at every pod. There are as many sorts as workloads, mostly; at worst as many as pods.

use std::collections::BTreeMap;

use super::pod::{PodInfo, PodTerm};
use super::selector::Labels;

/// Pods by the names of their nodes, whether those are known or not; never none.
pub(super) type Counts = BTreeMap<String, usize>;

/// What a term of an affinity goes by: it means all pods of a sort or none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sort {
    pub(super) namespace: String,
    pub(super) labels: Labels,
}

/// What a pod that is there wants of one that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wish {
    /// It must not be near.
    Apart,
    /// It would better be near, or apart if the weight is below zero.
    Weight(i64),
}

/// What a required affinity of a pod that is there weighs for the pod that it means.
const REQUIRED_BY_OTHERS: i64 = 1;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Census {
    sorts: BTreeMap<Sort, Counts>,
    wishes: BTreeMap<(Wish, PodTerm), Counts>,
}

impl Census {
    pub(super) fn sorts(&self) -> impl Iterator<Item = (&Sort, &Counts)> {
        self.sorts.iter()
    }

    pub(super) fn wishes(&self) -> impl Iterator<Item = (Wish, &PodTerm, &Counts)> {
        self.wishes.iter().map(|((wish, term), counts)| (*wish, term, counts))
    }

    pub(super) fn add(&mut self, pod: &PodInfo, node: &str) {
        count(self.sorts.entry(sort(pod)).or_default(), node);
        for wish in wishes(pod) {
            count(self.wishes.entry(wish).or_default(), node);
        }
    }

    pub(super) fn remove(&mut self, pod: &PodInfo, node: &str) {
        discount(&mut self.sorts, &sort(pod), node);
        for wish in wishes(pod) {
            discount(&mut self.wishes, &wish, node);
        }
    }
}

fn sort(pod: &PodInfo) -> Sort {
    Sort { namespace: pod.namespace.clone(), labels: pod.labels.clone() }
}

fn wishes(pod: &PodInfo) -> impl Iterator<Item = (Wish, PodTerm)> {
    let apart = pod.apart.iter().map(|term| (Wish::Apart, term.clone()));
    let near = pod.near.iter().map(|term| (Wish::Weight(REQUIRED_BY_OTHERS), term.clone()));
    let preferred = pod.preferred_pods.iter().map(|(weight, term)| (Wish::Weight(*weight), term.clone()));
    apart.chain(near).chain(preferred)
}

fn count(counts: &mut Counts, node: &str) {
    match counts.get_mut(node) {
        Some(count) => *count += 1,
        None => drop(counts.insert(node.to_owned(), 1)),
    }
}

fn discount<K: Ord>(all: &mut BTreeMap<K, Counts>, key: &K, node: &str) {
    let Some(counts) = all.get_mut(key) else { return };
    match counts.get_mut(node) {
        Some(count) if *count > 1 => *count -= 1,
        _ => drop(counts.remove(node)),
    }
    if counts.is_empty() {
        all.remove(key);
    }
}
