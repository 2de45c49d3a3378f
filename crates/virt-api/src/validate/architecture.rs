//! What each CPU architecture has and has not.

use api::devices::{Devices, Disk, DiskBus};
use api::vmi::VirtualMachineInstanceSpec;
use virt_rules::config::ClusterConfig;

use crate::denial::Problems;

const DEVICES: &str = "spec.domain.devices";

pub(super) fn check(spec: &VirtualMachineInstanceSpec, config: &ClusterConfig, problems: &mut Problems) {
    let architecture = spec.architecture.as_deref().unwrap_or_default();
    let devices = &spec.domain.devices;
    match architecture {
        "amd64" => check_amd64(devices, problems),
        "arm64" => check_arm64(spec, problems),
        "s390x" => check_s390x(devices, problems),
        other => {
            let message = format!("{other:?} is unknown; use one of amd64, arm64, s390x");
            problems.unsupported("spec.architecture", message);
            return;
        }
    }
    check_machine(spec, config, problems);
}

fn check_machine(spec: &VirtualMachineInstanceSpec, config: &ClusterConfig, problems: &mut Problems) {
    let machine = spec.domain.machine.as_ref().and_then(|machine| machine.type_.as_deref());
    let Some(machine) = machine.filter(|machine| !machine.is_empty()) else { return };
    let allowed = config.architecture(spec.architecture.as_deref()).emulated_machines;
    if !allowed.iter().any(|pattern| fits(pattern, machine)) {
        let message = format!("{machine:?} is not allowed here; use one of {}", allowed.join(", "));
        problems.unsupported("spec.domain.machine.type", message);
    }
}

/// Whether a text fits a pattern in which `*` stands for anything.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((head, mut pattern)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut rest) = text.strip_prefix(head) else { return false };
    while let Some((part, later)) = pattern.split_once('*') {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        pattern = later;
    }
    rest.ends_with(pattern)
}

fn check_amd64(devices: &Devices, problems: &mut Problems) {
    check_video(devices, &["vga", "cirrus", "virtio", "ramfb", "bochs"], "amd64", problems);
    if devices.watchdog.as_ref().is_some_and(|watchdog| watchdog.i6300esb.is_none() || watchdog.diag288.is_some()) {
        problems.unsupported(format!("{DEVICES}.watchdog"), "amd64 only has i6300esb; use that");
    }
}

fn check_s390x(devices: &Devices, problems: &mut Problems) {
    check_video(devices, &["virtio"], "s390x", problems);
    if devices.watchdog.as_ref().is_some_and(|watchdog| watchdog.diag288.is_none() || watchdog.i6300esb.is_some()) {
        problems.unsupported(format!("{DEVICES}.watchdog"), "s390x only has diag288; use that");
    }
    if devices.panic_devices.as_ref().is_some_and(|devices| !devices.is_empty()) {
        problems.unsupported(format!("{DEVICES}.panicDevices"), "s390x has its own watchdog; remove it");
    }
}

fn check_arm64(spec: &VirtualMachineInstanceSpec, problems: &mut Problems) {
    let devices = &spec.domain.devices;
    check_video(devices, &["virtio", "ramfb"], "arm64", problems);
    for (name, set) in [("watchdog", devices.watchdog.is_some()), ("sound", devices.sound.is_some())] {
        if set {
            problems.unsupported(format!("{DEVICES}.{name}"), "arm64 has no watchdog; remove it");
        }
    }
    let bootloader = spec.domain.firmware.as_ref().and_then(|firmware| firmware.bootloader.as_ref());
    if bootloader.is_some_and(|bootloader| bootloader.bios.is_some()) {
        problems.unsupported("spec.domain.firmware.bootloader.bios", "arm64 has no BIOS; use efi");
    }
    let cpu = spec.domain.cpu.as_ref();
    let model = cpu.and_then(|cpu| cpu.model.as_deref()).unwrap_or_default();
    if !matches!(model, "" | "host-passthrough") {
        problems.unsupported("spec.domain.cpu.model", "arm64 guests only support host-passthrough; use that");
    }
    if cpu.and_then(|cpu| cpu.threads).is_some_and(|threads| threads > 1) {
        problems.invalid("spec.domain.cpu.threads", "arm64 has one thread per core; use 1, and more cores instead");
    }
    for (index, disk) in devices.disks.iter().flatten().enumerate() {
        let Some((target, bus)) = bus(disk) else { continue };
        if !matches!(bus, DiskBus::Virtio | DiskBus::Scsi) {
            let field = format!("{DEVICES}.disks[{index}].{target}.bus");
            problems.unsupported(field, "arm64 does not have this bus; use virtio or scsi");
        }
    }
}

fn check_video(devices: &Devices, known: &[&str], architecture: &str, problems: &mut Problems) {
    let model = devices.video.as_ref().and_then(|video| video.type_.as_deref()).unwrap_or_default();
    if !model.is_empty() && !known.contains(&model) {
        let message = format!("{architecture} has no {model:?}; use one of {}", known.join(", "));
        problems.unsupported(format!("{DEVICES}.video.type"), message);
    }
}

/// The bus of a disk and the field it stands in.
pub(super) fn bus(disk: &Disk) -> Option<(&'static str, &DiskBus)> {
    let bus = disk.disk.as_ref().and_then(|target| target.bus.as_ref()).map(|bus| ("disk", bus));
    let bus = bus.or_else(|| disk.cdrom.as_ref().and_then(|target| target.bus.as_ref()).map(|bus| ("cdrom", bus)));
    bus.or_else(|| disk.lun.as_ref().and_then(|target| target.bus.as_ref()).map(|bus| ("lun", bus)))
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text) in
            [("q35*", "q35"), ("pc-q35*", "pc-q35-9.0"), ("*", ""), ("a*b*c", "a-b-b-c"), ("virt", "virt")]
        {
            assert!(fits(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("q35*", "pc"), ("virt", "virt-1"), ("a*b*c", "a-c"), ("a*b", "ab-")] {
            assert!(!fits(pattern, text), "{pattern} {text}");
        }
    }
}
