//! Who the guest is: name, UUID, and what its SMBIOS says.

use api::domain::Chassis;
use api::vmi::VirtualMachineInstance;

use super::line::Line;
use crate::keyval::Keyval;

pub(super) fn add(line: &mut Line, vmi: &VirtualMachineInstance) {
    let name = vmi.metadata.name.as_deref().unwrap_or("guest");
    let namespace = vmi.metadata.namespace.as_deref().unwrap_or("default");
    if let (Some(name), Some(namespace)) =
        (line.text("metadata.name", name), line.text("metadata.namespace", namespace))
    {
        line.keyval("-name", Keyval::default().set("guest", format!("{namespace}_{name}")).set("debug-threads", "on"));
    }
    let firmware = vmi.spec.domain.firmware.as_ref();
    if let Some(uuid) = firmware.and_then(|firmware| firmware.uuid.as_deref()) {
        if is_uuid(uuid) {
            line.option("-uuid", uuid);
        } else {
            line.refuse("spec.domain.firmware.uuid", format!("{uuid:?} is no UUID"));
        }
    }
    // The names guests and tools know from KubeVirt; some images look for them.
    let system = Keyval::default()
        .set("type", "1")
        .set("manufacturer", "KubeVirt")
        .set("product", "None")
        .set("family", "KubeVirt");
    let serial = firmware
        .and_then(|firmware| firmware.serial.as_deref())
        .and_then(|serial| line.text("spec.domain.firmware.serial", serial));
    line.keyval("-smbios", system.set_some("serial", serial));
    if let Some(chassis) = &vmi.spec.domain.chassis {
        add_chassis(line, chassis);
    }
}

fn add_chassis(line: &mut Line, chassis: &Chassis) {
    let Chassis { asset, manufacturer, serial, sku, version } = chassis;
    let mut smbios = Keyval::default().set("type", "3");
    for (key, value) in
        [("asset", asset), ("manufacturer", manufacturer), ("serial", serial), ("sku", sku), ("version", version)]
    {
        let text = value.as_deref().and_then(|value| line.text(&format!("spec.domain.chassis.{key}"), value));
        smbios = smbios.set_some(key, text);
    }
    line.keyval("-smbios", smbios);
}

fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && groups.concat().chars().all(|digit| digit.is_ascii_hexdigit())
}
