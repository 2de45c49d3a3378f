//! Guest memory.

use api::domain::{MemLock, Memory, ReservedOverhead};
use api::quantity::Quantity;

use super::sheet::Sheet;
use crate::config::Gate;

/// Less does not hold a kernel; a likely mistake is a number without a unit.
const LEAST: i128 = 1 << 20;
/// The most that fits a guest's physical addresses on any CPU we offer.
const MOST: i128 = 1 << 44;
const BOUNDS: &str = "from 1Mi to 16Ti";

pub(super) fn place(sheet: &mut Sheet<'_>, memory: &Memory) {
    let Memory { guest, hugepages, max_guest, reserved_overhead } = memory;
    sheet.within("guest", BOUNDS, out_of_range(guest.as_ref()));
    let small = "remove it; guests use ordinary pages, which the kernel may merge";
    sheet.unsupported("hugepages", small, hugepages.is_some());
    sheet.within("maxGuest", BOUNDS, out_of_range(max_guest.as_ref()));
    sheet.gated("reservedOverhead", Gate::ReservedOverheadMemlock, reserved_overhead.is_some());
    sheet.part("reservedOverhead", reserved_overhead.as_ref(), overhead);
}

fn overhead(sheet: &mut Sheet<'_>, overhead: &ReservedOverhead) {
    let ReservedOverhead { added_overhead, mem_lock } = overhead;
    sheet.works("addedOverhead", added_overhead);
    sheet.unsupported("memLock", "remove it; guests' memory is not locked", *mem_lock == Some(MemLock::Required));
}

/// Amounts are judged before they are rounded up to pages.
fn out_of_range(amount: Option<&Quantity>) -> Option<String> {
    let amount = amount.filter(|amount| !(LEAST..=MOST).contains(&amount.amount().units()))?;
    Some(format!("{amount} is out of range; use a size such as 512Mi, {BOUNDS}"))
}
