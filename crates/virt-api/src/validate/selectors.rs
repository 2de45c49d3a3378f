//! Affinity and the selectors in it.

use k8s_openapi::api::core::v1::{Affinity, NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use virt_rules::names::{is_label_value, is_qualified};

use crate::denial::Problems;

pub(super) fn check_affinity(affinity: &Affinity, problems: &mut Problems) {
    if let Some(node) = &affinity.node_affinity {
        let field = "spec.affinity.nodeAffinity";
        if let Some(required) = &node.required_during_scheduling_ignored_during_execution {
            let field = format!("{field}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms");
            if required.node_selector_terms.is_empty() {
                problems.required(field.clone(), "is empty, so no node matches; add a term");
            }
            for (index, term) in required.node_selector_terms.iter().enumerate() {
                check_term(term, &format!("{field}[{index}]"), problems);
            }
        }
        let preferred = node.preferred_during_scheduling_ignored_during_execution.iter().flatten();
        for (index, preferred) in preferred.enumerate() {
            let field = format!("{field}.preferredDuringSchedulingIgnoredDuringExecution[{index}]");
            check_weight(preferred.weight, &field, problems);
            check_term(&preferred.preference, &format!("{field}.preference"), problems);
        }
    }
    let near = affinity.pod_affinity.as_ref().map(|near| {
        let required = &near.required_during_scheduling_ignored_during_execution;
        ("podAffinity", required, &near.preferred_during_scheduling_ignored_during_execution)
    });
    let far = affinity.pod_anti_affinity.as_ref().map(|far| {
        let required = &far.required_during_scheduling_ignored_during_execution;
        ("podAntiAffinity", required, &far.preferred_during_scheduling_ignored_during_execution)
    });
    for (name, required, preferred) in near.into_iter().chain(far) {
        for (index, term) in required.iter().flatten().enumerate() {
            let field = format!("spec.affinity.{name}.requiredDuringSchedulingIgnoredDuringExecution[{index}]");
            check_pod_term(term, &field, problems);
        }
        for (index, preferred) in preferred.iter().flatten().enumerate() {
            let field = format!("spec.affinity.{name}.preferredDuringSchedulingIgnoredDuringExecution[{index}]");
            check_weight(preferred.weight, &field, problems);
            check_pod_term(&preferred.pod_affinity_term, &format!("{field}.podAffinityTerm"), problems);
        }
    }
}

fn check_weight(weight: i32, field: &str, problems: &mut Problems) {
    if !(1..=100).contains(&weight) {
        problems.invalid(format!("{field}.weight"), format!("{weight} is not between 1 and 100"));
    }
}

fn check_pod_term(term: &PodAffinityTerm, field: &str, problems: &mut Problems) {
    check_key(&term.topology_key, &format!("{field}.topologyKey"), problems);
    if let Some(selector) = &term.label_selector {
        check_selector(selector, &format!("{field}.labelSelector"), problems);
    }
    if let Some(selector) = &term.namespace_selector {
        check_selector(selector, &format!("{field}.namespaceSelector"), problems);
    }
}

fn check_term(term: &NodeSelectorTerm, field: &str, problems: &mut Problems) {
    for (index, requirement) in term.match_expressions.iter().flatten().enumerate() {
        let field = format!("{field}.matchExpressions[{index}]");
        check_key(&requirement.key, &format!("{field}.key"), problems);
        check_node_operator(requirement, &field, problems);
    }
    for (index, requirement) in term.match_fields.iter().flatten().enumerate() {
        let field = format!("{field}.matchFields[{index}]");
        let one = requirement.values.as_ref().is_some_and(|values| values.len() == 1);
        if requirement.key != "metadata.name" || !matches!(requirement.operator.as_str(), "In" | "NotIn") || !one {
            problems.invalid(field, "must be metadata.name with In or NotIn and one value");
        }
    }
}

fn check_node_operator(requirement: &NodeSelectorRequirement, field: &str, problems: &mut Problems) {
    let values = requirement.values.as_deref().unwrap_or_default();
    match requirement.operator.as_str() {
        "Gt" | "Lt" if !matches!(values, [one] if one.parse::<i64>().is_ok()) => {
            problems.invalid(format!("{field}.values"), "Gt and Lt need exactly one whole number");
        }
        "Gt" | "Lt" => {}
        operator => check_operator(operator, values, field, problems),
    }
}

/// A selector of labels.
pub(crate) fn check_selector(selector: &LabelSelector, field: &str, problems: &mut Problems) {
    for (key, value) in selector.match_labels.iter().flatten() {
        let field = format!("{field}.matchLabels[{key}]");
        check_key(key, &field, problems);
        check_value(value, &field, problems);
    }
    for (index, requirement) in selector.match_expressions.iter().flatten().enumerate() {
        let field = format!("{field}.matchExpressions[{index}]");
        check_key(&requirement.key, &format!("{field}.key"), problems);
        let values = requirement.values.as_deref().unwrap_or_default();
        check_operator(&requirement.operator, values, &field, problems);
    }
}

fn check_operator(operator: &str, values: &[String], field: &str, problems: &mut Problems) {
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            problems.required(format!("{field}.values"), format!("{operator} needs at least one value; add one"));
        }
        "In" | "NotIn" => {
            for (index, value) in values.iter().enumerate() {
                check_value(value, &format!("{field}.values[{index}]"), problems);
            }
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            problems.invalid(format!("{field}.values"), format!("{operator} takes no values; remove them"));
        }
        "Exists" | "DoesNotExist" => {}
        other => {
            let message = format!("{other:?} is unknown; use one of In, NotIn, Exists, DoesNotExist");
            problems.unsupported(format!("{field}.operator"), message);
        }
    }
}

/// A label's key.
pub(super) fn check_key(key: &str, field: &str, problems: &mut Problems) {
    if !is_qualified(key) {
        problems
            .invalid(field, format!("{key:?} is not a valid label key; use one such as topology.kubernetes.io/zone"));
    }
}

/// A label's value.
pub(super) fn check_value(value: &str, field: &str, problems: &mut Problems) {
    if !is_label_value(value) {
        problems.invalid(
            field,
            format!("{value:?} is not a valid label value; use at most 63 letters, digits, ., _ and -"),
        );
    }
}
