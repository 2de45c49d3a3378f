//! What runs first: BIOS, EFI firmware, or a kernel that is given directly.

use api::firmware::{BIOS, Bootloader, EFI, Firmware, KernelBoot, KernelBootContainer};
use api::volumes::PullPolicy;

use super::sheet::Sheet;

pub(super) fn place(sheet: &mut Sheet<'_>, firmware: &Firmware) {
    let Firmware { acpi, bootloader: bootloader_of_it, kernel_boot, serial, uuid } = firmware;
    sheet.unsupported("acpi", "remove it; guests only have the tables of their board", acpi.is_some());
    sheet.part("bootloader", bootloader_of_it.as_ref(), bootloader);
    sheet.part("kernelBoot", kernel_boot.as_ref(), kernel);
    sheet.text("serial", serial.as_deref());
    let wrong = uuid.as_deref().filter(|uuid| !uuid.is_empty() && !is_uuid(uuid));
    let example = "5d307ca9-b3ef-428c-8861-06e72d69f223";
    let problem = wrong.map(|uuid| format!("{uuid:?} is not a valid UUID; use one such as {example}, or none"));
    sheet.within("uuid", "a UUID", problem);
}

fn bootloader(sheet: &mut Sheet<'_>, bootloader: &Bootloader) {
    let Bootloader { bios, efi: efi_of_it } = bootloader;
    sheet.part("bios", bios.as_ref(), |sheet, BIOS { use_serial }| sheet.works("useSerial", use_serial));
    sheet.part("efi", efi_of_it.as_ref(), efi);
    if bios.is_some() && efi_of_it.is_some() {
        sheet.refuse("", "bios and efi are mutually exclusive; remove one");
    }
}

fn efi(sheet: &mut Sheet<'_>, efi: &EFI) {
    let EFI { persistent, secure_boot } = efi;
    let lost = "remove it; firmware variables are not kept between runs";
    sheet.unsupported("persistent", lost, *persistent == Some(true));
    sheet.unsupported("secureBoot", "set it to false; it is on by default", *secure_boot != Some(false));
}

fn kernel(sheet: &mut Sheet<'_>, kernel_boot: &KernelBoot) {
    let KernelBoot { container: container_of_it, kernel_args } = kernel_boot;
    sheet.part("container", container_of_it.as_ref(), container);
    sheet.text("kernelArgs", kernel_args.as_deref());
    let is_set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    let has_kernel = container_of_it.as_ref().is_some_and(|container| is_set(&container.kernel_path));
    let has_initrd = container_of_it.as_ref().is_some_and(|container| is_set(&container.initrd_path));
    match container_of_it {
        None => sheet.refuse("container", "is required; name the image that contains the kernel"),
        Some(_) if !has_kernel && !has_initrd => {
            sheet.refuse("container", "has nothing to boot; set kernelPath or initrdPath");
        }
        Some(_) => {}
    }
    if is_set(kernel_args) && !has_kernel {
        sheet.refuse("kernelArgs", "kernel arguments need a kernel; set container.kernelPath");
    }
}

fn container(sheet: &mut Sheet<'_>, container: &KernelBootContainer) {
    let KernelBootContainer { image, image_pull_policy, image_pull_secret, initrd_path, kernel_path } = container;
    sheet.works("image", image);
    sheet.words("imagePullPolicy", image_pull_policy.as_ref().map(PullPolicy::as_str), PullPolicy::KNOWN);
    sheet.works("imagePullSecret", image_pull_secret);
    sheet.works("initrdPath", initrd_path);
    sheet.works("kernelPath", kernel_path);
}

/// Whether this is a UUID, in five groups of hexadecimal digits.
#[must_use]
pub fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && groups.concat().chars().all(|digit| digit.is_ascii_hexdigit())
}
