//! Where the pod may run, and how it appears in its cluster: the parts of its spec that no container has.

use std::collections::BTreeMap;

use api::domain::{CPU, CPUFeaturePolicy};
use api::features::{FeatureHyperv, FeatureState};
use api::names::{annotation, label};
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec,
};

use super::{Input, cpu, name};
use virt_rules::config::Gate;

/// Everything about the place of a pod; the rest of the spec is left to others.
pub(super) fn spec(input: &Input<'_>) -> PodSpec {
    let spec = &input.vmi.spec;
    let of_volume = spec.volumes.iter().flatten().find_map(|volume| volume.service_account.as_ref());
    let shown = of_volume.and_then(|account| account.service_account_name.clone()).filter(|name| !name.is_empty());
    let set = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    PodSpec {
        node_selector: Some(node_selector(input)),
        affinity: affinity(input),
        tolerations: spec.tolerations.clone().filter(|list| !list.is_empty()),
        topology_spread_constraints: spec.topology_spread_constraints.clone().filter(|list| !list.is_empty()),
        priority_class_name: set(&spec.priority_class_name),
        scheduler_name: set(&spec.scheduler_name),
        runtime_class_name: input.config.runtime_class().map(str::to_owned),
        hostname: Some(set(&spec.hostname).unwrap_or_else(|| name::hostname(input.name()))),
        subdomain: set(&spec.subdomain),
        dns_policy: spec.dns_policy.as_ref().map(ToString::to_string),
        dns_config: spec.dns_config.clone(),
        // A token that the guest is shown is the only reason to have one in the pod.
        automount_service_account_token: Some(shown.is_some()),
        service_account_name: shown.or_else(|| set(&spec.service_account_name)),
        ..PodSpec::default()
    }
}

/// Labels that a node must have. The instance's own choice wins over the cluster's, what it needs wins over both.
fn node_selector(input: &Input<'_>) -> BTreeMap<String, String> {
    let vmi = input.vmi;
    let mut selector = input.config.node_selectors().cloned().unwrap_or_default();
    selector.extend(vmi.spec.node_selector.clone().unwrap_or_default());
    let mut need = |key: String| selector.insert(key, "true".to_owned());
    need(label::SCHEDULABLE.to_owned());
    if let Some(machine) = vmi.spec.domain.machine.as_ref().and_then(|machine| machine.type_.as_deref())
        && !machine.is_empty()
    {
        need(format!("{}{machine}", label::MACHINE_TYPE_PREFIX));
    }
    cpu_labels(input).into_iter().for_each(|key| _ = need(key));
    security_labels(vmi).into_iter().for_each(|key| _ = need(key.to_owned()));
    if input.config.enabled(Gate::HypervStrictCheck) {
        hyperv_labels(vmi).into_iter().for_each(|key| _ = need(key));
    }
    let hints = vmi.status.as_ref().and_then(|status| status.topology_hints.as_ref());
    if let Some(frequency) = hints.and_then(|hints| hints.tsc_frequency) {
        need(format!("scheduling.node.kubevirt.io/tsc-frequency-{frequency}"));
    }
    if let Some(architecture) = vmi.spec.architecture.as_ref().filter(|name| !name.is_empty()) {
        selector.insert("kubernetes.io/arch".to_owned(), architecture.clone());
    }
    selector
}

/// The model in use: the instance's, else the cluster's, else the usual one of its architecture.
fn model<'a>(input: &Input<'a>) -> &'a str {
    let own = input.vmi.spec.domain.cpu.as_ref().and_then(|cpu| cpu.model.as_deref()).filter(|model| !model.is_empty());
    let architecture = input.vmi.spec.architecture.as_deref();
    let usual = if architecture == Some("arm64") { "host-passthrough" } else { "host-model" };
    own.or_else(|| input.config.cpu_model()).unwrap_or(usual)
}

