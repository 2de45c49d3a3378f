//! Devices other than disks and interfaces, and the order in which the guest tries to boot from them.

use std::collections::BTreeMap;

use api::devices::{Devices, Disk, InputBus, InputType, PanicDeviceModel, WatchdogAction};
use api::domain::IOThreadsPolicy;
use api::networks::Interface;
use api::vmi::VirtualMachineInstanceSpec;
use virt_rules::config::{ClusterConfig, Gate};

use super::word;
use crate::denial::Problems;

const DEVICES: &str = "spec.domain.devices";

pub(super) fn check(spec: &VirtualMachineInstanceSpec, config: &ClusterConfig, problems: &mut Problems) {
    let devices = &spec.domain.devices;
    check_inputs(devices, problems);
    check_models(devices, problems);
    check_passthrough(devices, config, problems);
    check_boot_order(devices, problems);
    check_io_threads(spec, problems);
    if spec.domain.reboot_policy.is_some() && !config.enabled(Gate::RebootPolicy) {
        let gate = Gate::RebootPolicy.name();
        let message = format!("needs the feature gate {gate}; add it to the KubeVirt CR or remove the field");
        problems.invalid("spec.domain.rebootPolicy", message);
    }
}

fn check_inputs(devices: &Devices, problems: &mut Problems) {
    for (index, input) in devices.inputs.iter().flatten().enumerate() {
        let field = format!("{DEVICES}.inputs[{index}]");
        let bus = input.bus.as_ref().map(InputBus::as_str);
        word(bus, InputBus::KNOWN, format!("{field}.bus"), problems);
        if input.type_ != InputType::Tablet {
            problems
                .unsupported(format!("{field}.type"), format!("there is no {:?}; use tablet", input.type_.as_str()));
        }
        if input.name.is_empty() {
            problems.required(format!("{field}.name"), "is empty; give it a name");
        }
    }
}

fn check_models(devices: &Devices, problems: &mut Problems) {
    if let Some(sound) = &devices.sound {
        word(sound.model.as_deref(), &["ich9", "ac97"], format!("{DEVICES}.sound.model"), problems);
        if sound.name.is_empty() {
            problems.required(format!("{DEVICES}.sound.name"), "is empty; give it a name");
        }
    }
    if devices.video.is_some() && devices.autoattach_graphics_device == Some(false) {
        let message =
            format!("there is no graphics device, as {DEVICES}.autoattachGraphicsDevice is false; remove one");
        problems.invalid(format!("{DEVICES}.video"), message);
    }
    for (index, device) in devices.panic_devices.iter().flatten().enumerate() {
        let field = format!("{DEVICES}.panicDevices[{index}].model");
        word(device.model.as_ref().map(PanicDeviceModel::as_str), PanicDeviceModel::KNOWN, field, problems);
    }
    if let Some(watchdog) = &devices.watchdog {
        let i6300esb = watchdog.i6300esb.as_ref().and_then(|device| device.action.as_ref());
        let diag288 = watchdog.diag288.as_ref().and_then(|device| device.action.as_ref());
        for (name, action) in [("i6300esb", i6300esb), ("diag288", diag288)] {
            let field = format!("{DEVICES}.watchdog.{name}.action");
            word(action.map(WatchdogAction::as_str), WatchdogAction::KNOWN, field, problems);
        }
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

fn check_boot_order(devices: &Devices, problems: &mut Problems) {
    let disks = devices.disks.iter().flatten().map(|Disk { boot_order, .. }| boot_order).enumerate();
    let disks = disks.map(|(index, order)| (format!("{DEVICES}.disks[{index}].bootOrder"), order));
    let interfaces = devices.interfaces.iter().flatten().map(|Interface { boot_order, .. }| boot_order).enumerate();
    let interfaces = interfaces.map(|(index, order)| (format!("{DEVICES}.interfaces[{index}].bootOrder"), order));
    let mut seen: BTreeMap<u32, String> = BTreeMap::new();
    for (field, order) in disks.chain(interfaces) {
        let Some(order) = *order else { continue };
        if order == 0 {
            problems.invalid(field, "must be 1 or more");
        } else if let Some(other) = seen.get(&order) {
            problems.duplicate(field, format!("{order} is taken by {other}; use another"));
        } else {
            seen.insert(order, field);
        }
    }
}

fn check_io_threads(spec: &VirtualMachineInstanceSpec, problems: &mut Problems) {
    let Some(policy) = &spec.domain.io_threads_policy else { return };
    word(Some(policy.as_str()), IOThreadsPolicy::KNOWN, "spec.domain.ioThreadsPolicy", problems);
    let threads = spec.domain.io_threads.as_ref().and_then(|threads| threads.supplemental_pool_thread_count);
    if *policy == IOThreadsPolicy::SupplementalPool && threads.unwrap_or_default() == 0 {
        let field = "spec.domain.ioThreads.supplementalPoolThreadCount";
        problems.required(field, "the policy supplementalPool needs it; set it to 1 or more");
    }
}
