//! The knobs of live migrations, each with its default.

use std::time::Duration;

use api::migration::MigrationConfiguration;
use api::names::taint;
use api::quantity::Amount;

/// How live migrations go, unless a policy says otherwise. What KubeVirt has besides is refused by admission, or warned about.
#[derive(Clone, Debug, PartialEq)]
pub struct Migrations<'a> {
    /// The taint that empties a node.
    pub node_drain_taint_key: &'a str,
    /// At once in the cluster.
    pub parallel_per_cluster: u32,
    /// At once away from one node.
    pub parallel_outbound_per_node: u32,
    /// Bytes per second of each; zero is without a limit.
    pub bandwidth: Amount,
    /// Time for each GiB to move.
    pub completion_timeout_per_gib: Duration,
    /// Time without progress.
    pub progress_timeout: Duration,
    /// The longest pause at the switch.
    pub max_downtime: Duration,
    /// Whether a guest that writes too fast is slowed down.
    pub allow_auto_converge: bool,
    /// Whether a migration out of time pauses the guest. Post-copy, which is not done, does not imply it: who allows that did not ask for
    /// a pause.
    pub allow_workload_disruption: bool,
}

impl<'a> Migrations<'a> {
    pub(super) fn of(spec: Option<&'a MigrationConfiguration>) -> Self {
        const UNSET: &MigrationConfiguration = &MigrationConfiguration {
            allow_auto_converge: None,
            allow_post_copy: None,
            allow_workload_disruption: None,
            bandwidth_per_migration: None,
            completion_timeout_per_gib: None,
            disable_tls: None,
            match_se_linux_level_on_migration: None,
            max_downtime_ms: None,
            network: None,
            node_drain_taint_key: None,
            parallel_migrations_per_cluster: None,
            parallel_outbound_migrations_per_node: None,
            progress_timeout: None,
            unsafe_migration_override: None,
            utility_volumes_timeout: None,
        };
        let spec = spec.unwrap_or(UNSET);
        Self {
            node_drain_taint_key: text(spec.node_drain_taint_key.as_ref()).unwrap_or(taint::DRAIN),
            parallel_per_cluster: spec.parallel_migrations_per_cluster.unwrap_or(5),
            parallel_outbound_per_node: spec.parallel_outbound_migrations_per_node.unwrap_or(2),
            bandwidth: spec.bandwidth_per_migration.as_ref().map(api::quantity::Quantity::amount).unwrap_or_default(),
            completion_timeout_per_gib: seconds(spec.completion_timeout_per_gib, 150),
            progress_timeout: seconds(spec.progress_timeout, 150),
            max_downtime: Duration::from_millis(positive(spec.max_downtime_ms).unwrap_or(900)),
            allow_auto_converge: spec.allow_auto_converge.unwrap_or(false),
            allow_workload_disruption: spec.allow_workload_disruption.unwrap_or(false),
        }
    }
}

fn text(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}

fn positive(number: Option<i64>) -> Option<u64> {
    number.and_then(|number| u64::try_from(number).ok())
}

fn seconds(number: Option<i64>, otherwise: u64) -> Duration {
    Duration::from_secs(positive(number).unwrap_or(otherwise))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_knob_has_its_default() {
        let migrations = Migrations::of(None);
        assert_eq!(migrations, Migrations::of(Some(&MigrationConfiguration::default())));
        assert_eq!((migrations.parallel_per_cluster, migrations.parallel_outbound_per_node), (5, 2));
        assert_eq!(migrations.max_downtime, Duration::from_millis(900));
        assert_eq!(migrations.node_drain_taint_key, "kubevirt.io/drain");
        assert!(migrations.bandwidth.is_zero());
    }

    #[test]
    fn post_copy_is_not_done_and_does_not_stop_guests() {
        let mut spec = MigrationConfiguration { allow_post_copy: Some(true), ..Default::default() };
        assert!(!Migrations::of(Some(&spec)).allow_workload_disruption);
        spec.allow_workload_disruption = Some(true);
        assert!(Migrations::of(Some(&spec)).allow_workload_disruption);
    }

    #[test]
    fn a_negative_time_is_as_if_unset() {
        let spec = MigrationConfiguration { progress_timeout: Some(-1), ..Default::default() };
        assert_eq!(Migrations::of(Some(&spec)).progress_timeout, Duration::from_secs(150));
    }
}
