//! EFI firmware: where distributions keep it, and variables of the guest's own.

use std::path::{Path, PathBuf};

use api::vmi::VirtualMachineInstance;
use hypervisor::guest::Flash;
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

/// The guest's firmware is not there.
#[derive(Debug, thiserror::Error)]
pub enum FirmwareError {
    /// The variables could not be copied.
    #[error("copy {}", template.display())]
    Copy { template: PathBuf, source: std::io::Error },
    /// Where the guest comes from, its firmware has another size.
    #[error("no EFI firmware of {} and {} bytes is on this node; install the package that the guest's node has", .0.code, .0.variables)]
    Size(Flash),
}

/// The firmware of this machine, with variables of the guest's own; of this size, if the guest has seen one. None is found out later, by
/// the field that asks.
pub(crate) fn efi(
    vmi: &VirtualMachineInstance,
    folder: &Path,
    firmware: Option<&Path>,
    flash: Option<Flash>,
) -> Result<Option<(Efi, Flash)>, FirmwareError> {
    let bootloader = vmi.spec.domain.firmware.as_ref().and_then(|firmware| firmware.bootloader.as_ref());
    if bootloader.is_none_or(|bootloader| bootloader.efi.is_none()) {
        return Ok(None);
    }
    let usual = || FIRMWARE_FOLDERS.iter().map(Path::new).collect();
    let folders: Vec<&Path> = firmware.map_or_else(usual, |folder| vec![folder]);
    let candidates =
        folders.iter().flat_map(|from| FIRMWARE.iter().map(|(code, vars)| (from.join(code), from.join(vars))));
    let size = |file: &Path| std::fs::metadata(file).map(|metadata| metadata.len()).unwrap_or_default();
    let found = candidates.filter(|(code, _)| code.exists()).map(|(code, template)| {
        let found = Flash { code: size(&code), variables: size(&template) };
        (code, template, found)
    });
    let Some((code, template, found)) = found.into_iter().find(|(.., found)| flash.is_none_or(|flash| flash == *found))
    else {
        return flash.map_or(Ok(None), |flash| Err(FirmwareError::Size(flash)));
    };
    let variables = folder.join("efi-variables.fd");
    std::fs::copy(&template, &variables).map_err(|source| FirmwareError::Copy { template, source })?;
    Ok(Some((Efi { code, variables }, found)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_guest_that_moves_finds_the_flash_that_it_has_seen_or_none() {
        let (node, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (name, size) in [("CODE_4M", 40), ("VARS_4M", 4), ("CODE", 20), ("VARS", 2)] {
            std::fs::write(node.path().join(format!("OVMF_{name}.fd")), vec![0; size]).unwrap();
        }
        let vmi = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": { "name": "a" },
            "spec": { "domain": { "devices": {}, "firmware": { "bootloader": { "efi": { "secureBoot": false } } } } },
        });
        let vmi = api::decode::object::<VirtualMachineInstance>(vmi).unwrap().object;
        let found = |flash: Option<Flash>| efi(&vmi, own.path(), Some(node.path()), flash);
        let (small, large) = (Flash { code: 20, variables: 2 }, Flash { code: 40, variables: 4 });
        assert_eq!(found(None).unwrap().unwrap().1, large);
        for flash in [small, large] {
            let (efi, of) = found(Some(flash)).unwrap().unwrap();
            assert_eq!((of, std::fs::metadata(efi.variables).unwrap().len()), (flash, flash.variables));
        }
        let other = found(Some(Flash { code: 40, variables: 2 }));
        assert!(matches!(other, Err(FirmwareError::Size(_))), "{other:?}");
    }
}
