//! Guest memory.

use std::ops::RangeInclusive;

use api::domain::{self, DomainSpec};

use crate::guest::Memory;
use crate::refusal::Refusals;

/// QEMU rounds memory to pages of this size; doing it here keeps what is reported true.
const PAGE: i128 = 4096;
/// Less does not hold a kernel; a likely mistake is a number without a unit.
const LEAST: u64 = 1 << 20;
/// The most that fits a guest's physical addresses on any CPU we offer.
const MOST: u64 = 1 << 44;
/// How much memory a guest can have.
pub(crate) const SIZES: RangeInclusive<u64> = LEAST..=MOST;

/// The size of guest memory in bytes: `memory.guest`, or else what the pod asks for.
fn guest_bytes(domain: &DomainSpec) -> Option<(&'static str, i128)> {
    let guest = domain.memory.as_ref().and_then(|memory| memory.guest.as_ref());
    let resources = domain.resources.as_ref();
    let limit = || resources.and_then(|resources| resources.limits.as_ref()).and_then(|list| list.get("memory"));
    let request = || resources.and_then(|resources| resources.requests.as_ref()).and_then(|list| list.get("memory"));
    let (path, quantity) = None
        .or_else(|| guest.map(|quantity| ("spec.domain.memory.guest", quantity)))
        .or_else(|| request().map(|quantity| ("spec.domain.resources.requests.memory", quantity)))
        .or_else(|| limit().map(|quantity| ("spec.domain.resources.limits.memory", quantity)))?;
    Some((path, whole_pages(quantity.amount().units())))
}

fn whole_pages(bytes: i128) -> i128 {
    (bytes + PAGE - 1) / PAGE * PAGE
}

pub(super) fn memory(refusals: &mut Refusals, domain: &DomainSpec) -> Option<Memory> {
    let default = domain::Memory::default();
    let domain::Memory { guest: _, hugepages: _, max_guest, reserved_overhead: _ } =
        domain.memory.as_ref().unwrap_or(&default);
    let Some((path, bytes)) = guest_bytes(domain) else {
        refusals.refuse("spec.domain.memory.guest", "is required; set the guest's memory, such as 512Mi");
        return None;
    };
    let most = max_guest.as_ref().map_or(bytes, |most| whole_pages(most.amount().units()).max(bytes));
    for (path, bytes) in [(path, bytes), ("spec.domain.memory.maxGuest", most)] {
        if !u64::try_from(bytes).is_ok_and(|bytes| SIZES.contains(&bytes)) {
            refusals.refuse(path, format!("a memory size of {bytes} bytes is out of range; use a size such as 512Mi"));
            return None;
        }
    }
    Some(Memory { bytes: u64::try_from(bytes).ok()?, most_bytes: u64::try_from(most).ok()? })
}
