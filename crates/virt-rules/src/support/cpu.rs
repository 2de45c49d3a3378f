//! Virtual CPUs.

use api::domain::{CPU, CPUFeature, CPUFeaturePolicy};

use super::sheet::Sheet;

/// As many as QEMU's q35 takes without further devices.
pub const MOST_VCPUS: u64 = 255;
const NO_PINNING: &str = "remove it; vCPUs are not pinned; request CPU with spec.domain.resources";

pub(super) fn place(sheet: &mut Sheet<'_>, cpu: &CPU) {
    let CPU {
        cores,
        dedicated_cpu_placement,
        features,
        isolate_emulator_thread,
        max_sockets,
        model,
        numa,
        realtime,
        sockets,
        threads,
    } = cpu;
    sheet.works("cores", cores);
    sheet.unsupported("dedicatedCpuPlacement", NO_PINNING, *dedicated_cpu_placement == Some(true));
    sheet.each("features", features.as_ref(), feature);
    sheet.unsupported("isolateEmulatorThread", NO_PINNING, *isolate_emulator_thread == Some(true));
    sheet.works("maxSockets", max_sockets);
    sheet.needs_node("model", "a model that the node's QEMU has, host-model or host-passthrough", model);
    if let Some(name) = model.as_deref().filter(|name| !name.is_empty() && !is_cpu_name(name)) {
        sheet.refuse("model", format!("{name:?} is not a valid model name; see `qemu-system-x86_64 -cpu help`"));
    }
    sheet.unsupported("numa", NO_PINNING, numa.is_some());
    sheet.unsupported("realtime", NO_PINNING, realtime.is_some());
    sheet.works("sockets", sockets);
    sheet.works("threads", threads);
    let [sockets, cores, threads] = [sockets, cores, threads].map(|count| count.unwrap_or(1).max(1));
    let most_sockets = max_sockets.unwrap_or(sockets).max(sockets);
    // Three 32-bit counts may not fit even 64 bits.
    let total = u64::from(most_sockets).saturating_mul(u64::from(cores)).saturating_mul(u64::from(threads));
    if total > MOST_VCPUS {
        let asked = format!("{most_sockets} sockets with {cores} cores of {threads} threads");
        sheet.refuse("", format!("{asked} are too many vCPUs; use at most {MOST_VCPUS}"));
    }
}

fn feature(sheet: &mut Sheet<'_>, feature: &CPUFeature) {
    let CPUFeature { name, policy } = feature;
    sheet.needs_node("name", "a feature that the node's CPU or QEMU has", name);
    if !is_cpu_name(name) {
        sheet.refuse("name", format!("{name:?} is not a valid CPU feature; use one such as vmx"));
    }
    sheet.words("policy", policy.as_ref().map(CPUFeaturePolicy::as_str), CPUFeaturePolicy::KNOWN);
}

/// Whether this is a name of a CPU model or feature, by its letters.
#[must_use]
pub fn is_cpu_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}
