//! The virtual hardware: what is not a subject of its own.

use api::domain::{Chassis, DomainSpec, Machine, ResourceRequirements};

use super::sheet::Sheet;
use super::{clock, cpu, devices, features, firmware, memory};
use crate::config::Gate;

const NO_THREADS: &str = "remove it; QEMU's main thread handles the I/O of all disks";

pub(super) fn place(sheet: &mut Sheet<'_>, domain: &DomainSpec) {
    let DomainSpec {
        devices: devices_of_it,
        chassis,
        clock: clock_of_it,
        cpu: cpu_of_it,
        features: features_of_it,
        firmware: firmware_of_it,
        io_threads,
        io_threads_policy,
        launch_security,
        machine,
        memory: memory_of_it,
        reboot_policy,
        resources,
    } = domain;
    sheet.part("chassis", chassis.as_ref(), place_chassis);
    sheet.part("clock", clock_of_it.as_ref(), clock::place);
    sheet.part("cpu", cpu_of_it.as_ref(), cpu::place);
    sheet.part("devices", Some(devices_of_it), devices::place);
    sheet.part("features", features_of_it.as_ref(), features::place);
    sheet.part("firmware", firmware_of_it.as_ref(), firmware::place);
    sheet.unsupported("ioThreads", NO_THREADS, io_threads.is_some());
    sheet.unsupported("ioThreadsPolicy", NO_THREADS, io_threads_policy.is_some());
    let launch = "remove it; guests are not encrypted";
    sheet.unsupported("launchSecurity", launch, launch_security.is_some());
    sheet.part("machine", machine.as_ref(), place_machine);
    sheet.part("memory", memory_of_it.as_ref(), memory::place);
    sheet.gated("rebootPolicy", Gate::RebootPolicy, reboot_policy.is_some());
    sheet.part("resources", resources.as_ref(), place_resources);
}

fn place_chassis(sheet: &mut Sheet<'_>, chassis: &Chassis) {
    let Chassis { asset, manufacturer, serial, sku, version } = chassis;
    sheet.text("asset", asset.as_deref());
    sheet.text("manufacturer", manufacturer.as_deref());
    sheet.text("serial", serial.as_deref());
    sheet.text("sku", sku.as_deref());
    sheet.text("version", version.as_deref());
}

/// Whether this is a board that guests can have, as far as its name tells.
#[must_use]
pub fn is_board(name: &str) -> bool {
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let is_known = matches!(name, "q35" | "pc") || name.starts_with("pc-q35-") || name.starts_with("pc-i440fx-");
    is_plain && is_known
}

fn place_machine(sheet: &mut Sheet<'_>, machine: &Machine) {
    let Machine { type_ } = machine;
    let name = type_.as_deref().filter(|name| !(name.is_empty() || is_board(name)));
    let problem = name.map(|name| format!("{name:?} is not supported; use q35 or pc, or a version of them"));
    sheet.within("type", "q35, pc, and the versions of them that the node's QEMU has", problem);
}

fn place_resources(sheet: &mut Sheet<'_>, resources: &ResourceRequirements) {
    let ResourceRequirements { limits, overcommit_guest_overhead, requests } = resources;
    sheet.works("limits", limits);
    sheet.works("overcommitGuestOverhead", overcommit_guest_overhead);
    sheet.works("requests", requests);
}
