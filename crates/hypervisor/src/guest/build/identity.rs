//! The guest's identity: name, UUID, and its SMBIOS texts.

use std::collections::BTreeMap;

use api::domain::Chassis;
use api::vmi::VirtualMachineInstance;

use crate::guest::Identity;
use crate::refusal::Refusals;

/// The names guests and tools know from KubeVirt; some images look for them.
const SYSTEM: [(&str, &str); 3] = [("manufacturer", "KubeVirt"), ("product", "None"), ("family", "KubeVirt")];

/// What is said of the system, and of the chassis.
pub(crate) const SYSTEM_KEYS: [&str; 4] = ["manufacturer", "product", "family", "serial"];
pub(crate) const CHASSIS_KEYS: [&str; 5] = ["asset", "manufacturer", "serial", "sku", "version"];

pub(super) fn identity(refusals: &mut Refusals, vmi: &VirtualMachineInstance) -> Identity {
    let name = refusals.text("metadata.name", vmi.metadata.name.as_deref().unwrap_or("guest"));
    let namespace = refusals.text("metadata.namespace", vmi.metadata.namespace.as_deref().unwrap_or("default"));
    let firmware = vmi.spec.domain.firmware.as_ref();
    let uuid = firmware.and_then(|firmware| firmware.uuid.clone()).filter(|uuid| !uuid.is_empty());
    let mut system: BTreeMap<String, String> = SYSTEM.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let serial = firmware.and_then(|firmware| firmware.serial.as_deref());
    if let Some(serial) = serial.and_then(|serial| refusals.text("spec.domain.firmware.serial", serial)) {
        system.insert("serial".to_owned(), serial);
    }
    let chassis = vmi.spec.domain.chassis.as_ref().map(|chassis| chassis_of(refusals, chassis));
    let name = format!("{}_{}", namespace.unwrap_or_default(), name.unwrap_or_default());
    Identity { name, uuid, system, chassis }
}

fn chassis_of(refusals: &mut Refusals, chassis: &Chassis) -> BTreeMap<String, String> {
    let Chassis { asset, manufacturer, serial, sku, version } = chassis;
    let mut texts = BTreeMap::new();
    for (key, value) in CHASSIS_KEYS.into_iter().zip([asset, manufacturer, serial, sku, version]) {
        let text = value.as_deref().and_then(|value| refusals.text(&format!("spec.domain.chassis.{key}"), value));
        texts.extend(text.map(|text| (key.to_owned(), text)));
    }
    texts
}
