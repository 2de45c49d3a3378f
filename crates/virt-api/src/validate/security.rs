//! Encrypted guests.

use api::domain::LaunchSecurity;
use api::vmi::{StartStrategy, VirtualMachineInstanceSpec};

use super::is_on;
use crate::denial::Problems;

const FIELD: &str = "spec.domain.launchSecurity";

pub(super) fn check(spec: &VirtualMachineInstanceSpec, problems: &mut Problems) {
    let Some(security) = &spec.domain.launch_security else { return };
    match spec.architecture.as_deref() {
        // Secure Execution has no settings.
        Some("s390x") => return,
        Some("amd64") => {}
        _ => {
            problems.unsupported(FIELD, "only amd64 and s390x guests can be encrypted; remove it");
            return;
        }
    }
    let LaunchSecurity { sev, snp, tdx } = security;
    let chosen: Vec<&str> = [("sev", sev.is_some()), ("snp", snp.is_some()), ("tdx", tdx.is_some())]
        .into_iter()
        .filter_map(|(name, set)| set.then_some(name))
        .collect();
    let [name] = chosen.as_slice() else {
        problems.invalid(FIELD, "must have exactly one of sev, snp and tdx");
        return;
    };
    let field = format!("{FIELD}.{name}");
    let smm = is_on(spec.domain.features.as_ref().and_then(|features| features.smm.as_ref()));
    if tdx.is_some() && smm {
        problems.invalid(field.clone(), "does not work with spec.domain.features.smm; disable that");
    }
    let firmware = spec.domain.firmware.as_ref();
    match firmware.and_then(|firmware| firmware.bootloader.as_ref()?.efi.as_ref()) {
        None => problems.invalid(field.clone(), "needs UEFI; set spec.domain.firmware.bootloader.efi"),
        Some(efi) => {
            if tdx.is_none() && efi.secure_boot != Some(false) {
                let message =
                    "does not work with secure boot; set spec.domain.firmware.bootloader.efi.secureBoot to false";
                problems.invalid(field.clone(), message);
            }
        }
    }
    let attested = sev.as_ref().is_some_and(|sev| sev.attestation.is_some());
    if attested && spec.start_strategy != Some(StartStrategy::Paused) {
        problems.invalid(format!("{field}.attestation"), "needs spec.startStrategy Paused");
    }
    for (index, interface) in spec.domain.devices.interfaces.iter().flatten().enumerate() {
        if interface.boot_order.is_some() {
            let field = format!("spec.domain.devices.interfaces[{index}].bootOrder");
            problems.invalid(field, "an encrypted guest cannot boot from the network; remove it");
        }
    }
}
