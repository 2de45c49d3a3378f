//! What watchers and workers share: the graph, what is served, and who is known to be absent.

use std::sync::Arc;

use super::absent::Absent;
use super::graph::{Effect, Graph, Identity};
use super::served::{Resource, Served};

/// All that is known.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) graph: Graph,
    pub(super) absent: Absent,
    pub(super) served: Arc<Served>,
}

/// What is known of an owner without asking the server.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Lookup {
    /// The server said that it is not there.
    Absent,
    /// Its kind is not served.
    Unknown,
    /// It lives in a namespace and its dependent does not.
    Misplaced,
    /// Only the server can tell, at this place.
    Ask(Resource, Identity),
}

impl State {
    /// Looks an owner up as a dependent names it; the namespace is the dependent's.
    pub(super) fn look_up(&mut self, claim: &Identity) -> Lookup {
        let cluster_wide = Identity { namespace: "".into(), ..claim.clone() };
        if self.absent.has(&cluster_wide) || self.absent.has(claim) {
            return Lookup::Absent;
        }
        match self.served.get(&claim.kind) {
            None => Lookup::Unknown,
            Some(resource) if !resource.namespaced => Lookup::Ask(resource.clone(), cluster_wide),
            Some(_) if claim.namespace.is_empty() => Lookup::Misplaced,
            Some(resource) => Lookup::Ask(resource.clone(), claim.clone()),
        }
    }

    /// Takes in that the server said that an object is gone.
    pub(super) fn gone(&mut self, identity: Identity) -> Vec<Effect> {
        let effects = self.graph.forget(&identity.uid);
        if self.graph.has_dependents(&identity.uid) {
            self.absent.add(identity);
        }
        effects
    }

    /// Takes in what is served now.
    pub(super) fn serve(&mut self, served: Arc<Served>) -> Vec<Effect> {
        let effects = self.graph.referring_to(&served.new_since(&self.served));
        self.served = served;
        effects.into_iter().collect()
    }
}
