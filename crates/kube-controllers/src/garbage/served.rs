//! What the server serves: which resources there are to watch, and which resource a reference means.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::discovery::v2::APIResourceDiscovery;
use kube::discovery::{ApiResource, verbs};

use super::graph::Kind;
use crate::discovery::Groups;

/// Events come and go in masses, own nothing, and expire by themselves.
const IGNORED: [(&str, &str); 2] = [("", "events"), ("events.k8s.io", "events")];
const STALE: &str = "Stale";

/// Why it is not known what is served.
#[derive(Debug, thiserror::Error)]
pub(super) enum DiscoveryError {
    #[error("cannot read the kinds of the server")]
    Refused(#[from] kube::Error),
    /// No server serves nothing.
    #[error("the server reports no resources")]
    Nothing,
}

/// A kind that is served.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Resource {
    pub(super) api: ApiResource,
    pub(super) namespaced: bool,
    /// Its objects can be listed, watched and deleted, and this is the version in which it is done.
    pub(super) watched: bool,
}

/// All that is served, in all versions.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Served {
    kinds: BTreeMap<Kind, Resource>,
}

impl Served {
    /// Reads what the server told. Of groups that it cannot reach at the moment the old answer counts: nothing is known to
    /// have changed about them.
    pub(super) fn read(groups: &Groups, old: &Self) -> Result<Self, DiscoveryError> {
        let mut kinds = BTreeMap::new();
        for group in groups.iter() {
            let name = group.metadata.as_ref().and_then(|metadata| metadata.name.as_deref()).unwrap_or_default();
            // Versions are in the order of preference; a resource is watched in the first that has it.
            let mut preferred = BTreeSet::new();
            for version in &group.versions {
                let number = version.version.as_deref().unwrap_or_default();
                let api_version = if name.is_empty() { number.to_owned() } else { format!("{name}/{number}") };
                let found: Vec<(Kind, Resource)> = if version.freshness.as_deref() == Some(STALE) {
                    let before = old.kinds.iter().filter(|(kind, _)| kind.api_version == api_version);
                    before.map(|(kind, resource)| (kind.clone(), resource.clone())).collect()
                } else {
                    version.resources.iter().map(|found| resource(found, name, number, &api_version)).collect()
                };
                for (kind, mut resource) in found {
                    resource.watched &= preferred.insert(resource.api.plural.clone());
                    let known: Option<&Resource> = kinds.get(&kind);
                    // Two resources of one kind: the one with objects to collect is meant.
                    if known.is_none_or(|known| !known.watched && resource.watched) {
                        kinds.insert(kind, resource);
                    }
                }
            }
        }
        if kinds.is_empty() { Err(DiscoveryError::Nothing) } else { Ok(Self { kinds }) }
    }

    /// The resource that a reference means.
    pub(super) fn get(&self, kind: &Kind) -> Option<&Resource> {
        self.kinds.get(kind)
    }

    /// What is to be watched.
    pub(super) fn watched(&self) -> impl Iterator<Item = (&Kind, &ApiResource)> {
        self.kinds.iter().filter(|(_, resource)| resource.watched).map(|(kind, resource)| (kind, &resource.api))
    }

    /// Kinds that were not served before.
    pub(super) fn new_since(&self, old: &Self) -> BTreeSet<&Kind> {
        self.kinds.keys().filter(|kind| !old.kinds.contains_key(kind)).collect()
    }
}

fn resource(found: &APIResourceDiscovery, group: &str, version: &str, api_version: &str) -> (Kind, Resource) {
    let kind = found.response_kind.as_ref().and_then(|kind| kind.kind.clone()).unwrap_or_default();
    let plural = found.resource.clone().unwrap_or_default();
    let can = |verb: &str| found.verbs.iter().any(|one| one == verb);
    let watched =
        [verbs::LIST, verbs::WATCH, verbs::DELETE].into_iter().all(can) && !IGNORED.contains(&(group, plural.as_str()));
    let api = ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: api_version.to_owned(),
        kind: kind.clone(),
        plural,
    };
    let namespaced = found.scope.as_deref() == Some("Namespaced");
    (Kind { api_version: api_version.to_owned(), kind }, Resource { api, namespaced, watched })
}

#[cfg(test)]
mod tests {
    use kube::core::discovery::v2::APIGroupDiscovery;
    use serde_json::{Value, json};

    use super::*;

    fn version(number: &str, resources: &[(&str, &str)], freshness: &str) -> Value {
        let resources = resources.iter().map(|(plural, kind)| {
            let verbs: Vec<&str> =
                if *plural == "reviews" { vec!["create"] } else { vec!["delete", "get", "list", "watch"] };
            json!({ "resource": plural, "responseKind": { "kind": kind }, "scope": "Namespaced", "verbs": verbs })
        });
        json!({ "version": number, "resources": resources.collect::<Vec<_>>(), "freshness": freshness })
    }

    fn read(groups: Value, old: &Served) -> Served {
        let groups: Vec<APIGroupDiscovery> = serde_json::from_value(groups).unwrap();
        Served::read(&groups.into(), old).unwrap()
    }

    fn watched(served: &Served) -> Vec<(&str, &str)> {
        served.watched().map(|(kind, api)| (kind.api_version.as_str(), api.plural.as_str())).collect()
    }

    #[test]
    fn each_resource_is_watched_once_and_every_version_is_known() {
        let core = version("v1", &[("pods", "Pod"), ("events", "Event"), ("reviews", "Review")], "Current");
        let groups = json!([
            { "metadata": {}, "versions": [core] },
            { "metadata": { "name": "example.com" }, "versions": [
                version("v2", &[("foos", "Foo")], "Current"),
                version("v1", &[("foos", "Foo"), ("bars", "Bar")], "Current"),
            ] },
            { "metadata": { "name": "events.k8s.io" }, "versions": [version("v1", &[("events", "Event")], "Current")] },
        ]);
        let served = read(groups, &Served::default());
        assert_eq!(watched(&served), [("example.com/v1", "bars"), ("example.com/v2", "foos"), ("v1", "pods")]);
        for (api_version, kind) in [("example.com/v1", "Foo"), ("v1", "Review"), ("events.k8s.io/v1", "Event")] {
            let kind = Kind { api_version: api_version.to_owned(), kind: kind.to_owned() };
            assert!(served.get(&kind).is_some_and(|found| found.namespaced && !found.watched), "{kind:?}");
        }
        assert_eq!(served.new_since(&Served::default()).len(), 7);
    }

    #[test]
    fn a_group_out_of_reach_is_as_it_was() {
        let group = |version| json!([{ "metadata": { "name": "example.com" }, "versions": [version] }]);
        let before = read(group(version("v1", &[("foos", "Foo")], "Current")), &Served::default());
        assert_eq!(read(group(version("v1", &[], "Stale")), &before), before);
        let after = read(group(version("v1", &[("bars", "Bar")], "Current")), &before);
        assert_eq!(watched(&after), [("example.com/v1", "bars")]);
    }

    #[test]
    fn a_server_that_tells_of_nothing_is_not_believed() {
        let told = Served::read(&Groups::default(), &Served::default());
        assert!(matches!(told, Err(DiscoveryError::Nothing)));
    }
}
