//! Virtual CPUs: model, features, topology.

use api::domain::{CPU, CPUFeature, CPUFeaturePolicy, DomainSpec};

use super::Before;
use crate::accelerator::Accelerator;
use crate::guest::{Cpu, Guest};

/// The sockets that an emulated guest with a single CPU has at least, of which one stays empty. Before version 8.1, QEMU emulates
/// a guest that can never have a second CPU without memory barriers: now and then a virtio device misses that it was notified, and
/// the guest waits for ever for its disk.
const EMULATED_SOCKETS: u32 = 2;

/// The CPUs that are asked for. A guest that was there before keeps the room that it had, unless it is asked for another one.
pub(super) fn cpu(domain: &DomainSpec, accelerator: Accelerator, before: Option<&Cpu>) -> Cpu {
    let default = CPU::default();
    let CPU {
        cores,
        dedicated_cpu_placement: _,
        features,
        isolate_emulator_thread: _,
        max_sockets,
        model,
        numa: _,
        realtime: _,
        sockets,
        threads,
    } = domain.cpu.as_ref().unwrap_or(&default);
    let [sockets, cores, threads] = [sockets, cores, threads].map(|count| count.unwrap_or(1).max(1));
    let is_same = |before: &&Cpu| (before.sockets, before.cores, before.threads) == (sockets, cores, threads);
    let room = max_sockets.unwrap_or_else(|| match before.filter(is_same) {
        Some(before) => before.most_sockets,
        None if accelerator == Accelerator::Tcg && [sockets, cores, threads] == [1; 3] => EMULATED_SOCKETS,
        None => sockets,
    });
    let most_sockets = room.max(sockets);
    let model = model_name(model.as_deref(), accelerator);
    let features = features.iter().flatten().map(flag).collect();
    Cpu { model, features, sockets, most_sockets, cores, threads, found: None }
}

/// A guest that runs keeps the CPUs that it found. The next start finds those of its node.
pub(super) fn as_found(cpu: Cpu, before: Before<'_>) -> Cpu {
    match before {
        Before::Running(Guest { cpu: known, .. }) if Cpu { found: None, ..known.clone() } == cpu => known.clone(),
        Before::Nothing | Before::Stopped(_) | Before::Running(_) => cpu,
    }
}

/// The host's own CPU. Emulation cannot pass it through; `max` is all that it can do.
pub(crate) fn host_model(accelerator: Accelerator) -> &'static str {
    match accelerator {
        Accelerator::Kvm => "host",
        Accelerator::Tcg => "max",
    }
}

/// What a model means on this accelerator.
fn model_name(model: Option<&str>, accelerator: Accelerator) -> String {
    match model {
        None | Some("" | "host-model" | "host-passthrough") => host_model(accelerator).to_owned(),
        Some(name) => name.to_owned(),
    }
}

/// A feature with its flag. QEMU itself refuses what it cannot give when the guest starts.
fn flag(feature: &CPUFeature) -> (String, bool) {
    let CPUFeature { name, policy } = feature;
    (name.clone(), !matches!(policy, Some(CPUFeaturePolicy::Disable | CPUFeaturePolicy::Forbid)))
}
