//! Ways to reach the guest from outside: monitor, serial console, screen, agent.

use serde_json::{Map, Value};

use super::{Part, set};
use crate::guest::DeviceId;
use crate::keyval::Keyval;
use crate::wiring::Wiring;

/// QEMU connects to it at once: the caller listens before it starts QEMU, and no time is spent on waiting.
pub const MONITOR_SOCKET: &str = "monitor.sock";
/// The guest agent's channel; QEMU connects to it, like the monitor.
pub const AGENT_SOCKET: &str = "agent.sock";
/// The id of the agent's port, by which QEMU tells that the guest has opened it.
pub const AGENT_PORT: &str = "agent0";
/// The first serial port; QEMU listens.
pub const SERIAL_SOCKET: &str = "virt-serial0";
/// What the guest wrote to its serial port.
pub const SERIAL_LOG: &str = "virt-serial0-log";
/// The screen; QEMU listens.
pub const VNC_SOCKET: &str = "virt-vnc";

/// A file in the guest's own directory.
pub(super) fn path(wiring: &Wiring, name: &str) -> String {
    wiring.runtime.join(name).to_string_lossy().into_owned()
}

pub(super) fn agent(parts: &mut Vec<Part>, properties: &mut Map<String, Value>, wiring: &Wiring) {
    let socket = Keyval::of("socket").set("id", "agent").set("path", path(wiring, AGENT_SOCKET));
    parts.push(Part::Character(socket.into_string()));
    let name = "org.qemu.guest_agent.0";
    set(properties, [("driver", "virtserialport".into()), ("chardev", "agent".into()), ("name", name.into())]);
}

pub(super) fn serial(
    parts: &mut Vec<Part>,
    properties: &mut Map<String, Value>,
    wiring: &Wiring,
    id: &DeviceId,
    logged: bool,
) {
    let mut serial = Keyval::of("socket").set("id", id.as_str()).set("path", path(wiring, SERIAL_SOCKET));
    serial = serial.set("server", "on").set("wait", "off");
    if logged {
        serial = serial.set("logfile", path(wiring, SERIAL_LOG)).set("logappend", "off");
    }
    parts.push(Part::Character(serial.into_string()));
    set(properties, [("driver", "isa-serial".into()), ("chardev", id.as_str().into())]);
}
