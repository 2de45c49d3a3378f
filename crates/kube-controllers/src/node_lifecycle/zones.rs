//! Zones: nodes that fail together. Pods leave nodes of a zone one node at a time, slower where much has failed, and not
//! at all where all has: then it is more likely us who are cut off.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use tokio::time::Instant;

use super::{Options, ready, taints};

/// Whether a node may be emptied of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permission {
    /// No node may be.
    Forbidden,
    /// Not yet.
    Waiting,
    /// It may.
    Granted,
}

/// A node, as far as zones care.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) zone: String,
    pub(super) ready: bool,
    /// Whether it counts for how its zone is.
    pub(super) counts: bool,
    /// Whether it should be emptied and is not yet.
    pub(super) waits: bool,
}

impl Member {
    /// A silent node is not ready, even if the server has not heard of it yet.
    pub(super) fn of(node: &Node, silent: bool) -> Self {
        Self {
            name: node.name_any(),
            zone: zone(node),
            ready: ready(node) == Some("True") && !silent,
            counts: !node.labels().contains_key("node.kubernetes.io/exclude-disruption"),
            waits: taints::waits_to_be_emptied(node),
        }
    }
}

/// How a zone is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Normal,
    Partial,
    Full,
}

/// All zones, and who may be emptied.
#[derive(Clone, Debug, Default)]
pub(super) struct Zones {
    zones: BTreeMap<String, Zone>,
    granted: BTreeSet<String>,
    /// Nothing in the whole cluster is ready.
    disrupted: bool,
}

#[derive(Clone, Debug)]
struct Zone {
    rate: f64,
    /// When the next node may be emptied; none is never.
    free_at: Option<Instant>,
    /// Since when each waits.
    waiting: BTreeMap<String, Instant>,
}

/// What a look at all zones brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Looked {
    /// The whole cluster was disrupted, and is no more.
    pub(super) recovered: bool,
    /// How long until another node may be emptied, if one waits for that alone.
    pub(super) next: Option<Duration>,
}

impl Zones {
    /// # Guarantees
    /// - In each zone permissions are as far apart as the rate says, whatever happens in between.
    /// - Nobody has permission while nothing in the cluster is ready.
    /// - Who has waited longest is first; who is well, or gone, waits no more.
    pub(super) fn look(&mut self, members: &[Member], options: &Options, now: Instant) -> Looked {
        let states = states(members, options);
        let disrupted = !states.is_empty() && states.values().all(|(state, _)| *state == State::Full);
        let recovered = self.disrupted && !disrupted;
        self.disrupted = disrupted;
        let names: BTreeSet<&str> = members.iter().map(|member| member.zone.as_str()).collect();
        self.zones.retain(|name, _| names.contains(name.as_str()));
        for name in names {
            let fresh = || Zone { rate: options.eviction_rate, free_at: Some(now), waiting: BTreeMap::new() };
            let rate = rate(states.get(name), disrupted, options);
            self.zones.entry(name.to_owned()).or_insert_with(fresh).set_rate(rate, now);
        }
        let waits: BTreeMap<&str, &str> = members
            .iter()
            .filter(|member| member.waits && !disrupted)
            .map(|member| (member.name.as_str(), member.zone.as_str()))
            .collect();
        self.granted.retain(|name| waits.contains_key(name.as_str()));
        for (name, zone) in &mut self.zones {
            zone.waiting.retain(|member, _| waits.get(member.as_str()) == Some(&name.as_str()));
        }
        for (member, zone) in waits {
            if !self.granted.contains(member)
                && let Some(zone) = self.zones.get_mut(zone)
            {
                zone.waiting.entry(member.to_owned()).or_insert(now);
            }
        }
        for zone in self.zones.values_mut() {
            self.granted.extend(zone.grant(now));
        }
        let next = self.zones.values().filter(|zone| !zone.waiting.is_empty()).filter_map(|zone| zone.free_at).min();
        Looked { recovered, next: next.map(|at| at.saturating_duration_since(now)) }
    }

    pub(super) fn permission(&self, node: &str) -> Permission {
        match (self.disrupted, self.granted.contains(node)) {
            (true, _) => Permission::Forbidden,
            (false, true) => Permission::Granted,
            (false, false) => Permission::Waiting,
        }
    }
}

impl Zone {
    /// A new rate begins with a permission only if one was left: to and fro between rates is no way to get more.
    fn set_rate(&mut self, rate: f64, now: Instant) {
        // The same figure of the settings, not a computed one.
        if self.rate.to_bits() == rate.to_bits() {
            return;
        }
        self.rate = rate;
        let left = self.free_at.is_some_and(|at| at <= now);
        self.free_at = pause(rate).map(|pause| if left { now } else { now + pause });
    }

    fn grant(&mut self, now: Instant) -> Option<String> {
        let pause = pause(self.rate).filter(|_| self.free_at.is_some_and(|at| at <= now))?;
        let (name, _) = self.waiting.iter().min_by_key(|(name, since)| (**since, name.as_str()))?;
        let name = name.clone();
        self.waiting.remove(&name);
        self.free_at = Some(now + pause);
        Some(name)
    }
}

/// Between two nodes; none, if there is no second.
fn pause(rate: f64) -> Option<Duration> {
    (rate > 0.0).then(|| Duration::try_from_secs_f64(1.0 / rate).ok()).flatten()
}

/// How each zone is, and how many nodes it has.
fn states(members: &[Member], options: &Options) -> BTreeMap<String, (State, usize)> {
    let mut counts: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for member in members.iter().filter(|member| member.counts) {
        let (ready, not_ready) = counts.entry(&member.zone).or_default();
        *(if member.ready { ready } else { not_ready }) += 1;
    }
    let state = |ready: u32, not_ready: u32| match (ready, not_ready) {
        (0, _) => State::Full,
        // One or two that fail in a small zone say nothing about the zone.
        (_, 0..=2) => State::Normal,
        _ if f64::from(not_ready) / f64::from(ready + not_ready) >= options.unhealthy_zone_threshold => State::Partial,
        _ => State::Normal,
    };
    let size = |nodes: u32| usize::try_from(nodes).unwrap_or(usize::MAX);
    counts
        .into_iter()
        .map(|(zone, (ready, not_ready))| (zone.to_owned(), (state(ready, not_ready), size(ready + not_ready))))
        .collect()
}

fn rate(state: Option<&(State, usize)>, disrupted: bool, options: &Options) -> f64 {
    match state {
        _ if disrupted => 0.0,
        Some((State::Partial, size)) if *size > options.large_cluster_size_threshold => options.secondary_eviction_rate,
        Some((State::Partial, _)) => 0.0,
        // A zone that is lost as a whole, while others live, is emptied as any other.
        Some((State::Normal | State::Full, _)) | None => options.eviction_rate,
    }
}

/// Region and zone, which alone need not be unique.
fn zone(node: &Node) -> String {
    let label =
        |names: [&str; 2]| names.into_iter().find_map(|name| node.labels().get(name)).map_or("", String::as_str);
    let zone = label(["failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"]);
    let region = label(["failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"]);
    format!("{region}/{zone}")
}
