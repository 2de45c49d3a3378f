//! What holds for one migration: the cluster's settings, and those of the policy that fits the instance best.

use std::collections::BTreeMap;

use api::migration::VMIMConfigurationOptions as Options;
use api::migration_policy::{MigrationPolicy, MigrationPolicySpec, Selectors};
use api::quantity::Quantity;
use virt_rules::config::Migrations;

type Labels = BTreeMap<String, String>;

/// The policy for an instance with these labels, in a namespace with those. All labels of a policy must match. The one with the
/// most labels wins, then the one with the most labels of the instance, then the first by name. A policy that selects nothing
/// matches nothing.
#[must_use]
pub fn best<'a>(
    policies: &[&'a MigrationPolicy],
    instance: &Labels,
    namespace: &Labels,
) -> Option<&'a MigrationPolicy> {
    let fits = |policy: &&'a MigrationPolicy| {
        let Selectors { namespace_selector, virtual_machine_instance_selector } = &policy.spec.selectors;
        let (of_namespace, of_instance) = (namespace_selector.as_ref(), virtual_machine_instance_selector.as_ref());
        let counts = (count(of_namespace), count(of_instance));
        counts != (0, 0) && has_all(of_namespace, namespace) && has_all(of_instance, instance)
    };
    let rank = |policy: &&'a MigrationPolicy| {
        let Selectors { namespace_selector, virtual_machine_instance_selector } = &policy.spec.selectors;
        let of_instance = count(virtual_machine_instance_selector.as_ref());
        let name = policy.metadata.name.clone().unwrap_or_default();
        (of_instance + count(namespace_selector.as_ref()), of_instance, std::cmp::Reverse(name))
    };
    policies.iter().copied().filter(fits).max_by_key(rank)
}

fn count(selector: Option<&Labels>) -> usize {
    selector.map_or(0, BTreeMap::len)
}

fn has_all(selector: Option<&Labels>, labels: &Labels) -> bool {
    selector.into_iter().flatten().all(|(key, value)| labels.get(key) == Some(value))
}

/// The settings of one migration, as they are told to the handlers.
#[must_use]
pub fn resolve(cluster: &Migrations<'_>, policy: Option<&MigrationPolicy>) -> Options {
    let mut options = of_cluster(cluster);
    let Some(policy) = policy else { return options };
    let MigrationPolicySpec {
        selectors: _,
        allow_auto_converge,
        // It is not done, and does not stop guests.
        allow_post_copy: _,
        allow_workload_disruption,
        bandwidth_per_migration,
        completion_timeout_per_gib,
        experimental: _,
        max_downtime_ms,
    } = policy.spec.clone();
    options.allow_auto_converge = allow_auto_converge.or(options.allow_auto_converge);
    options.allow_workload_disruption = allow_workload_disruption.or(options.allow_workload_disruption);
    options.bandwidth_per_migration = bandwidth_per_migration.or(options.bandwidth_per_migration);
    options.completion_timeout_per_gib = completion_timeout_per_gib.or(options.completion_timeout_per_gib);
    options.max_downtime_ms = max_downtime_ms.or(options.max_downtime_ms);
    options
}

fn of_cluster(cluster: &Migrations<'_>) -> Options {
    let seconds = |time: std::time::Duration| i64::try_from(time.as_secs()).ok();
    let Migrations {
        node_drain_taint_key,
        parallel_per_cluster,
        parallel_outbound_per_node,
        bandwidth,
        completion_timeout_per_gib,
        progress_timeout,
        max_downtime,
        allow_auto_converge,
        allow_workload_disruption,
    } = cluster;
    Options {
        allow_auto_converge: Some(*allow_auto_converge),
        allow_post_copy: Some(false),
        allow_workload_disruption: Some(*allow_workload_disruption),
        bandwidth_per_migration: Some(Quantity::from(*bandwidth)),
        completion_timeout_per_gib: seconds(*completion_timeout_per_gib),
        disable_tls: Some(false),
        max_downtime_ms: i64::try_from(max_downtime.as_millis()).ok(),
        node_drain_taint_key: Some((*node_drain_taint_key).to_owned()),
        parallel_migrations_per_cluster: Some(*parallel_per_cluster),
        parallel_outbound_migrations_per_node: Some(*parallel_outbound_per_node),
        progress_timeout: seconds(*progress_timeout),
        // Nothing here looks at them.
        experimental: None,
        match_se_linux_level_on_migration: None,
        network: None,
        unsafe_migration_override: None,
        utility_volumes_timeout: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "what is written where it is used needs no borrow")]
    fn policy(name: &str, instance: Value, namespace: Value) -> MigrationPolicy {
        serde_json::from_value(json!({
            "metadata": { "name": name },
            "spec": { "selectors": { "virtualMachineInstanceSelector": instance, "namespaceSelector": namespace } },
        }))
        .unwrap()
    }

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn winner(policies: &[MigrationPolicy]) -> Option<String> {
        let (instance, namespace) = (labels(&[("app", "db"), ("tier", "gold")]), labels(&[("team", "blue")]));
        let all: Vec<_> = policies.iter().collect();
        best(&all, &instance, &namespace).and_then(|policy| policy.metadata.name.clone())
    }

    #[test]
    fn the_policy_with_most_labels_wins_then_more_of_the_instance_then_the_name() {
        let one = policy("one", json!({ "app": "db" }), json!(null));
        let two = policy("two", json!({ "app": "db", "tier": "gold" }), json!(null));
        let mixed = policy("mixed", json!({ "app": "db" }), json!({ "team": "blue" }));
        assert_eq!(winner(&[one.clone(), mixed.clone()]).as_deref(), Some("mixed"));
        assert_eq!(winner(&[mixed, two]).as_deref(), Some("two"));
        let twin = policy("a-twin", json!({ "tier": "gold" }), json!(null));
        assert_eq!(winner(&[one, twin]).as_deref(), Some("a-twin"));
    }

    #[test]
    fn a_policy_that_selects_nothing_or_something_else_does_not_match() {
        assert_eq!(winner(&[policy("none", json!(null), json!(null))]), None);
        assert_eq!(winner(&[policy("empty", json!({}), json!({}))]), None);
        assert_eq!(winner(&[policy("other", json!({ "app": "db" }), json!({ "team": "red" }))]), None);
    }

    #[test]
    fn a_policy_overrides_the_cluster_field_by_field() {
        let config = virt_rules::config::ClusterConfig::new(None);
        let mut policy = policy("p", json!({ "app": "db" }), json!(null));
        policy.spec.allow_post_copy = Some(true);
        policy.spec.completion_timeout_per_gib = Some(7);
        let options = resolve(&config.migrations(), Some(&policy));
        assert_eq!(options.completion_timeout_per_gib, Some(7));
        let told = (options.allow_post_copy, options.allow_workload_disruption);
        assert_eq!(told, (Some(false), Some(false)), "post-copy is not done, and does not stop guests");
        assert_eq!(options.progress_timeout, Some(150), "what the policy does not say stays");
    }
}
