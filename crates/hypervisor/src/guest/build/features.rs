//! Hypervisor features. ACPI is a property of the machine and set there.

use api::features::{FeatureAPIC, Features};

use crate::refusal::Refusals;

pub(super) fn check(refusals: &mut Refusals, features: Option<&Features>) {
    let Some(Features { acpi: _, apic, hyperv, hyperv_passthrough, kvm, pvspinlock, smm }) = features else { return };
    if let Some(FeatureAPIC { enabled, end_of_interrupt }) = apic {
        refusals.unsupported("spec.domain.features.apic.enabled", *enabled == Some(false));
        refusals.unsupported("spec.domain.features.apic.endOfInterrupt", *end_of_interrupt == Some(true));
    }
    refusals.unsupported("spec.domain.features.hyperv", hyperv.is_some());
    refusals.unsupported("spec.domain.features.hypervPassthrough", hyperv_passthrough.is_some());
    refusals.unsupported("spec.domain.features.kvm.hidden", kvm.as_ref().is_some_and(|kvm| kvm.hidden == Some(true)));
    refusals.unsupported("spec.domain.features.pvspinlock", pvspinlock.is_some());
    // SMM is on by itself; only its absence would have to be asked for.
    refusals
        .unsupported("spec.domain.features.smm.enabled", smm.as_ref().is_some_and(|smm| smm.enabled == Some(false)));
}
