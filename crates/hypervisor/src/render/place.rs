//! The place of a device, in QEMU's properties.

use serde_json::{Map, Value};

use crate::guest::{Board, Place, ROOT_PORTS_SLOT};

pub(super) fn set(properties: &mut Map<String, Value>, board: &Board, place: &Place) {
    let mut put = |key: &str, value: Value| drop(properties.insert(key.to_owned(), value));
    match place {
        Place::Pci { slot, function } => {
            put("bus", if board.is_pc() { "pci.0" } else { "pcie.0" }.into());
            put("addr", format!("{slot:x}.{function:x}").into());
            // Otherwise guests look no further than the first.
            if *slot == ROOT_PORTS_SLOT && !board.is_pc() {
                put("multifunction", true.into());
            }
        }
        Place::Port { port } => {
            put("bus", port.as_str().into());
            put("addr", "0.0".into());
        }
        Place::Sata { controller, port } => put("bus", format!("{controller}.{port}").into()),
        Place::Scsi { controller, lun } => {
            put("bus", format!("{controller}.0").into());
            put("scsi-id", 0.into());
            put("lun", (*lun).into());
        }
        Place::Usb { controller, port } => {
            put("bus", format!("{controller}.0").into());
            put("port", port.to_string().into());
        }
        Place::Channel { controller, number } => {
            put("bus", format!("{controller}.0").into());
            put("nr", (*number).into());
        }
        Place::Isa => {}
    }
}
