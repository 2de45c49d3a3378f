//! What runs first: BIOS, EFI firmware, or a kernel given directly.

use api::domain::DomainSpec;
use api::firmware::{self, BIOS, Bootloader, EFI, KernelBoot};

use super::Before;
use crate::guest::{Boot, Firmware, Kernel};
use crate::refusal::Refusals;

pub(super) fn boot(refusals: &mut Refusals, domain: &DomainSpec, before: Before<'_>) -> Boot {
    let default = firmware::Firmware::default();
    let firmware::Firmware { acpi: _, bootloader, kernel_boot, serial: _, uuid: _ } =
        domain.firmware.as_ref().unwrap_or(&default);
    let firmware = match bootloader {
        None | Some(Bootloader { bios: _, efi: None }) => Firmware::Bios,
        Some(Bootloader {
            bios: None | Some(BIOS { use_serial: _ }),
            efi: Some(EFI { persistent: _, secure_boot: _ }),
        }) => Firmware::Efi,
    };
    let kernel = kernel_boot.as_ref().map(|kernel| kernel_of(refusals, kernel));
    // The next start takes the firmware of its node.
    let flash = match before {
        Before::Running(guest) if guest.boot.firmware == firmware => guest.boot.flash,
        Before::Running(_) | Before::Stopped(_) | Before::Nothing => None,
    };
    Boot { firmware, kernel, flash }
}

fn kernel_of(refusals: &mut Refusals, kernel_boot: &KernelBoot) -> Kernel {
    let KernelBoot { container: _, kernel_args } = kernel_boot;
    let arguments = kernel_args.as_deref().filter(|arguments| !arguments.is_empty());
    Kernel { arguments: arguments.and_then(|text| refusals.text("spec.domain.firmware.kernelBoot.kernelArgs", text)) }
}
