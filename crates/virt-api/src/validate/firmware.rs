//! Firmware: one bootloader, a kernel that exists, ACPI tables from secrets.

use api::firmware::{ACPI, Firmware, KernelBoot};
use api::vmi::VirtualMachineInstanceSpec;

use super::is_on;
use crate::denial::Problems;

const FIRMWARE: &str = "spec.domain.firmware";

pub(super) fn check(spec: &VirtualMachineInstanceSpec, problems: &mut Problems) {
    let Some(firmware) = &spec.domain.firmware else { return };
    check_bootloader(spec, firmware, problems);
    if let Some(kernel) = &firmware.kernel_boot {
        check_kernel(kernel, problems);
    }
    if let Some(acpi) = &firmware.acpi {
        check_acpi(spec, acpi, problems);
    }
    if firmware.serial.as_deref().is_some_and(|serial| serial.chars().count() > 256) {
        problems.invalid(format!("{FIRMWARE}.serial"), "has more than 256 characters; shorten it");
    }
}

fn check_bootloader(spec: &VirtualMachineInstanceSpec, firmware: &Firmware, problems: &mut Problems) {
    let Some(bootloader) = &firmware.bootloader else { return };
    let field = format!("{FIRMWARE}.bootloader");
    let secure = bootloader.efi.as_ref().is_some_and(|efi| efi.secure_boot != Some(false));
    let smm = is_on(spec.domain.features.as_ref().and_then(|features| features.smm.as_ref()));
    // TDX measures its firmware itself and takes no SMM.
    let tdx = spec.domain.launch_security.as_ref().is_some_and(|security| security.tdx.is_some());
    if secure && !smm && !tdx {
        let message = "secure boot needs system management mode; set spec.domain.features.smm to {} or this to false";
        problems.invalid(format!("{field}.efi.secureBoot"), message);
    }
}

fn check_kernel(kernel: &KernelBoot, problems: &mut Problems) {
    let field = format!("{FIRMWARE}.kernelBoot");
    let Some(container) = &kernel.container else {
        return;
    };
    let field = format!("{field}.container");
    if container.image.is_empty() {
        problems.required(format!("{field}.image"), "is empty; name the image that contains the kernel");
    }
    let paths = [("kernelPath", &container.kernel_path), ("initrdPath", &container.initrd_path)];
    let set = paths.map(|(name, path)| (name, path.as_deref().unwrap_or_default()));
    for (name, path) in set.into_iter().filter(|(_, path)| !path.is_empty()) {
        check_path(path, &format!("{field}.{name}"), problems);
    }
}

fn check_acpi(spec: &VirtualMachineInstanceSpec, acpi: &ACPI, problems: &mut Problems) {
    let field = format!("{FIRMWARE}.acpi");
    let tables = [("slicNameRef", &acpi.slic_name_ref), ("msdmNameRef", &acpi.msdm_name_ref)];
    let tables = tables.map(|(name, table)| (name, table.as_deref().unwrap_or_default()));
    if tables.iter().all(|(_, table)| table.is_empty()) {
        problems.invalid(field.clone(), "is empty; set slicNameRef or msdmNameRef, or remove it");
    }
    for (name, table) in tables.into_iter().filter(|(_, table)| !table.is_empty()) {
        let field = format!("{field}.{name}");
        match spec.volumes.iter().flatten().find(|volume| volume.name == table) {
            Some(volume) if volume.secret.is_some() => {}
            Some(_) => problems.invalid(field, format!("volume {table:?} must be a secret")),
            None => problems.not_found(field, format!("volume {table:?} does not exist; add it to spec.volumes")),
        }
    }
}

/// A file in an image: from the root, and no way out of it.
pub(super) fn check_path(path: &str, field: &str, problems: &mut Problems) {
    let named = path.strip_prefix('/').unwrap_or_default().trim_end_matches('/');
    if named.is_empty() || named.split('/').any(|part| matches!(part, "" | "." | "..")) {
        problems.invalid(field, format!("{path:?} must be an absolute path without \".\" or \"..\" segments"));
    }
}
