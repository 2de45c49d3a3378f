//! What runs first: BIOS, EFI firmware, or a kernel given directly.

use api::domain::DomainSpec;
use api::firmware::{self, BIOS, Bootloader, EFI, KernelBoot};

use crate::guest::{Boot, Firmware, Kernel};
use crate::refusal::Refusals;

const EFI_PATH: &str = "spec.domain.firmware.bootloader.efi";
const KERNEL_PATH: &str = "spec.domain.firmware.kernelBoot";

pub(super) fn boot(refusals: &mut Refusals, domain: &DomainSpec) -> Boot {
    let default = firmware::Firmware::default();
    let firmware::Firmware { acpi, bootloader, kernel_boot, serial: _, uuid: _ } =
        domain.firmware.as_ref().unwrap_or(&default);
    refusals.unsupported("spec.domain.firmware.acpi", acpi.is_some());
    let firmware = bootloader.as_ref().map_or(Firmware::Bios, |bootloader| firmware_of(refusals, bootloader));
    Boot { firmware, kernel: kernel_boot.as_ref().map(|kernel| kernel_of(refusals, kernel)) }
}

fn firmware_of(refusals: &mut Refusals, bootloader: &Bootloader) -> Firmware {
    let Bootloader { bios, efi } = bootloader;
    if let (Some(BIOS { use_serial: _ }), Some(_)) = (bios, efi) {
        refusals.refuse("spec.domain.firmware.bootloader", "bios and efi exclude each other");
    }
    let Some(EFI { persistent, secure_boot }) = efi else { return Firmware::Bios };
    refusals.unsupported("spec.domain.firmware.bootloader.efi.persistent", *persistent == Some(true));
    if *secure_boot != Some(false) {
        let problem = "is not supported yet, and on unless switched off; set it to false";
        refusals.refuse(format!("{EFI_PATH}.secureBoot"), problem);
    }
    Firmware::Efi
}

fn kernel_of(refusals: &mut Refusals, kernel_boot: &KernelBoot) -> Kernel {
    let KernelBoot { container, kernel_args } = kernel_boot;
    let path = format!("{KERNEL_PATH}.container");
    match container {
        None => refusals.refuse(path, "is required: the image that holds the kernel"),
        Some(container) if container.kernel_path.is_none() && container.initrd_path.is_none() => {
            refusals.refuse(path, "needs a kernelPath or an initrdPath");
        }
        Some(container) if container.kernel_path.is_none() && kernel_args.is_some() => {
            refusals.refuse(format!("{KERNEL_PATH}.kernelArgs"), "needs a kernelPath");
        }
        Some(_) => {}
    }
    let arguments = kernel_args.as_deref();
    Kernel { arguments: arguments.and_then(|text| refusals.text("spec.domain.firmware.kernelBoot.kernelArgs", text)) }
}
