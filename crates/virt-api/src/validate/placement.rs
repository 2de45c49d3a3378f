//! Where the guest may run: tolerations, spread, affinity, eviction.

use std::collections::BTreeSet;

use api::vmi::{EvictionStrategy, VirtualMachineInstanceSpec};
use k8s_openapi::api::core::v1::Toleration;
use virt_rules::names::is_dns_subdomain;

use super::selectors::{self, check_key, check_value};
use super::word;
use crate::denial::Problems;

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn check(spec: &VirtualMachineInstanceSpec, problems: &mut Problems) {
    for (key, value) in spec.node_selector.iter().flatten() {
        let field = format!("spec.nodeSelector[{key}]");
        check_key(key, &field, problems);
        check_value(value, &field, problems);
    }
    for (index, toleration) in spec.tolerations.iter().flatten().enumerate() {
        check_toleration(toleration, &format!("spec.tolerations[{index}]"), problems);
    }
    check_spread(spec, problems);
    if let Some(affinity) = &spec.affinity {
        selectors::check_affinity(affinity, problems);
    }
    let strategy = spec.eviction_strategy.as_ref().map(EvictionStrategy::as_str);
    word(strategy, EvictionStrategy::KNOWN, "spec.evictionStrategy", problems);
    for (field, name) in [
        ("spec.serviceAccountName", &spec.service_account_name),
        ("spec.priorityClassName", &spec.priority_class_name),
        ("spec.schedulerName", &spec.scheduler_name),
    ] {
        let name = name.as_deref().unwrap_or_default();
        if !name.is_empty() && !is_dns_subdomain(name) {
            problems.invalid(field, format!("{name:?} is not a valid object name; check the spelling"));
        }
    }
    if spec.termination_grace_period_seconds.is_some_and(|seconds| seconds < 0) {
        problems.invalid("spec.terminationGracePeriodSeconds", "must not be negative; use 0 to kill the guest at once");
    }
}

fn check_toleration(toleration: &Toleration, field: &str, problems: &mut Problems) {
    let key = toleration.key.as_deref().unwrap_or_default();
    let value = toleration.value.as_deref().unwrap_or_default();
    let operator = toleration.operator.as_deref().unwrap_or_default();
    if !key.is_empty() {
        check_key(key, &format!("{field}.key"), problems);
    }
    match operator {
        "" | "Equal" if key.is_empty() => {
            problems.invalid(format!("{field}.operator"), "must be Exists when the key is empty");
        }
        "" | "Equal" => check_value(value, &format!("{field}.value"), problems),
        "Exists" if !value.is_empty() => {
            problems.invalid(format!("{field}.value"), "must be empty when the operator is Exists; remove it");
        }
        "Exists" | "Lt" | "Gt" => {}
        other => word(Some(other), &["Equal", "Exists"], format!("{field}.operator"), problems),
    }
    word(toleration.effect.as_deref(), &EFFECTS, format!("{field}.effect"), problems);
    let effect = toleration.effect.as_deref().unwrap_or_default();
    if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
        problems.invalid(format!("{field}.effect"), "must be NoExecute when tolerationSeconds is set");
    }
}

fn check_spread(spec: &VirtualMachineInstanceSpec, problems: &mut Problems) {
    let mut seen = BTreeSet::new();
    for (index, constraint) in spec.topology_spread_constraints.iter().flatten().enumerate() {
        let field = format!("spec.topologySpreadConstraints[{index}]");
        if constraint.max_skew < 1 {
            problems.invalid(format!("{field}.maxSkew"), "must be 1 or more");
        }
        check_key(&constraint.topology_key, &format!("{field}.topologyKey"), problems);
        let action = constraint.when_unsatisfiable.as_str();
        let known = ["DoNotSchedule", "ScheduleAnyway"];
        if !known.contains(&action) {
            let message = format!("{action:?} is unknown; use one of {}", known.join(", "));
            problems.unsupported(format!("{field}.whenUnsatisfiable"), message);
        }
        if !seen.insert((constraint.topology_key.as_str(), action)) {
            problems.duplicate(
                field.clone(),
                "another constraint has the same topologyKey and whenUnsatisfiable; merge them",
            );
        }
        if constraint.min_domains.is_some_and(|least| least < 1 || action != "DoNotSchedule") {
            problems.invalid(format!("{field}.minDomains"), "must be 1 or more, and only works with DoNotSchedule");
        }
        if let Some(selector) = &constraint.label_selector {
            selectors::check_selector(selector, &format!("{field}.labelSelector"), problems);
        }
    }
}
