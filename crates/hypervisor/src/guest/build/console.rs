//! Ways to reach the guest: the agent's channel, the serial port, the screen.

use api::domain::DomainSpec;

use super::plugging::Plugging;
use crate::guest::place::Bus;
use crate::guest::{Firmware, Kind, Video};
use crate::refusal::Refusals;

const DEVICES: &str = "spec.domain.devices";

pub(super) fn plug(refusals: &mut Refusals, plugging: &mut Plugging<'_>, domain: &DomainSpec, firmware: Firmware) {
    let devices = &domain.devices;
    plugging.plug(refusals, DEVICES, Bus::Channel, None, Kind::Agent);
    if devices.autoattach_serial_console != Some(false) {
        let logged = devices.log_serial_console != Some(false);
        plugging.plug(refusals, DEVICES, Bus::Isa, None, Kind::Serial { logged });
    }
    let screen = devices.autoattach_graphics_device != Some(false);
    let video = devices.video.as_ref().and_then(|video| video.type_.as_deref()).filter(|name| !name.is_empty());
    let video = match video {
        None if firmware == Firmware::Efi => Video::Bochs,
        None | Some("vga") => Video::Vga,
        Some("bochs") => Video::Bochs,
        Some("virtio") => Video::Virtio,
        Some("cirrus") => Video::Cirrus,
        Some(other) => {
            refusals.meaningless("spec.domain.devices.video.type", other);
            return;
        }
    };
    if screen {
        plugging.plug(refusals, DEVICES, Bus::Pci, None, Kind::Video(video));
    }
}
