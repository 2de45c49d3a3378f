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
    let uuid = firmware.uuid.as_deref().unwrap_or_default();
    if !uuid.is_empty() && !is_uuid(uuid) {
        let message = format!("{uuid:?} is no UUID; use one such as 5d307ca9-b3ef-428c-8861-06e72d69f223, or none");
        problems.invalid(format!("{FIRMWARE}.uuid"), message);
    }
    if firmware.serial.as_deref().is_some_and(|serial| serial.chars().count() > 256) {
        problems.invalid(format!("{FIRMWARE}.serial"), "has more than 256 characters; shorten it");
    }
}

fn check_bootloader(spec: &VirtualMachineInstanceSpec, firmware: &Firmware, problems: &mut Problems) {
    let Some(bootloader) = &firmware.bootloader else { return };
    let field = format!("{FIRMWARE}.bootloader");
    if bootloader.bios.is_some() && bootloader.efi.is_some() {
        problems.invalid(field.clone(), "bios and efi exclude each other; remove one");
    }
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
        if kernel.kernel_args.as_deref().is_some_and(|arguments| !arguments.is_empty()) {
            problems.invalid(format!("{field}.kernelArgs"), "there is no kernel to give them to; set container");
        }
        return;
    };
    let field = format!("{field}.container");
    if container.image.is_empty() {
        problems.required(format!("{field}.image"), "is empty; name the image that holds the kernel");
    }
    let paths = [("kernelPath", &container.kernel_path), ("initrdPath", &container.initrd_path)];
    let set = paths.map(|(name, path)| (name, path.as_deref().unwrap_or_default()));
    if set.iter().all(|(_, path)| path.is_empty()) {
        problems.required(field.clone(), "says nothing to boot; set kernelPath or initrdPath");
    }
    for (name, path) in set.into_iter().filter(|(_, path)| !path.is_empty()) {
        check_path(path, &format!("{field}.{name}"), problems);
    }
}

fn check_acpi(spec: &VirtualMachineInstanceSpec, acpi: &ACPI, problems: &mut Problems) {
    let field = format!("{FIRMWARE}.acpi");
    let tables = [("slicNameRef", &acpi.slic_name_ref), ("msdmNameRef", &acpi.msdm_name_ref)];
    let tables = tables.map(|(name, table)| (name, table.as_deref().unwrap_or_default()));
    if tables.iter().all(|(_, table)| table.is_empty()) {
        problems.invalid(field.clone(), "names no table; set slicNameRef or msdmNameRef, or remove it");
    }
    for (name, table) in tables.into_iter().filter(|(_, table)| !table.is_empty()) {
        let field = format!("{field}.{name}");
        match spec.volumes.iter().flatten().find(|volume| volume.name == table) {
            Some(volume) if volume.secret.is_some() => {}
            Some(_) => problems.invalid(field, format!("the volume {table:?} is no secret; make it one")),
            None => problems.not_found(field, format!("there is no volume {table:?}; add it to spec.volumes")),
        }
    }
}

/// A file in an image: from the root, and no way out of it.
pub(super) fn check_path(path: &str, field: &str, problems: &mut Problems) {
    let named = path.strip_prefix('/').unwrap_or_default().trim_end_matches('/');
    if named.is_empty() || named.split('/').any(|part| matches!(part, "" | "." | "..")) {
        problems.invalid(field, format!("{path:?} is no absolute path to a file without . or ..; write it so"));
    }
}

fn is_uuid(text: &str) -> bool {
    let lengths = [8, 4, 4, 4, 12];
    let parts: Vec<&str> = text.split('-').collect();
    let hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    parts.len() == lengths.len() && parts.iter().zip(lengths).all(|(part, length)| part.len() == length && hex(part))
}
