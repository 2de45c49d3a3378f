//! Aggregated cluster roles: their rules are those of the roles that they select.
//!
//! Watches: ClusterRole. Owns: the rules of cluster roles with an aggregation rule. Emits: changes of those
//! rules. Absent on purpose: any judgement of the rules, which is the API server's.

use std::sync::Arc;

use k8s_openapi::api::rbac::v1::{AggregationRule, ClusterRole, PolicyRule};
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use manager::cache::{Cache, Key};
use manager::context::{Context, Started};
use manager::kit::{Kit, Reconciler};
use manager::selector::{Selector, SelectorError};
use manager::worker::Next;
use manager::writing::{log_changed, unless_gone};

/// As the flag `--controllers` knows it.
pub const NAME: &str = "clusterrole-aggregation-controller";
/// As in Kubernetes: there are few such roles.
const WORKERS: usize = 5;

/// The controller.
#[must_use]
pub fn start(context: &Context) -> Started {
    let roles: Cache<ClusterRole> = context.caches.of(&[]);
    let all = roles.clone();
    Kit::new(NAME, context)
        // Any role may be a part of any other: a change of one asks for a look at all that are aggregated.
        .watch(&roles, move |_| {
            let aggregated = all.all().into_iter().filter(|role| role.aggregation_rule.is_some());
            aggregated.map(|role| Key::of(&*role)).collect::<Vec<_>>()
        })
        .run(WORKERS, Aggregation { client: context.client.clone(), roles })
}

struct Aggregation {
    client: Client,
    roles: Cache<ClusterRole>,
}

impl Reconciler for Aggregation {
    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let Some(role) = self.roles.get(key) else { return Ok(Next::Wait) };
        if let Some(rules) = decide(&role, self.roles.all()) {
            let changed = ClusterRole { rules: Some(rules), ..(*role).clone() };
            let api: Api<ClusterRole> = Api::all(self.client.clone());
            let written = api.replace(&key.name, &PostParams::default(), &changed).await;
            unless_gone(written.inspect(|_| log_changed::<ClusterRole>(&key.name)))?;
        }
        Ok(Next::Wait)
    }
}

/// The rules that a role should have; none, if it has them or gathers none.
///
/// # Guarantees
/// - Each rule comes once, in the order of the selectors and, for each, of the names of the roles that it selects.
/// - A role is no part of itself.
/// - A selector that nobody understands changes nothing.
fn decide(role: &ClusterRole, mut all: Vec<Arc<ClusterRole>>) -> Option<Vec<PolicyRule>> {
    let AggregationRule { cluster_role_selectors } = role.aggregation_rule.as_ref()?;
    all.sort_by_key(|one| one.name_any());
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in cluster_role_selectors.iter().flatten() {
        let selector = match Selector::read(selector) {
            Ok(selector) => Some(selector),
            // Here it means everything.
            Err(SelectorError::Empty) => None,
            Err(_) => return None,
        };
        let selected = |one: &&Arc<ClusterRole>| {
            let labels = one.metadata.labels.as_ref();
            one.metadata.name != role.metadata.name && selector.as_ref().is_none_or(|selector| selector.matches(labels))
        };
        for rule in all.iter().filter(selected).flat_map(|one| one.rules.iter().flatten()) {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    (rules != role.rules.as_deref().unwrap_or_default()).then_some(rules)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn role(name: &str, label: &str, verbs: &[&str], selectors: &Value) -> Arc<ClusterRole> {
        let rules: Vec<Value> = verbs.iter().map(|verb| json!({ "verbs": [verb] })).collect();
        let aggregation = (!selectors.is_null()).then(|| json!({ "clusterRoleSelectors": selectors }));
        let metadata = json!({ "name": name, "labels": { "to": label } });
        Arc::new(
            serde_json::from_value(json!({ "metadata": metadata, "rules": rules, "aggregationRule": aggregation }))
                .unwrap(),
        )
    }

    fn verbs(rules: Option<Vec<PolicyRule>>) -> Option<Vec<String>> {
        rules.map(|rules| rules.into_iter().flat_map(|rule| rule.verbs).collect())
    }

    #[test]
    fn a_role_has_the_rules_of_those_it_selects_each_once_and_in_order() {
        let whole =
            role("whole", "a", &["own"], &json!([{ "matchLabels": { "to": "b" } }, { "matchLabels": { "to": "a" } }]));
        let parts = vec![
            role("y", "a", &["get", "list"], &Value::Null),
            role("x", "a", &["watch"], &Value::Null),
            role("z", "b", &["get"], &Value::Null),
            whole.clone(),
        ];
        assert_eq!(verbs(decide(&whole, parts)).unwrap(), ["get", "watch", "list"]);
    }

    #[test]
    fn a_role_that_is_right_or_not_aggregated_is_left_alone() {
        let whole = role("whole", "", &["get"], &json!([{}]));
        let part = role("x", "a", &["get"], &Value::Null);
        assert_eq!(decide(&whole, vec![part.clone()]), None);
        assert_eq!(decide(&part, vec![whole]), None);
        let strange = json!([{ "matchExpressions": [{ "key": "to", "operator": "Like" }] }]);
        assert_eq!(decide(&role("whole", "", &["get"], &strange), vec![part]), None);
    }

    proptest! {
        #[test]
        fn what_is_decided_is_right_at_once_and_in_any_order(
            parts in prop::collection::vec(("[a-d]", "[ab]", prop::collection::vec("[gluw]", 0..3)), 0..6),
        ) {
            let whole = role("whole", "", &[], &json!([{ "matchLabels": { "to": "a" } }]));
            let mut all: Vec<Arc<ClusterRole>> = Vec::new();
            for (name, label, verbs) in &parts {
                let verbs: Vec<&str> = verbs.iter().map(String::as_str).collect();
                all.retain(|one| one.name_any() != *name);
                all.push(role(name, label, &verbs, &Value::Null));
            }
            let decided = decide(&whole, all.clone());
            let now = ClusterRole { rules: decided.clone().or_else(|| whole.rules.clone()), ..(*whole).clone() };
            prop_assert_eq!(decide(&now, all.clone()), None);
            all.reverse();
            prop_assert_eq!(decide(&whole, all), decided);
        }
    }
}