fn cpu_labels(input: &Input<'_>) -> Vec<String> {
    let mut labels = Vec::new();
    if !matches!(model(input), "host-model" | "host-passthrough" | "max") {
        labels.push(format!("{}{}", label::CPU_MODEL_PREFIX, model(input)));
    }
    if cpu::is_dedicated(input.vmi) {
        labels.push("cpumanager".to_owned());
    }
    let Some(CPU { features, realtime, .. }) = &input.vmi.spec.domain.cpu else { return labels };
    let required = features.iter().flatten().filter(|feature| match &feature.policy {
        None | Some(CPUFeaturePolicy::Require) => true,
        Some(CPUFeaturePolicy::Other(other)) => other.is_empty(),
        Some(
            CPUFeaturePolicy::Force | CPUFeaturePolicy::Optional | CPUFeaturePolicy::Disable | CPUFeaturePolicy::Forbid,
        ) => false,
    });
    labels.extend(required.map(|feature| format!("{}{}", label::CPU_FEATURE_PREFIX, feature.name)));
    if realtime.is_some() {
        labels.push(label::REALTIME.to_owned());
    }
    labels
}

fn security_labels(vmi: &VirtualMachineInstance) -> Vec<&'static str> {
    let Some(security) = &vmi.spec.domain.launch_security else { return Vec::new() };
    let mut labels = Vec::new();
    if let Some(sev) = &security.sev {
        let encrypted = sev.policy.as_ref().is_some_and(|policy| policy.encrypted_state == Some(true));
        labels.push(if encrypted { "kubevirt.io/sev-es" } else { "kubevirt.io/sev" });
    }
    if security.snp.is_some() {
        labels.push("kubevirt.io/sev-snp");
    }
    if security.tdx.is_some() {
        labels.push("kubevirt.io/tdx");
    }
    labels
}

/// Enlightenments that not every kernel has.
fn hyperv_labels(vmi: &VirtualMachineInstance) -> Vec<String> {
    let Some(hyperv) = vmi.spec.domain.features.as_ref().and_then(|features| features.hyperv.as_ref()) else {
        return Vec::new();
    };
    let on = |state: &Option<FeatureState>| state.as_ref().is_some_and(|state| state.enabled != Some(false));
    let FeatureHyperv {
        evmcs,
        frequencies,
        ipi,
        reenlightenment,
        reset,
        runtime,
        synic,
        synictimer,
        tlbflush,
        vpindex,
        ..
    } = hyperv;
    let timer = synictimer.as_ref().is_some_and(|timer| timer.enabled != Some(false));
    let flush = tlbflush.as_ref().is_some_and(|flush| flush.enabled != Some(false));
    let mut labels: Vec<String> = [
        ("frequencies", on(frequencies)),
        ("ipi", on(ipi)),
        ("reenlightenment", on(reenlightenment)),
        ("reset", on(reset)),
        ("runtime", on(runtime)),
        ("synic", on(synic)),
        ("synictimer", timer),
        ("tlbflush", flush),
        ("vpindex", on(vpindex)),
    ]
    .into_iter()
    .filter(|(_, on)| *on)
    .map(|(name, _)| format!("{}{name}", label::HYPERV_PREFIX))
    .collect();
    if on(evmcs) {
        labels.push(format!("{}vmx", label::CPU_FEATURE_PREFIX));
        labels.push(format!("{}Intel", label::CPU_VENDOR_PREFIX));
    }
    labels
}

/// The instance's affinity; and a guest of the host's model stays away from nodes whose model is obsolete.
fn affinity(input: &Input<'_>) -> Option<Affinity> {
    let own = input.vmi.spec.affinity.clone();
    if model(input) != "host-model" {
        return own;
    }
    let requirement = NodeSelectorRequirement {
        key: annotation::OBSOLETE_HOST_MODEL.to_owned(),
        operator: "DoesNotExist".to_owned(),
        values: None,
    };
    let mut affinity = own.unwrap_or_default();
    let node = affinity.node_affinity.get_or_insert_with(NodeAffinity::default);
    let selector = node.required_during_scheduling_ignored_during_execution.get_or_insert_with(NodeSelector::default);
    // Terms are alternatives: each must carry the requirement. An empty term matches nothing, and still must not match.
    if selector.node_selector_terms.is_empty() {
        selector.node_selector_terms.push(NodeSelectorTerm::default());
        selector
            .node_selector_terms
            .iter_mut()
            .for_each(|term| term.match_expressions = Some(vec![requirement.clone()]));
        return Some(affinity);
    }
    for term in &mut selector.node_selector_terms {
        let empty = |list: Option<usize>| list.unwrap_or(0) == 0;
        if empty(term.match_expressions.as_ref().map(Vec::len)) && empty(term.match_fields.as_ref().map(Vec::len)) {
            continue;
        }
        term.match_expressions.get_or_insert_default().push(requirement.clone());
    }
    Some(affinity)
}

#[cfg(test)]
mod tests;
