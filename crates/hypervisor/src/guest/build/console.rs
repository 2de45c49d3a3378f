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
    let video = devices.video.as_ref().and_then(|video| video.type_.as_deref());
    let video = match video {
        Some(_) if !screen => {
            refusals.refuse("spec.domain.devices.video", "needs the graphics device that is switched off");
            return;
        }
        None if firmware == Firmware::Efi => Video::Bochs,
        None | Some("vga") => Video::Vga,
        Some("bochs") => Video::Bochs,
        Some("virtio") => Video::Virtio,
        Some("cirrus") => Video::Cirrus,
        Some(other) => {
            let problem = format!("{other:?} is not one of vga, bochs, virtio, cirrus");
            refusals.refuse("spec.domain.devices.video.type", problem);
            return;
        }
    };
    if screen {
        plugging.plug(refusals, DEVICES, Bus::Pci, None, Kind::Video(video));
    }
}
