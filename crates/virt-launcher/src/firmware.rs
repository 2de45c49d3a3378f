//! EFI firmware: where distributions keep it, and variables of the guest's own.

use std::path::{Path, PathBuf};

use api::vmi::VirtualMachineInstance;
use hypervisor::wiring::Efi;

/// Where distributions keep EFI firmware.
const FIRMWARE_FOLDERS: &[&str] =
    &["/usr/share/OVMF", "/usr/share/edk2/ovmf", "/usr/share/edk2/x64", "/usr/share/qemu", "/usr/share/edk2-ovmf/x64"];
/// EFI firmware and the template of its variables, by the names distributions give them.
const FIRMWARE: &[(&str, &str)] = &[
    ("OVMF_CODE_4M.fd", "OVMF_VARS_4M.fd"),
    ("OVMF_CODE.fd", "OVMF_VARS.fd"),
    ("OVMF_CODE.4m.fd", "OVMF_VARS.4m.fd"),
    ("ovmf-x86_64-code.bin", "ovmf-x86_64-vars.bin"),
];

/// The firmware's variables could not be copied.
#[derive(Debug, thiserror::Error)]
#[error("copy {}", template.display())]
pub struct FirmwareError {
    template: PathBuf,
    source: std::io::Error,
}

/// The firmware of this machine, with variables of the guest's own. None is found out later, by the field that asks.
pub(crate) fn efi(
    vmi: &VirtualMachineInstance,
    folder: &Path,
    firmware: Option<&Path>,
) -> Result<Option<Efi>, FirmwareError> {
    let bootloader = vmi.spec.domain.firmware.as_ref().and_then(|firmware| firmware.bootloader.as_ref());
    if bootloader.is_none_or(|bootloader| bootloader.efi.is_none()) {
        return Ok(None);
    }
    let usual = || FIRMWARE_FOLDERS.iter().map(Path::new).collect();
    let folders: Vec<&Path> = firmware.map_or_else(usual, |folder| vec![folder]);
    let candidates =
        folders.iter().flat_map(|from| FIRMWARE.iter().map(|(code, vars)| (from.join(code), from.join(vars))));
    let Some((code, template)) = candidates.into_iter().find(|(code, _)| code.exists()) else { return Ok(None) };
    let variables = folder.join("efi-variables.fd");
    std::fs::copy(&template, &variables).map_err(|source| FirmwareError { template, source })?;
    Ok(Some(Efi { code, variables }))
}
