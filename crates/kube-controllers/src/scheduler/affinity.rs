//! Pod affinity: what the pods that are already there mean for a new one, per domain of a topology.
//!
//! A domain is a node label with its value, `topology.kubernetes.io/zone=a`. Both summaries are made once per attempt from
//! the census, so that a filter or a score only looks up the labels of its node. Without any affinity on either side they
//! are empty and cost nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::census::{Counts, Sort, Wish};
use super::cluster::Cluster;
use super::node::NodeInfo;
use super::pod::{PodInfo, PodTerm};

/// A topology key and its value.
type Domain<'a> = (&'a str, &'a str);

/// What must and must not be near.
#[derive(Default)]
pub(super) struct Domains<'a> {
    /// Domains with a pod that all terms of the new pod's affinity mean.
    wanted: BTreeSet<Domain<'a>>,
    /// Domains with a pod that a term of the new pod's anti-affinity means.
    shunned: BTreeSet<Domain<'a>>,
    /// Domains with a pod whose anti-affinity means the new pod.
    closed: BTreeSet<Domain<'a>>,
    /// The new pod's affinity means itself: the first of its kind may go anywhere.
    means_itself: bool,
}

impl<'a> Domains<'a> {
    pub(super) fn around(pod: &'a PodInfo, cluster: &'a Cluster) -> Self {
        let mut domains = Self::default();
        if !(pod.near.is_empty() && pod.apart.is_empty()) {
            domains.means_itself = pod.near.iter().all(|term| term.means(&pod.namespace, &pod.labels, cluster));
            for (sort, counts) in cluster.census().sorts() {
                domains.look_at(pod, sort, counts, cluster);
            }
        }
        for (_, term, counts) in cluster.census().wishes().filter(|(wish, ..)| *wish == Wish::Apart) {
            if term.means(&pod.namespace, &pod.labels, cluster) {
                domains.closed.extend(cluster.counted(counts).filter_map(|(node, _)| domain(term, node)));
            }
        }
        domains
    }

    fn look_at(&mut self, pod: &'a PodInfo, sort: &Sort, counts: &Counts, cluster: &'a Cluster) {
        let means = |term: &&PodTerm| term.means(&sort.namespace, &sort.labels, cluster);
        let near: &[PodTerm] = if pod.near.iter().all(|term| means(&term)) { &pod.near } else { &[] };
        let apart: Vec<_> = pod.apart.iter().filter(means).collect();
        if near.is_empty() && apart.is_empty() {
            return;
        }
        for (node, _) in cluster.counted(counts) {
            self.wanted.extend(near.iter().filter_map(|term| domain(term, node)));
            self.shunned.extend(apart.iter().filter_map(|term| domain(term, node)));
        }
    }

    /// Whether the pods that `pod` must be near are near `node`.
    pub(super) fn satisfy(&self, pod: &PodInfo, node: &NodeInfo) -> bool {
        let Some(own) = pod.near.iter().map(|term| domain(term, node)).collect::<Option<Vec<_>>>() else {
            return false;
        };
        own.iter().all(|domain| self.wanted.contains(domain)) || (self.wanted.is_empty() && self.means_itself)
    }

    /// Whether a pod that `pod` must be apart from is near `node`.
    pub(super) fn repel(&self, pod: &PodInfo, node: &NodeInfo) -> bool {
        pod.apart.iter().filter_map(|term| domain(term, node)).any(|domain| self.shunned.contains(&domain))
    }

    /// Whether a pod that is near `node` must be apart from the new one.
    pub(super) fn are_closed_at(&self, node: &NodeInfo) -> bool {
        !self.closed.is_empty() && domains_of(node).any(|domain| self.closed.contains(&domain))
    }
}

/// What would better be near, or apart: weights by domain.
#[derive(Default)]
pub(super) struct Pull<'a>(BTreeMap<Domain<'a>, i64>);

impl<'a> Pull<'a> {
    pub(super) fn on(pod: &'a PodInfo, cluster: &'a Cluster) -> Self {
        let mut pull = Self::default();
        if !pod.preferred_pods.is_empty() {
            for (sort, counts) in cluster.census().sorts() {
                let means = |term: &PodTerm| term.means(&sort.namespace, &sort.labels, cluster);
                for (weight, term) in pod.preferred_pods.iter().filter(|(_, term)| means(term)) {
                    pull.add(*weight, term, counts, cluster);
                }
            }
        }
        for (wish, term, counts) in cluster.census().wishes() {
            if let Wish::Weight(weight) = wish
                && term.means(&pod.namespace, &pod.labels, cluster)
            {
                pull.add(weight, term, counts, cluster);
            }
        }
        pull
    }

    pub(super) fn towards(&self, node: &NodeInfo) -> i64 {
        if self.0.is_empty() { 0 } else { domains_of(node).filter_map(|domain| self.0.get(&domain)).sum() }
    }

    fn add(&mut self, weight: i64, term: &'a PodTerm, counts: &Counts, cluster: &'a Cluster) {
        for (node, count) in cluster.counted(counts) {
            if let Some(domain) = domain(term, node) {
                *self.0.entry(domain).or_default() += weight * i64::try_from(count).unwrap_or(i64::MAX);
            }
        }
    }
}

/// The domain of `node` that a term is about; none if the node has no such label.
fn domain<'a>(term: &'a PodTerm, node: &'a NodeInfo) -> Option<Domain<'a>> {
    node.labels.get(&term.topology_key).map(|value| (term.topology_key.as_str(), value.as_str()))
}

fn domains_of(node: &NodeInfo) -> impl Iterator<Item = Domain<'_>> {
    node.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()))
}
