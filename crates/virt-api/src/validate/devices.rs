//! Devices other than disks and interfaces.

use api::devices::Devices;
use api::domain::IOThreadsPolicy;
use api::vmi::VirtualMachineInstanceSpec;
use virt_rules::config::ClusterConfig;

use super::word;
use crate::denial::Problems;

const DEVICES: &str = "spec.domain.devices";

pub(super) fn check(spec: &VirtualMachineInstanceSpec, config: &ClusterConfig, problems: &mut Problems) {
    let devices = &spec.domain.devices;
    check_names(devices, problems);
    check_passthrough(devices, config, problems);
    check_io_threads(spec, problems);
}

fn check_names(devices: &Devices, problems: &mut Problems) {
    let inputs = devices.inputs.iter().flatten().enumerate();
    for (index, _) in inputs.filter(|(_, input)| input.name.is_empty()) {
        problems.required(format!("{DEVICES}.inputs[{index}].name"), "is empty; give it a name");
    }
}

fn check_passthrough(devices: &Devices, config: &ClusterConfig, problems: &mut Problems) {
    let framebuffers = devices.gpus.iter().flatten().filter(|gpu| {
        let display = gpu.virtual_gpu_options.as_ref().and_then(|options| options.display.as_ref());
        display.is_some_and(|display| {
            let buffer = display.ram_fb.as_ref().is_none_or(|buffer| buffer.enabled != Some(false));
            display.enabled != Some(false) && buffer
        })
    });
    if framebuffers.count() > 1 {
        problems
            .invalid(format!("{DEVICES}.gpus"), "only one vGPU can be the boot display; disable ramFB of the others");
    }
    let gpus = devices.gpus.iter().flatten().map(|gpu| (&gpu.name, &gpu.device_name, &gpu.claim_name));
    let others = devices.host_devices.iter().flatten();
    let others = others.map(|device| (&device.name, &device.device_name, &device.claim_name));
    let gpus = gpus.enumerate().map(|(index, gpu)| (format!("{DEVICES}.gpus[{index}]"), gpu));
    let others = others.enumerate().map(|(index, device)| (format!("{DEVICES}.hostDevices[{index}]"), device));
    for (field, (name, resource, claim)) in gpus.chain(others) {
        if name.is_empty() {
            problems.required(format!("{field}.name"), "is empty; give it a name");
        }
        match resource.as_deref().filter(|resource| !resource.is_empty()) {
            Some(resource) if !config.permits_host_device(resource) => {
                let message = format!(
                    "{resource:?} is not permitted; add it to spec.configuration.permittedHostDevices of the KubeVirt CR"
                );
                problems.invalid(format!("{field}.deviceName"), message);
            }
            Some(_) => {}
            None if claim.is_none() => problems.required(format!("{field}.deviceName"), "name the device's resource"),
            None => {}
        }
    }
}

fn check_io_threads(spec: &VirtualMachineInstanceSpec, problems: &mut Problems) {
    let Some(policy) = &spec.domain.io_threads_policy else { return };
    word(Some(policy.as_str()), IOThreadsPolicy::KNOWN, "spec.domain.ioThreadsPolicy", problems);
    let threads = spec.domain.io_threads.as_ref().and_then(|threads| threads.supplemental_pool_thread_count);
    if *policy == IOThreadsPolicy::SupplementalPool && threads.unwrap_or_default() == 0 {
        let field = "spec.domain.ioThreads.supplementalPoolThreadCount";
        problems.required(field, "is required for the policy supplementalPool; set it to 1 or more");
    }
}
