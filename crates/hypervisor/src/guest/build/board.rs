//! The board, and what it does about reboots.

use api::domain::{DomainSpec, RebootPolicy};

use crate::guest::{Board, Guest};
use crate::refusal::Refusals;

/// The board of an instance that names none.
pub(crate) const DEFAULT_BOARD: &str = "q35";
const TYPE: &str = "spec.domain.machine.type";
/// What stands for the newest board of a family, and what names of the family begin with.
const FAMILIES: [(&str, &str); 2] = [("q35", "pc-q35-"), ("pc", "pc-i440fx-")];

/// The board that is asked for. A name without a version means the one that the guest had before: the newest one of the QEMU that runs
/// it next may be another.
pub(super) fn board(refusals: &mut Refusals, domain: &DomainSpec, before: Option<&Guest>) -> Board {
    let name = domain.machine.as_ref().and_then(|machine| machine.type_.as_deref());
    let name = name.filter(|name| !name.is_empty()).unwrap_or(DEFAULT_BOARD);
    let known = before.map(|guest| guest.board.type_.as_str()).filter(|known| is_version_of(known, name));
    let type_ = refusals.text(TYPE, known.unwrap_or(name)).unwrap_or_default();
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

/// Whether a board is a version of the one that an alias stands for.
fn is_version_of(board: &str, alias: &str) -> bool {
    FAMILIES.iter().any(|(name, family)| alias == *name && board.starts_with(family))
}
