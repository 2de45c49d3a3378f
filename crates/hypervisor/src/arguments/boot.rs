//! What runs first: BIOS, EFI firmware, or a kernel given directly.

use api::domain::DomainSpec;
use api::firmware::{BIOS, Bootloader, EFI, Firmware, KernelBoot};
use serde_json::json;

use super::line::Line;
use crate::resources::{Efi, Kernel, Resources};

const EFI_PATH: &str = "spec.domain.firmware.bootloader.efi";
const KERNEL_PATH: &str = "spec.domain.firmware.kernelBoot";

pub(super) fn add(line: &mut Line, domain: &DomainSpec, resources: &Resources) {
    let default = Firmware::default();
    let Firmware { acpi, bootloader, kernel_boot, serial: _, uuid: _ } = domain.firmware.as_ref().unwrap_or(&default);
    line.unsupported("spec.domain.firmware.acpi", acpi.is_some());
    if let Some(bootloader) = bootloader {
        add_bootloader(line, bootloader, resources.efi.as_ref());
    }
    if let Some(kernel_boot) = kernel_boot {
        add_kernel(line, kernel_boot, resources.kernel.as_ref());
    }
    // Only what has a boot order is tried, and nothing else is searched.
    line.option("-boot", "strict=on");
}

fn add_bootloader(line: &mut Line, bootloader: &Bootloader, files: Option<&Efi>) {
    let Bootloader { bios, efi } = bootloader;
    if let (Some(BIOS { use_serial: _ }), Some(_)) = (bios, efi) {
        line.refuse("spec.domain.firmware.bootloader", "bios and efi exclude each other");
        return;
    }
    let Some(EFI { persistent, secure_boot }) = efi else { return };
    line.unsupported("spec.domain.firmware.bootloader.efi.persistent", *persistent == Some(true));
    if *secure_boot != Some(false) {
        line.refuse(
            format!("{EFI_PATH}.secureBoot"),
            "is not supported yet, and on unless switched off; set it to false",
        );
    }
    let Some(Efi { code, variables }) = files else {
        line.refuse(EFI_PATH, "there is no EFI firmware on this machine; install the package ovmf");
        return;
    };
    for (node, path, read_only) in [("efi-code", code, true), ("efi-variables", variables, false)] {
        let Some(path) = line.path(EFI_PATH, path) else { continue };
        let file = json!({ "driver": "file", "filename": path });
        line.json("-blockdev", &json!({ "node-name": node, "driver": "raw", "read-only": read_only, "file": file }));
    }
}

fn add_kernel(line: &mut Line, kernel_boot: &KernelBoot, files: Option<&Kernel>) {
    let KernelBoot { container, kernel_args } = kernel_boot;
    let Some(container) = container else {
        line.refuse(format!("{KERNEL_PATH}.container"), "is required: the image that holds the kernel");
        return;
    };
    if container.kernel_path.is_none() && container.initrd_path.is_none() {
        line.refuse(format!("{KERNEL_PATH}.container"), "needs a kernelPath or an initrdPath");
    }
    let Some(Kernel { kernel, initrd }) = files else {
        line.refuse(format!("{KERNEL_PATH}.container"), "its files are not here");
        return;
    };
    for (option, path) in [("-kernel", kernel), ("-initrd", initrd)] {
        if let Some(path) = path.as_deref().and_then(|path| line.path(KERNEL_PATH, path)) {
            line.option(option, path);
        }
    }
    if let Some(arguments) = kernel_args {
        if kernel.is_none() {
            line.refuse(format!("{KERNEL_PATH}.kernelArgs"), "needs a kernel to be given to");
        } else if let Some(arguments) = line.text("spec.domain.firmware.kernelBoot.kernelArgs", arguments) {
            line.option("-append", arguments);
        }
    }
}
