//! Hyper-V enlightenments that need one another.

use api::domain::{CPUFeaturePolicy, DomainSpec};
use api::features::{FeatureHyperv, FeatureState};

use super::is_on;
use crate::denial::Problems;

const HYPERV: &str = "spec.domain.features.hyperv";

pub(super) fn check(domain: &DomainSpec, problems: &mut Problems) {
    let Some(features) = &domain.features else { return };
    let Some(hyperv) = &features.hyperv else { return };
    if features.hyperv_passthrough.is_some() {
        problems.invalid(
            HYPERV,
            "spec.domain.features.hypervPassthrough cannot be combined with single features; remove one of them",
        );
    }
    for (feature, set, needed, there) in needs(hyperv) {
        if set && !there {
            problems.invalid(format!("{HYPERV}.{feature}"), format!("needs {HYPERV}.{needed}; enable it as well"));
        }
    }
    if hyperv.vendorid.as_ref().and_then(|id| id.vendorid.as_deref()).is_some_and(|id| id.len() > 12) {
        problems.invalid(format!("{HYPERV}.vendorid.vendorid"), "has more than 12 characters; shorten it");
    }
    if hyperv.spinlocks.as_ref().and_then(|locks| locks.spinlocks).is_some_and(|retries| retries < 4096) {
        problems.invalid(format!("{HYPERV}.spinlocks.spinlocks"), "must be 4096 or more");
    }
    let listed = domain.cpu.iter().flat_map(|cpu| cpu.features.iter().flatten());
    let vmx = listed.clone().position(|feature| feature.name == "vmx");
    let denied = listed
        .clone()
        .any(|feature| feature.name == "vmx" && !matches!(feature.policy, None | Some(CPUFeaturePolicy::Require)));
    if is_on(hyperv.evmcs.as_ref()) && denied {
        let index = vmx.unwrap_or_default();
        let field = format!("spec.domain.cpu.features[{index}].policy");
        problems.invalid(field, format!("{HYPERV}.evmcs needs vmx; use the policy require"));
    }
}

/// Which feature needs which: its name and whether it is on, and the same of the other.
pub(crate) fn needs(hyperv: &FeatureHyperv) -> [(&'static str, bool, &'static str, bool); 5] {
    let on = |state: &Option<FeatureState>| is_on(state.as_ref());
    let timer = hyperv.synictimer.as_ref().is_some_and(|timer| timer.enabled != Some(false));
    let flush = hyperv.tlbflush.as_ref().is_some_and(|flush| flush.enabled != Some(false));
    [
        ("evmcs", on(&hyperv.evmcs), "vapic", on(&hyperv.vapic)),
        ("ipi", on(&hyperv.ipi), "vpindex", on(&hyperv.vpindex)),
        ("tlbflush", flush, "vpindex", on(&hyperv.vpindex)),
        ("synictimer", timer, "synic", on(&hyperv.synic)),
        ("synic", on(&hyperv.synic), "vpindex", on(&hyperv.vpindex)),
    ]
}
