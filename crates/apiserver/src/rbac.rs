//! Who may do what, by the roles and bindings in the store.
//!
//! ```text
//! Roles, ClusterRoles, RoleBindings, ClusterRoleBindings
//!      |  when one of them has changed
//!      v
//! compiled: by user and by group, the rules that they are granted
//!      |  per request
//!      v
//! Decision, in Kubernetes' words
//! ```
//!
//! Guarantees:
//! - A request is judged by what was stored when it came: whoever saw a binding come or go sees its effect.
//! - Nothing is read from JSON unless one of the four tables has changed, and then only the objects that did.
//! - Members of `system:masters` may do everything, whatever is stored.
//!
//! Absent on purpose: denials. A rule can only allow.

mod compiled;
mod cover;
mod escalation;
mod policy;
mod reconcile;
mod rule;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::bounds::MOST_TOLD;
use crate::identity::{Attributes, Authorizer, Decision, Identity, MASTERS, Stored};
use crate::store::Snapshot;
use compiled::{Compiled, RoleRef};

pub(crate) use escalation::confirm;
pub(crate) use reconcile::writes as bootstrap;
pub(crate) use rule::Rule;

/// The group of roles and bindings.
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

/// The authorizer. Clones share what they have compiled.
#[derive(Clone, Default)]
pub(crate) struct Rbac {
    last: Arc<ArcSwap<Compiled>>,
}

impl Rbac {
    /// The rules as they are in a snapshot.
    fn compiled(&self, snapshot: &Snapshot) -> Arc<Compiled> {
        let last = self.last.load_full();
        if last.is_of(snapshot) {
            return last;
        }
        let next = Arc::new(Compiled::new(snapshot, &last));
        // Whoever compiles an older snapshot at the same time may win here: the next request repairs it.
        self.last.store(next.clone());
        next
    }

    /// All rules that somebody is granted in a namespace, and the roles of theirs that are missing. An empty namespace is
    /// the cluster as a whole.
    pub(crate) fn rules(&self, who: &Identity, namespace: &str, snapshot: &Snapshot) -> (Vec<Rule>, Vec<RoleRef>) {
        let compiled = self.compiled(snapshot);
        let (mut rules, mut missing) = (Vec::new(), Vec::new());
        for granted in compiled.granted(who, namespace) {
            match granted.rules() {
                Some(granted) => rules.extend_from_slice(granted),
                None => missing.push(granted.role().clone()),
            }
        }
        (rules, missing)
    }
}

impl Authorizer for Rbac {
    fn decide(&self, who: &Identity, what: Attributes<'_>, stored: Stored<'_>) -> Decision {
        if is_master(who) {
            return Decision::allowed("");
        }
        let compiled = self.compiled(stored.0);
        let mut missing = Vec::new();
        for granted in compiled.granted(who, what.namespace) {
            match granted.rules() {
                Some(rules) if rules.iter().any(|rule| rule.allows(what)) => {
                    return Decision::allowed(format!("RBAC: allowed by {granted}"));
                }
                Some(_) => {}
                None => missing.push(granted.role()),
            }
        }
        let problem = absent(missing);
        Decision::refused(problem.map_or_else(String::new, |problem| format!("RBAC: {problem}")))
    }
}

/// Whether nothing is refused to somebody.
pub(crate) fn is_master(who: &Identity) -> bool {
    who.groups.iter().any(|group| group == MASTERS)
}

/// That roles are missing; none, if none is.
pub(crate) fn absent<'a>(roles: impl IntoIterator<Item = &'a RoleRef>) -> Option<String> {
    told_once(roles.into_iter().map(RoleRef::not_found))
}

/// Several problems as one, each told once, as many as an answer tells; none, if there are none.
fn told_once(all: impl Iterator<Item = String>) -> Option<String> {
    let mut seen = BTreeSet::new();
    let problems: Vec<String> = all.filter(|problem| seen.insert(problem.clone())).take(MOST_TOLD).collect();
    match problems.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}
