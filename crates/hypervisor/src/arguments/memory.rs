//! Guest memory.

use api::domain::{DomainSpec, Memory};

use super::line::Line;

/// QEMU rounds memory to pages of this size; doing it here keeps what is reported true.
const PAGE: i128 = 4096;
/// Less does not hold a kernel; a likely mistake is a number without a unit.
const LEAST: i128 = 1 << 20;
/// The most that fits a guest's physical addresses on any CPU we offer.
const MOST: i128 = 1 << 44;

/// The size of guest memory in bytes: `memory.guest`, or else what the pod asks for.
pub(super) fn guest_bytes(domain: &DomainSpec) -> Option<(&'static str, i128)> {
    let guest = domain.memory.as_ref().and_then(|memory| memory.guest.as_ref());
    let resources = domain.resources.as_ref();
    let limit = || resources.and_then(|resources| resources.limits.as_ref()).and_then(|list| list.get("memory"));
    let request = || resources.and_then(|resources| resources.requests.as_ref()).and_then(|list| list.get("memory"));
    let (path, quantity) = None
        .or_else(|| guest.map(|quantity| ("spec.domain.memory.guest", quantity)))
        .or_else(|| request().map(|quantity| ("spec.domain.resources.requests.memory", quantity)))
        .or_else(|| limit().map(|quantity| ("spec.domain.resources.limits.memory", quantity)))?;
    let bytes = quantity.amount().units();
    Some((path, (bytes + PAGE - 1) / PAGE * PAGE))
}

pub(super) fn add(line: &mut Line, domain: &DomainSpec) {
    let default = Memory::default();
    let Memory { guest: _, hugepages, max_guest, reserved_overhead: _ } = domain.memory.as_ref().unwrap_or(&default);
    line.unsupported("spec.domain.memory.hugepages", hugepages.is_some());
    let Some((path, bytes)) = guest_bytes(domain) else {
        line.refuse("spec.domain.memory.guest", "is required: how much memory the guest has, such as 512Mi");
        return;
    };
    if !(LEAST..=MOST).contains(&bytes) {
        line.refuse(path, format!("{bytes} bytes of memory are out of range; give a size such as 512Mi"));
        return;
    }
    if max_guest.as_ref().is_some_and(|most| most.amount().units() > bytes) {
        line.refuse("spec.domain.memory.maxGuest", "hotplug of memory is not supported yet; remove it");
    }
    line.option("-m", format!("size={}k", bytes / 1024));
}
