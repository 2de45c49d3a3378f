//! Virtual CPUs: model, features, topology.

use api::domain::{CPU, CPUFeature, CPUFeaturePolicy, DomainSpec};

use crate::accelerator::Accelerator;
use crate::guest::Cpu;
use crate::refusal::Refusals;

const PATH: &str = "spec.domain.cpu";
/// As many as QEMU's q35 takes without further devices.
const MOST_VCPUS: u64 = 255;

pub(super) fn cpu(refusals: &mut Refusals, domain: &DomainSpec, accelerator: Accelerator) -> Option<Cpu> {
    let default = CPU::default();
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
    } = domain.cpu.as_ref().unwrap_or(&default);
    refusals.unsupported("spec.domain.cpu.dedicatedCpuPlacement", *dedicated_cpu_placement == Some(true));
    refusals.unsupported("spec.domain.cpu.isolateEmulatorThread", *isolate_emulator_thread == Some(true));
    refusals.unsupported("spec.domain.cpu.numa", numa.is_some());
    refusals.unsupported("spec.domain.cpu.realtime", realtime.is_some());

    let [sockets, cores, threads] = [sockets, cores, threads].map(|count| count.unwrap_or(1).max(1));
    let most_sockets = max_sockets.unwrap_or(sockets).max(sockets);
    // Three 32-bit counts may not fit even 64 bits.
    let total = u64::from(most_sockets).saturating_mul(u64::from(cores)).saturating_mul(u64::from(threads));
    if total > MOST_VCPUS {
        let asked = format!("{most_sockets} sockets with {cores} cores of {threads} threads");
        refusals.refuse(PATH, format!("{asked} are too many vCPUs; the most is {MOST_VCPUS}"));
        return None;
    }
    let model = model_name(refusals, model.as_deref(), accelerator);
    let features = flags(refusals, features.as_deref().unwrap_or_default());
    Some(Cpu { model, features, sockets, most_sockets, cores, threads })
}

/// The host's own CPU. Emulation cannot pass it through; `max` is all that it can do.
pub(crate) fn host_model(accelerator: Accelerator) -> &'static str {
    match accelerator {
        Accelerator::Kvm => "host",
        Accelerator::Tcg => "max",
    }
}

/// What a model means on this accelerator.
fn model_name(refusals: &mut Refusals, model: Option<&str>, accelerator: Accelerator) -> String {
    let name = model.unwrap_or("host-model");
    if matches!(name, "host-model" | "host-passthrough") {
        return host_model(accelerator).to_owned();
    }
    if !is_plain(name) {
        let problem = format!("{name:?} is not a valid model name; see `qemu-system-x86_64 -cpu help`");
        refusals.refuse("spec.domain.cpu.model", problem);
    }
    name.to_owned()
}

/// Each feature with its flag. QEMU itself refuses what it cannot give when the guest starts.
fn flags(refusals: &mut Refusals, features: &[CPUFeature]) -> Vec<(String, bool)> {
    let mut flags = Vec::new();
    for (index, CPUFeature { name, policy }) in features.iter().enumerate() {
        let path = format!("spec.domain.cpu.features[{index}]");
        if !is_plain(name) {
            refusals.refuse(format!("{path}.name"), format!("{name:?} is not a valid CPU feature"));
            continue;
        }
        match policy {
            None | Some(CPUFeaturePolicy::Require | CPUFeaturePolicy::Force | CPUFeaturePolicy::Optional) => {
                flags.push((name.clone(), true));
            }
            Some(CPUFeaturePolicy::Disable | CPUFeaturePolicy::Forbid) => flags.push((name.clone(), false)),
            Some(CPUFeaturePolicy::Other(other)) => {
                let known = CPUFeaturePolicy::KNOWN.join(", ");
                refusals.refuse(format!("{path}.policy"), format!("{other:?} is not one of {known}"));
            }
        }
    }
    flags
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}
