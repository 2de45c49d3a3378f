//! What devices must not share: names, and their turn at booting.

use std::collections::{BTreeMap, BTreeSet};

use api::devices::Devices;

use super::sheet::Sheet;

/// QEMU counts with a sign.
const LAST: u32 = i32::MAX.unsigned_abs();

pub(super) fn check(sheet: &mut Sheet<'_>, devices: &Devices) {
    let (disks, interfaces) = (devices.disks.as_deref().unwrap_or_default(), devices.interfaces.as_deref());
    let mut names = BTreeSet::new();
    for (index, disk) in disks.iter().enumerate() {
        if !names.insert(&disk.name) {
            sheet.refuse(
                &format!("disks[{index}].name"),
                format!("{:?} is already used by another disk; rename it", disk.name),
            );
        }
    }
    let disks = disks.iter().enumerate().map(|(index, disk)| (format!("disks[{index}].bootOrder"), disk.boot_order));
    let interfaces = interfaces.unwrap_or_default().iter().enumerate();
    let interfaces = interfaces.map(|(index, one)| (format!("interfaces[{index}].bootOrder"), one.boot_order));
    let mut orders: BTreeMap<u32, String> = BTreeMap::new();
    for (field, order) in disks.chain(interfaces) {
        let Some(order) = order else { continue };
        if !(1..=LAST).contains(&order) {
            sheet.refuse(&field, format!("must be between 1 and {LAST}"));
        } else if let Some(other) = orders.get(&order) {
            let problem = format!("{order} is already used by {other}; use another");
            sheet.refuse(&field, problem);
        } else {
            orders.insert(order, field);
        }
    }
}
