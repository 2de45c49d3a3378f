//! Devices and claims on them.

use serde_json::Value;

use super::parts::{has, is_deleted, items, text};
use super::{AGE, AGED, Cell, NAME};

pub(super) fn of(plural: &str) -> Option<&'static [Cell]> {
    Some(match plural {
        "deviceclasses" | "resourceclaimtemplates" => AGED,
        "resourceclaims" => CLAIMS,
        "resourceslices" => SLICES,
        _ => return None,
    })
}

const CLAIMS: &[Cell] =
    &[NAME, Cell::text("State", "Whether it is allocated and reserved.", |object, _| state(object).into()), AGE];

const SLICES: &[Cell] = &[
    NAME,
    Cell::text("Node", "Node of the devices.", |object, _| text(object, "/spec/nodeName")),
    Cell::text("Driver", "Driver of the devices.", |object, _| text(object, "/spec/driver")),
    Cell::text("Pool", "Pool of the devices.", |object, _| text(object, "/spec/pool/name")),
    AGE,
];

fn state(claim: &Value) -> &'static str {
    let reserved = !items(claim, "/status/reservedFor").is_empty();
    match (is_deleted(claim), has(claim, "/status/allocation"), reserved) {
        (false, false, _) => "pending",
        (false, true, false) => "allocated",
        (false, true, true) => "allocated,reserved",
        (true, false, _) => "deleted",
        (true, true, false) => "deleted,allocated",
        (true, true, true) => "deleted,allocated,reserved",
    }
}
