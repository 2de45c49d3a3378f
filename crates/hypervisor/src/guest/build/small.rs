//! The small devices: entropy, balloon, inputs, watchdog, panic.

use api::devices::{self, Devices, InputBus, InputType, PanicDeviceModel, Watchdog};
use api::domain::DomainSpec;

use super::plugging::Plugging;
use crate::guest::place::Bus;
use crate::guest::{Input, Kind, Panic, WatchdogAction};
use crate::refusal::Refusals;

const DEVICES: &str = "spec.domain.devices";

pub(super) fn plug(refusals: &mut Refusals, plugging: &mut Plugging<'_>, domain: &DomainSpec) {
    let devices = &domain.devices;
    if devices.rng.is_some() {
        plugging.plug(refusals, &format!("{DEVICES}.rng"), Bus::Pci, None, Kind::Entropy);
    }
    if devices.autoattach_mem_balloon != Some(false) {
        plugging.plug(refusals, DEVICES, Bus::Pci, None, Kind::Balloon);
    }
    inputs(refusals, plugging, devices);
    if let Some(watchdog) = &devices.watchdog {
        plug_watchdog(refusals, plugging, watchdog);
    }
    for (index, panic) in devices.panic_devices.iter().flatten().enumerate() {
        let path = format!("{DEVICES}.panicDevices[{index}]");
        let (bus, kind) = match &panic.model {
            None | Some(PanicDeviceModel::Pvpanic) => (Bus::Pci, Panic::Pci),
            Some(PanicDeviceModel::Isa) => (Bus::Isa, Panic::Isa),
            Some(PanicDeviceModel::Other(other)) if other.is_empty() => (Bus::Pci, Panic::Pci),
            Some(model) => {
                refusals.meaningless(format!("{path}.model"), model.as_str());
                continue;
            }
        };
        plugging.plug(refusals, &path, bus, None, Kind::Panic(kind));
    }
}

fn inputs(refusals: &mut Refusals, plugging: &mut Plugging<'_>, devices: &Devices) {
    let automatic = devices::Input { name: "input".to_owned(), type_: InputType::Tablet, bus: Some(InputBus::Usb) };
    let automatic = devices.autoattach_input_device.filter(|wanted| *wanted).map(|_| automatic);
    let listed = devices.inputs.as_deref().unwrap_or_default();
    let inputs: Vec<_> = if listed.is_empty() { automatic.iter().collect() } else { listed.iter().collect() };
    for (index, devices::Input { name, type_, bus }) in inputs.into_iter().enumerate() {
        let path = format!("{DEVICES}.inputs[{index}]");
        let kind = match type_ {
            InputType::Tablet => Input::Tablet,
            InputType::Keyboard => Input::Keyboard,
            InputType::Other(other) if other.is_empty() => Input::Tablet,
            InputType::Other(other) => {
                refusals.meaningless(format!("{path}.type"), other);
                continue;
            }
        };
        let bus = match bus {
            None | Some(InputBus::Usb) => Bus::Usb,
            Some(InputBus::Virtio) => Bus::Pci,
            Some(InputBus::Other(other)) if other.is_empty() => Bus::Usb,
            Some(InputBus::Other(other)) => {
                refusals.meaningless(format!("{path}.bus"), other);
                continue;
            }
        };
        plugging.plug(refusals, &path, bus, Some(name), Kind::Input(kind));
    }
}

fn plug_watchdog(refusals: &mut Refusals, plugging: &mut Plugging<'_>, watchdog: &Watchdog) {
    let Watchdog { name, diag288: _, i6300esb } = watchdog;
    let path = format!("{DEVICES}.watchdog.i6300esb");
    let action = match i6300esb.as_ref().and_then(|device| device.action.as_ref()) {
        None | Some(devices::WatchdogAction::Reset) => WatchdogAction::Reset,
        Some(devices::WatchdogAction::Poweroff) => WatchdogAction::Poweroff,
        Some(devices::WatchdogAction::Shutdown) => WatchdogAction::Shutdown,
        Some(devices::WatchdogAction::Other(other)) if other.is_empty() => WatchdogAction::Reset,
        Some(devices::WatchdogAction::Other(other)) => return refusals.meaningless(format!("{path}.action"), other),
    };
    plugging.plug(refusals, &path, Bus::Pci, Some(name), Kind::Watchdog(action));
}
