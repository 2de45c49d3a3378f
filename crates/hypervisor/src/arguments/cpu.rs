//! Virtual CPUs: model, features, topology.

use api::domain::{CPU, CPUFeature, CPUFeaturePolicy, DomainSpec};

use super::line::Line;
use crate::accelerator::Accelerator;

const PATH: &str = "spec.domain.cpu";
/// As many as QEMU's q35 takes without further devices.
const MOST_VCPUS: u64 = 255;

pub(super) fn add(line: &mut Line, domain: &DomainSpec, accelerator: Accelerator) {
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
    line.unsupported("spec.domain.cpu.dedicatedCpuPlacement", *dedicated_cpu_placement == Some(true));
    line.unsupported("spec.domain.cpu.isolateEmulatorThread", *isolate_emulator_thread == Some(true));
    line.unsupported("spec.domain.cpu.numa", numa.is_some());
    line.unsupported("spec.domain.cpu.realtime", realtime.is_some());

    let [sockets, cores, threads] = [sockets, cores, threads].map(|count| u64::from(count.unwrap_or(1).max(1)));
    // Three 32-bit counts may not fit even 64 bits.
    let total = sockets.saturating_mul(cores).saturating_mul(threads);
    if total > MOST_VCPUS {
        let asked = format!("{sockets} sockets of {cores} cores with {threads} threads");
        line.refuse(PATH, format!("{asked} are too many vCPUs, the most is {MOST_VCPUS}"));
        return;
    }
    if max_sockets.is_some_and(|most| u64::from(most) > sockets) {
        line.refuse("spec.domain.cpu.maxSockets", "hotplug of sockets is not supported yet; remove it");
    }
    let model = model_name(line, model.as_deref(), accelerator);
    let flags = flags(line, features.as_deref().unwrap_or_default());
    line.option("-cpu", std::iter::once(model).chain(flags).collect::<Vec<_>>().join(","));
    line.option("-smp", format!("{total},sockets={sockets},cores={cores},threads={threads}"));
}

/// The host's own CPU. Emulation cannot pass it through; `max` is all that it can do.
pub(crate) fn host_model(accelerator: Accelerator) -> &'static str {
    match accelerator {
        Accelerator::Kvm => "host",
        Accelerator::Tcg => "max",
    }
}

/// What a model means on this accelerator.
fn model_name(line: &mut Line, model: Option<&str>, accelerator: Accelerator) -> String {
    match (model.unwrap_or("host-model"), accelerator) {
        ("host-model" | "host-passthrough", _) => host_model(accelerator).to_owned(),
        (name, _) => {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if name.is_empty() || !name.chars().all(plain) {
                line.refuse(
                    "spec.domain.cpu.model",
                    format!("{name:?} is no model name; see `qemu-system-x86_64 -cpu help`"),
                );
            }
            name.to_owned()
        }
    }
}

/// Each feature with its flag. QEMU itself refuses what it cannot give when the guest starts.
fn flags(line: &mut Line, features: &[CPUFeature]) -> Vec<String> {
    let mut flags = Vec::new();
    for (index, CPUFeature { name, policy }) in features.iter().enumerate() {
        let path = format!("spec.domain.cpu.features[{index}]");
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || !name.chars().all(plain) {
            line.refuse(format!("{path}.name"), format!("{name:?} is no CPU feature"));
            continue;
        }
        match policy {
            None | Some(CPUFeaturePolicy::Require | CPUFeaturePolicy::Force | CPUFeaturePolicy::Optional) => {
                flags.push(format!("{name}=on"));
            }
            Some(CPUFeaturePolicy::Disable | CPUFeaturePolicy::Forbid) => flags.push(format!("{name}=off")),
            Some(CPUFeaturePolicy::Other(other)) => {
                line.refuse(
                    format!("{path}.policy"),
                    format!("{other:?} is none of {}", CPUFeaturePolicy::KNOWN.join(", ")),
                );
            }
        }
    }
    flags
}
