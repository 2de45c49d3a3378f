//! Hypervisor features: ACPI, APIC, KVM and the Hyper-V enlightenments.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Hypervisor features the guest can see.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Features {
    /// ACPI tables for power and device discovery; on by default.
    pub acpi: Option<FeatureState>,
    /// Local interrupt controller; on by default.
    pub apic: Option<FeatureAPIC>,
    /// Single Hyper-V enlightenments, mostly for Windows.
    pub hyperv: Option<FeatureHyperv>,
    /// Every Hyper-V enlightenment the host supports.
    pub hyperv_passthrough: Option<HyperVPassthrough>,
    /// How KVM presents itself to the guest.
    pub kvm: Option<FeatureKVM>,
    /// Paravirtual spinlocks; helps when vCPUs outnumber CPUs.
    pub pvspinlock: Option<FeatureState>,
    /// System Management Mode, required by secure boot.
    pub smm: Option<FeatureState>,
}

/// An on/off switch.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct FeatureState {
    /// True if unset while the feature is listed.
    pub enabled: Option<bool>,
}

/// Local APIC options.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FeatureAPIC {
    /// False removes the APIC; true if unset.
    pub enabled: Option<bool>,
    /// Paravirtual end-of-interrupt signalling; off by default.
    pub end_of_interrupt: Option<bool>,
}

/// Visibility of KVM to the guest.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct FeatureKVM {
    /// Hides the KVM signature in CPUID, e.g. from GPU drivers.
    pub hidden: Option<bool>,
}

/// Hyper-V enlightenments offered to the guest.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct FeatureHyperv {
    /// Faster nested virtualization on Intel; needs vapic.
    pub evmcs: Option<FeatureState>,
    /// MSRs that report TSC and APIC frequencies.
    pub frequencies: Option<FeatureState>,
    /// Hypercalls for inter-processor interrupts; needs vpindex.
    pub ipi: Option<FeatureState>,
    /// Tells the guest when TSC frequency changes on migration.
    pub reenlightenment: Option<FeatureState>,
    /// Stops guest watchdog timeouts on a busy host.
    pub relaxed: Option<FeatureState>,
    /// Lets the guest reset itself through an MSR.
    pub reset: Option<FeatureState>,
    /// MSR with the time a vCPU has actually run.
    pub runtime: Option<FeatureState>,
    /// Guest yields after this many failed lock attempts.
    pub spinlocks: Option<FeatureSpinlocks>,
    /// Synthetic interrupt controller; needs vpindex.
    pub synic: Option<FeatureState>,
    /// Synthetic timers per vCPU; needs synic.
    pub synictimer: Option<SyNICTimer>,
    /// Hypercalls for remote TLB flushes; needs vpindex.
    pub tlbflush: Option<TLBFlush>,
    /// Cheaper interrupt handling via a virtual APIC page.
    pub vapic: Option<FeatureState>,
    /// Replaces the hypervisor vendor string in CPUID.
    pub vendorid: Option<FeatureVendorID>,
    /// MSR that tells a vCPU its own index.
    pub vpindex: Option<FeatureState>,
}

/// Spinlock retries before the guest calls the hypervisor.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct FeatureSpinlocks {
    /// True if unset while spinlocks is listed.
    pub enabled: Option<bool>,
    /// Number of retries, at least 4096, the default.
    pub spinlocks: Option<u32>,
}

/// Custom hypervisor vendor string.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct FeatureVendorID {
    /// True if unset while vendorid is listed.
    pub enabled: Option<bool>,
    /// Vendor string, at most 12 characters.
    pub vendorid: Option<String>,
}

/// Switch for all host-supported enlightenments.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct HyperVPassthrough {
    /// Cannot be combined with single hyperv features.
    pub enabled: Option<bool>,
}

/// Synthetic timer options.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct SyNICTimer {
    /// Expired timers raise interrupts instead of messages.
    pub direct: Option<FeatureState>,
    /// True if unset while synictimer is listed.
    pub enabled: Option<bool>,
}

/// Paravirtual TLB flush options.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct TLBFlush {
    /// Handles flushes of nested guests without an exit to L1.
    pub direct: Option<FeatureState>,
    /// True if unset while tlbflush is listed.
    pub enabled: Option<bool>,
    /// Lets the guest flush single address ranges.
    pub extended: Option<FeatureState>,
}
