//! The small devices: entropy, balloon, inputs, watchdog, panic.

use api::devices::{Devices, Input, InputBus, InputType, PanicDeviceModel, Watchdog, WatchdogAction};
use api::domain::DomainSpec;
use serde_json::json;

use super::line::Line;

pub(super) fn add(line: &mut Line, domain: &DomainSpec) {
    let devices = &domain.devices;
    if devices.rng.is_some() {
        line.json("-object", &json!({ "qom-type": "rng-random", "id": "entropy", "filename": "/dev/urandom" }));
        line.json("-device", &json!({ "driver": "virtio-rng-pci", "rng": "entropy" }));
    }
    if devices.autoattach_mem_balloon != Some(false) {
        line.json("-device", &json!({ "driver": "virtio-balloon-pci", "id": "balloon", "free-page-reporting": true }));
    }
    inputs(line, devices);
    if let Some(watchdog) = &devices.watchdog {
        add_watchdog(line, watchdog);
    }
    for (index, panic) in devices.panic_devices.iter().flatten().enumerate() {
        let path = format!("spec.domain.devices.panicDevices[{index}].model");
        match &panic.model {
            None | Some(PanicDeviceModel::Pvpanic) => line.json("-device", &json!({ "driver": "pvpanic-pci" })),
            Some(PanicDeviceModel::Isa) => line.json("-device", &json!({ "driver": "pvpanic" })),
            Some(model) => line.refuse(path, format!("{:?} is not supported; use isa or pvpanic", model.as_str())),
        }
    }
}

fn inputs(line: &mut Line, devices: &Devices) {
    let automatic = Input { name: "input".to_owned(), type_: InputType::Tablet, bus: Some(InputBus::Usb) };
    let automatic = devices.autoattach_input_device.filter(|wanted| *wanted).map(|_| automatic);
    let listed = devices.inputs.as_deref().unwrap_or_default();
    let inputs: Vec<&Input> = if listed.is_empty() { automatic.iter().collect() } else { listed.iter().collect() };
    if inputs.iter().any(|input| matches!(input.bus, None | Some(InputBus::Usb))) {
        line.json("-device", &json!({ "driver": "qemu-xhci", "id": "usb" }));
    }
    for (index, Input { name: _, type_, bus }) in inputs.into_iter().enumerate() {
        let path = format!("spec.domain.devices.inputs[{index}]");
        let driver = match (type_, bus) {
            (InputType::Tablet, None | Some(InputBus::Usb)) => "usb-tablet",
            (InputType::Tablet, Some(InputBus::Virtio)) => "virtio-tablet-pci",
            (InputType::Keyboard, None | Some(InputBus::Usb)) => "usb-kbd",
            (InputType::Keyboard, Some(InputBus::Virtio)) => "virtio-keyboard-pci",
            (InputType::Other(other), _) => {
                line.refuse(format!("{path}.type"), format!("{other:?} is none of {}", InputType::KNOWN.join(", ")));
                continue;
            }
            (_, Some(InputBus::Other(other))) => {
                line.refuse(format!("{path}.bus"), format!("{other:?} is none of {}", InputBus::KNOWN.join(", ")));
                continue;
            }
        };
        line.json("-device", &json!({ "driver": driver }));
    }
}

fn add_watchdog(line: &mut Line, watchdog: &Watchdog) {
    let Watchdog { name: _, diag288, i6300esb } = watchdog;
    line.unsupported("spec.domain.devices.watchdog.diag288", diag288.is_some());
    let Some(device) = i6300esb else {
        line.refuse("spec.domain.devices.watchdog.i6300esb", "is required: the only watchdog of this architecture");
        return;
    };
    let action = match &device.action {
        None | Some(WatchdogAction::Reset) => "reset",
        Some(WatchdogAction::Poweroff) => "poweroff",
        Some(WatchdogAction::Shutdown) => "shutdown",
        Some(WatchdogAction::Other(other)) => {
            let known = WatchdogAction::KNOWN.join(", ");
            line.refuse("spec.domain.devices.watchdog.i6300esb.action", format!("{other:?} is none of {known}"));
            return;
        }
    };
    line.json("-device", &json!({ "driver": "i6300esb" }));
    line.option("-action", format!("watchdog={action}"));
}
