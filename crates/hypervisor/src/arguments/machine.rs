//! The board, and what it does about reboots.

use api::domain::{DomainSpec, RebootPolicy};

use super::line::Line;
use crate::accelerator::Accelerator;
use crate::keyval::Keyval;
use crate::resources::Resources;

/// The machine of an instance that names none.
pub(crate) const DEFAULT_MACHINE: &str = "q35";
const TYPE: &str = "spec.domain.machine.type";
/// Enough for a Linux guest's working set of translated code; QEMU's own choice is up to a gigabyte per guest.
const TRANSLATION_CACHE_MIB: u32 = 64;

pub(super) fn add(line: &mut Line, domain: &DomainSpec, resources: &Resources) {
    let name = domain.machine.as_ref().and_then(|machine| machine.type_.as_deref()).unwrap_or(DEFAULT_MACHINE);
    let family = ["q35", "pc-q35-", "pc", "pc-i440fx-"];
    let known = family.iter().any(|known| if known.ends_with('-') { name.starts_with(known) } else { name == *known });
    let Some(name) = line.text(TYPE, name) else { return };
    if !known {
        line.refuse(TYPE, format!("{name:?} is not supported; use q35 or pc, or a version of them"));
        return;
    }
    let hpet = domain.clock.as_ref().and_then(|clock| clock.timer.as_ref()).and_then(|timer| timer.hpet.as_ref());
    let serial_bios = domain
        .firmware
        .as_ref()
        .and_then(|firmware| firmware.bootloader.as_ref())
        .and_then(|bootloader| bootloader.bios.as_ref())
        .is_some_and(|bios| bios.use_serial == Some(true));
    let acpi = domain.features.as_ref().and_then(|features| features.acpi.as_ref());
    let mut machine = Keyval::of(name).set("usb", "off").set("vmport", "off").set("dump-guest-core", "off");
    if hpet.is_some_and(|hpet| hpet.present == Some(false)) {
        machine = machine.set("hpet", "off");
    }
    if acpi.is_some_and(|acpi| acpi.enabled == Some(false)) {
        machine = machine.set("acpi", "off");
    }
    if serial_bios {
        machine = machine.set("graphics", "off");
    }
    if resources.efi.is_some() {
        machine = machine.set("pflash0", "efi-code").set("pflash1", "efi-variables");
    }
    line.keyval("-machine", machine);
    match resources.accelerator {
        Accelerator::Kvm => line.option("-accel", "kvm"),
        Accelerator::Tcg => line.option("-accel", format!("tcg,thread=multi,tb-size={TRANSLATION_CACHE_MIB}")),
    }
    let reboot = match domain.reboot_policy {
        None | Some(RebootPolicy::Reboot) => "reset",
        Some(RebootPolicy::Terminate) => "shutdown",
    };
    // A guest that has panicked ends; its event tells why before QEMU exits.
    line.option("-action", format!("reboot={reboot},shutdown=poweroff,panic=shutdown"));
}
