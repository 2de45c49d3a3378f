//! Hypervisor features.

use api::features::{FeatureAPIC, FeatureKVM, FeatureState, Features};

use super::sheet::Sheet;

const NO_HINTS: &str = "remove it; Hyper-V features are not offered to guests";

pub(super) fn place(sheet: &mut Sheet<'_>, features: &Features) {
    let Features { acpi, apic, hyperv, hyperv_passthrough, kvm, pvspinlock, smm } = features;
    sheet.part("acpi", acpi.as_ref(), |sheet, FeatureState { enabled }| sheet.works("enabled", enabled));
    sheet.part("apic", apic.as_ref(), |sheet, FeatureAPIC { enabled, end_of_interrupt }| {
        sheet.unsupported("enabled", "set it to true; every guest has one", *enabled == Some(false));
        sheet.unsupported("endOfInterrupt", "remove it; QEMU decides", *end_of_interrupt == Some(true));
    });
    sheet.unsupported("hyperv", NO_HINTS, hyperv.is_some());
    sheet.unsupported("hypervPassthrough", NO_HINTS, hyperv_passthrough.is_some());
    sheet.part("kvm", kvm.as_ref(), |sheet, FeatureKVM { hidden }| {
        sheet.unsupported("hidden", "remove it; KVM cannot be hidden from guests", *hidden == Some(true));
    });
    sheet.unsupported("pvspinlock", "remove it; the CPU model decides", pvspinlock.is_some());
    // It is on by itself; only its absence would have to be asked for.
    sheet.part("smm", smm.as_ref(), |sheet, FeatureState { enabled }| {
        sheet.unsupported("enabled", "set it to true; every board has it", *enabled == Some(false));
    });
}
