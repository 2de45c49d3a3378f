//! The board, and what it does about reboots.

use api::domain::{DomainSpec, RebootPolicy};

use crate::guest::Board;
use crate::refusal::Refusals;

/// The board of an instance that names none.
pub(crate) const DEFAULT_BOARD: &str = "q35";
const TYPE: &str = "spec.domain.machine.type";

pub(super) fn board(refusals: &mut Refusals, domain: &DomainSpec) -> Board {
    let name = domain.machine.as_ref().and_then(|machine| machine.type_.as_deref()).unwrap_or(DEFAULT_BOARD);
    let is_known =
        matches!(name, "q35" | "pc") || ["pc-q35-", "pc-i440fx-"].iter().any(|family| name.starts_with(family));
    if !is_known {
        refusals.refuse(TYPE, format!("{name:?} is not supported; use q35 or pc, or a version of them"));
    }
    let type_ = refusals.text(TYPE, name).unwrap_or_default();
    let hpet = domain.clock.as_ref().and_then(|clock| clock.timer.as_ref()).and_then(|timer| timer.hpet.as_ref());
    let bootloader = domain.firmware.as_ref().and_then(|firmware| firmware.bootloader.as_ref());
    let bios = bootloader.and_then(|bootloader| bootloader.bios.as_ref());
    let acpi = domain.features.as_ref().and_then(|features| features.acpi.as_ref());
    Board {
        type_,
        hpet: hpet.is_none_or(|hpet| hpet.present != Some(false)),
        acpi: acpi.is_none_or(|acpi| acpi.enabled != Some(false)),
        graphics: bios.is_none_or(|bios| bios.use_serial != Some(true)),
        ends_on_reboot: match domain.reboot_policy {
            None | Some(RebootPolicy::Reboot) => false,
            Some(RebootPolicy::Terminate) => true,
        },
    }
}
