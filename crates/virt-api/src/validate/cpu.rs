//! vCPUs: how many, of what kind, and what pinning them needs.

use api::domain::CPU;
use api::quantity::Amount;
use api::vmi::VirtualMachineInstanceSpec;

use super::memory;
use crate::denial::Problems;

const CPU_FIELD: &str = "spec.domain.cpu";
const DEDICATED: &str = "spec.domain.cpu.dedicatedCpuPlacement";

pub(super) fn check(spec: &VirtualMachineInstanceSpec, problems: &mut Problems) {
    check_amounts(spec, problems);
    let Some(cpu) = &spec.domain.cpu else { return };
    if let (Some(sockets), Some(most)) = (cpu.sockets, cpu.max_sockets)
        && most > 0
        && sockets > most
    {
        let message = format!("{sockets} is more than {CPU_FIELD}.maxSockets, {most}; use fewer, or raise maxSockets");
        problems.invalid(format!("{CPU_FIELD}.sockets"), message);
    }
    for (index, feature) in cpu.features.iter().flatten().enumerate() {
        let at = format!("{CPU_FIELD}.features[{index}]");
        if feature.name.is_empty() {
            problems.required(format!("{at}.name"), "is empty; name a CPU feature such as vmx");
        }
    }
    let pinned = cpu.dedicated_cpu_placement == Some(true);
    if pinned {
        check_pinning(spec, cpu, problems);
    } else if cpu.isolate_emulator_thread == Some(true) {
        let message = format!("needs {DEDICATED}; set it to true");
        problems.invalid(format!("{CPU_FIELD}.isolateEmulatorThread"), message);
    }
    check_numa(spec, cpu, pinned, problems);
}

fn check_numa(spec: &VirtualMachineInstanceSpec, cpu: &CPU, pinned: bool, problems: &mut Problems) {
    let mapped = cpu.numa.as_ref().is_some_and(|numa| numa.guest_mapping_passthrough.is_some());
    let field = format!("{CPU_FIELD}.numa.guestMappingPassthrough");
    if mapped && !pinned {
        problems.invalid(field.clone(), format!("needs {DEDICATED}; set it to true"));
    }
    if mapped && memory::hugepages(spec).is_none() {
        problems.invalid(field.clone(), "needs spec.domain.memory.hugepages; set its pageSize");
    }
    if cpu.realtime.is_some() && !pinned {
        problems.required(DEDICATED, format!("is required for {CPU_FIELD}.realtime; set it to true"));
    }
    if cpu.realtime.is_some() && !mapped {
        problems.required(field, format!("is required for {CPU_FIELD}.realtime; set it to {{}}"));
    }
}

fn check_amounts(spec: &VirtualMachineInstanceSpec, problems: &mut Problems) {
    let (request, limit) = (amount(spec, "requests", "cpu"), amount(spec, "limits", "cpu"));
    for (kind, given) in [("requests", request), ("limits", limit)] {
        if given.is_some_and(|given| given < Amount::default()) {
            problems.invalid(format!("spec.domain.resources.{kind}.cpu"), "must not be negative; use 0 or more");
        }
    }
    if let (Some(request), Some(limit)) = (request, limit)
        && limit > Amount::default()
        && request > limit
    {
        let message = format!("{request} is more than spec.domain.resources.limits.cpu, {limit}; lower it");
        problems.invalid("spec.domain.resources.requests.cpu", message);
    }
}

fn check_pinning(spec: &VirtualMachineInstanceSpec, cpu: &CPU, problems: &mut Problems) {
    let (request, limit) = (amount(spec, "requests", "cpu"), amount(spec, "limits", "cpu"));
    let count = vcpus(cpu).unwrap_or(u32::MAX);
    for (kind, given) in [("requests", request), ("limits", limit)] {
        let Some(given) = given.filter(|given| *given > Amount::default()) else { continue };
        let field = format!("spec.domain.resources.{kind}.cpu");
        if given.milli_units() != given.units() * 1000 {
            problems.invalid(field, format!("{given} must be a whole number because {DEDICATED} is set"));
        } else if given.units() != i128::from(count) {
            let message =
                format!("{given} must equal the number of vCPUs, {count}, because {DEDICATED} is set; remove it");
            problems.invalid(field, message);
        }
    }
    if cpu.threads.is_some_and(|threads| threads > 2) {
        problems.invalid(format!("{CPU_FIELD}.threads"), format!("must not be more than 2 because {DEDICATED} is set"));
    }
    let (request, limit) = (amount(spec, "requests", "memory"), amount(spec, "limits", "memory"));
    if let (Some(request), Some(limit)) = (request, limit)
        && request != limit
    {
        let message =
            format!("{request} must equal spec.domain.resources.limits.memory, {limit}, because {DEDICATED} is set");
        problems.invalid("spec.domain.resources.requests.memory", format!("{message}; make them equal"));
    }
}

/// Sockets times cores times threads; what is not set counts one. `None` beyond all numbers.
fn vcpus(cpu: &CPU) -> Option<u32> {
    let count = |set: Option<u32>| set.filter(|set| *set > 0).unwrap_or(1);
    count(cpu.sockets).checked_mul(count(cpu.cores))?.checked_mul(count(cpu.threads))
}

/// What the pod requests of a resource, or is limited to.
pub(super) fn amount(spec: &VirtualMachineInstanceSpec, kind: &str, resource: &str) -> Option<Amount> {
    let resources = spec.domain.resources.as_ref()?;
    let amounts = if kind == "limits" { &resources.limits } else { &resources.requests };
    amounts.as_ref()?.get(resource).map(api::quantity::Quantity::amount)
}
