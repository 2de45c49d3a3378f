//! Hypervisor features that a preference switches on.

use api::features::{FeatureHyperv, Features};
use api::preference::FeaturePreferences;

use super::{fill, within};

pub(super) fn apply(features: &mut Features, preference: &FeaturePreferences) {
    let FeaturePreferences {
        preferred_acpi,
        preferred_apic,
        preferred_hyperv,
        preferred_kvm,
        preferred_pvspinlock,
        preferred_smm,
    } = preference;
    fill(&mut features.acpi, preferred_acpi.as_ref());
    fill(&mut features.apic, preferred_apic.as_ref());
    fill(&mut features.kvm, preferred_kvm.as_ref());
    fill(&mut features.pvspinlock, preferred_pvspinlock.as_ref());
    fill(&mut features.smm, preferred_smm.as_ref());
    // Whoever passes all enlightenments through has chosen already, and may not choose single ones as well.
    if let Some(preferred) = preferred_hyperv.as_ref().filter(|_| features.hyperv_passthrough.is_none()) {
        within(&mut features.hyperv, |hyperv| enlighten(hyperv, preferred));
    }
}

fn enlighten(hyperv: &mut FeatureHyperv, preferred: &FeatureHyperv) {
    let FeatureHyperv {
        evmcs,
        frequencies,
        ipi,
        reenlightenment,
        relaxed,
        reset,
        runtime,
        spinlocks,
        synic,
        synictimer,
        tlbflush,
        vapic,
        vendorid,
        vpindex,
    } = preferred;
    fill(&mut hyperv.evmcs, evmcs.as_ref());
    fill(&mut hyperv.frequencies, frequencies.as_ref());
    fill(&mut hyperv.ipi, ipi.as_ref());
    fill(&mut hyperv.reenlightenment, reenlightenment.as_ref());
    fill(&mut hyperv.relaxed, relaxed.as_ref());
    fill(&mut hyperv.reset, reset.as_ref());
    fill(&mut hyperv.runtime, runtime.as_ref());
    fill(&mut hyperv.spinlocks, spinlocks.as_ref());
    fill(&mut hyperv.synic, synic.as_ref());
    fill(&mut hyperv.synictimer, synictimer.as_ref());
    fill(&mut hyperv.tlbflush, tlbflush.as_ref());
    fill(&mut hyperv.vapic, vapic.as_ref());
    fill(&mut hyperv.vendorid, vendorid.as_ref());
    fill(&mut hyperv.vpindex, vpindex.as_ref());
}
