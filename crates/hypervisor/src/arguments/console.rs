//! Ways to reach the guest from outside: monitor, serial console, screen, agent.

use api::domain::DomainSpec;
use serde_json::json;

use super::line::Line;
use crate::keyval::Keyval;
use crate::resources::Resources;

/// QEMU connects to it at once: the caller listens before it starts QEMU, and no time is spent on waiting.
pub const MONITOR_SOCKET: &str = "monitor.sock";
/// The guest agent's channel; QEMU connects to it, like the monitor.
pub const AGENT_SOCKET: &str = "agent.sock";
/// The id of the agent's port, by which QEMU tells that the guest has opened it.
pub const AGENT_PORT: &str = "agent-port";
/// The first serial port; QEMU listens.
pub const SERIAL_SOCKET: &str = "virt-serial0";
/// What the guest wrote to its serial port.
pub const SERIAL_LOG: &str = "virt-serial0-log";
/// The screen; QEMU listens.
pub const VNC_SOCKET: &str = "virt-vnc";

pub(super) fn add(line: &mut Line, domain: &DomainSpec, resources: &Resources) {
    let devices = &domain.devices;
    let Some(runtime) = line.path("the runtime folder", &resources.runtime) else { return };
    let path = |name: &str| format!("{runtime}/{name}");

    line.keyval("-chardev", Keyval::of("socket").set("id", "monitor").set("path", path(MONITOR_SOCKET)));
    line.option("-mon", "chardev=monitor,mode=control");

    line.keyval("-chardev", Keyval::of("socket").set("id", "agent").set("path", path(AGENT_SOCKET)));
    line.json("-device", &json!({ "driver": "virtio-serial-pci", "id": "channels" }));
    // Without an id QEMU does not tell when the guest opens it.
    let name = "org.qemu.guest_agent.0";
    let port =
        json!({ "driver": "virtserialport", "bus": "channels.0", "id": AGENT_PORT, "chardev": "agent", "name": name });
    line.json("-device", &port);

    if devices.autoattach_serial_console != Some(false) {
        let mut serial = Keyval::of("socket").set("id", "serial0").set("path", path(SERIAL_SOCKET));
        serial = serial.set("server", "on").set("wait", "off");
        if devices.log_serial_console != Some(false) {
            serial = serial.set("logfile", path(SERIAL_LOG)).set("logappend", "off");
        }
        line.keyval("-chardev", serial);
        line.json("-device", &json!({ "driver": "isa-serial", "chardev": "serial0" }));
    }
    let screen = devices.autoattach_graphics_device != Some(false);
    if screen {
        line.keyval("-vnc", Keyval::of(&format!("unix:{}", path(VNC_SOCKET))));
    }
    let video = devices.video.as_ref().and_then(|video| video.type_.as_deref());
    let driver = match video {
        Some(_) if !screen => {
            line.refuse("spec.domain.devices.video", "needs the graphics device that is switched off");
            return;
        }
        None if resources.efi.is_some() => "bochs-display",
        None | Some("vga") => "VGA",
        Some("bochs") => "bochs-display",
        Some("virtio") => "virtio-vga",
        Some("cirrus") => "cirrus-vga",
        Some(other) => {
            line.refuse("spec.domain.devices.video.type", format!("{other:?} is none of vga, bochs, virtio, cirrus"));
            return;
        }
    };
    if screen {
        line.json("-device", &json!({ "driver": driver, "id": "video0" }));
    }
}
