//! Which endpoint is in which slice: as few slices as possible are written, and few are made.

use std::collections::BTreeMap;

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

use super::endpoints_of;

/// What to do about the slices of one family and one set of ports.
#[derive(Default)]
pub(super) struct Changes<'a> {
    /// The endpoints of each new slice.
    pub(super) create: Vec<Vec<Endpoint>>,
    pub(super) update: Vec<EndpointSlice>,
    pub(super) delete: Vec<&'a EndpointSlice>,
}

/// What makes an endpoint the same one: where it is, and whose. All else about it may change in place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    addresses: Vec<String>,
    hostname: Option<String>,
    target: Option<(Option<String>, Option<String>)>,
}

impl Identity {
    fn of(endpoint: &Endpoint) -> Self {
        let mut addresses = endpoint.addresses.clone();
        addresses.sort();
        let target = endpoint.target_ref.as_ref().map(|target| (target.namespace.clone(), target.name.clone()));
        Self { addresses, hostname: endpoint.hostname.clone(), target }
    }
}

/// A slice as it will be.
struct Draft<'a> {
    old: &'a EndpointSlice,
    endpoints: Vec<Endpoint>,
    changed: bool,
}

/// Places `wanted` in `existing` slices of at most `most` endpoints, and in new ones.
pub(super) fn place<'a>(
    existing: &[&'a EndpointSlice],
    wanted: Vec<Endpoint>,
    labels: &BTreeMap<String, String>,
    most: usize,
) -> Changes<'a> {
    let mut left: BTreeMap<Identity, Endpoint> =
        wanted.into_iter().map(|endpoint| (Identity::of(&endpoint), endpoint)).collect();
    let mut changes = Changes::default();
    let mut drafts = Vec::new();
    for old in existing.iter().copied() {
        // What stays, stays where it is. One that is in two slices leaves the second.
        let before = endpoints_of(old);
        let endpoints: Vec<Endpoint> =
            before.iter().filter_map(|endpoint| left.remove(&Identity::of(endpoint))).collect();
        let same = endpoints.len() == before.len() && endpoints.iter().zip(before).all(is_same);
        if endpoints.is_empty() && !before.is_empty() {
            changes.delete.push(old);
        } else {
            let changed = !same || old.metadata.labels.as_ref() != Some(labels);
            drafts.push(Draft { old, endpoints, changed });
        }
    }
    let mut left: Vec<Endpoint> = left.into_values().collect();
    left.reverse();
    // Those that are written anyway, the fullest first.
    let mut order: Vec<usize> = (0..drafts.len()).filter(|at| drafts[*at].changed).collect();
    order.sort_by_key(|at| std::cmp::Reverse(drafts[*at].endpoints.len()));
    for at in order {
        fill(&mut drafts[at].endpoints, &mut left, most);
    }
    while !left.is_empty() {
        match fullest_fit(&drafts, left.len(), most) {
            Some(at) => {
                fill(&mut drafts[at].endpoints, &mut left, most);
                drafts[at].changed = true;
            }
            None => {
                let mut endpoints = Vec::new();
                fill(&mut endpoints, &mut left, most.max(1));
                changes.create.push(endpoints);
            }
        }
    }
    for draft in drafts.into_iter().filter(|draft| draft.changed) {
        let mut slice = draft.old.clone();
        slice.endpoints = Some(draft.endpoints);
        slice.metadata.labels = Some(labels.clone());
        changes.update.push(slice);
    }
    changes
}

/// The slice that nobody writes yet and that all of `count` fit into, the fullest of them.
fn fullest_fit(drafts: &[Draft<'_>], count: usize, most: usize) -> Option<usize> {
    let fits = |(_, draft): &(usize, &Draft<'_>)| !draft.changed && draft.endpoints.len() + count <= most;
    let fitting = drafts.iter().enumerate().filter(fits);
    fitting.max_by_key(|(at, draft)| (draft.endpoints.len(), std::cmp::Reverse(*at))).map(|(at, _)| at)
}

fn fill(slice: &mut Vec<Endpoint>, left: &mut Vec<Endpoint>, most: usize) {
    while slice.len() < most {
        let Some(endpoint) = left.pop() else { return };
        slice.push(endpoint);
    }
}

/// Whether an endpoint says the same. Which version of the pod it was made from says nothing.
fn is_same((new, old): (&Endpoint, &Endpoint)) -> bool {
    let plain = |endpoint: &Endpoint| {
        let mut plain = endpoint.clone();
        plain.addresses.sort();
        if let Some(target) = &mut plain.target_ref {
            target.resource_version = None;
        }
        plain.deprecated_topology = plain.deprecated_topology.filter(|topology| !topology.is_empty());
        plain
    };
    plain(new) == plain(old)
}
