//! What a stored model may say: what a builder of ours could have written. It is asked before anything of the model reaches QEMU.

use std::collections::{BTreeMap, BTreeSet};

use virt_rules::support::{MOST_VCPUS, is_board, is_cpu_name, is_unicast, is_uuid, is_zone};

use super::StoredError;
use crate::guest::build::{CHASSIS_KEYS, MEMORY, SYSTEM_KEYS};
use crate::guest::{Board, Boot, Clock, Cpu, Device, DeviceId, Guest, Identity, Kernel, Kind, Memory, Place};
use crate::refusal::is_text;

/// The largest ROM, in bytes. Those of QEMU's devices have a quarter of a megabyte.
const MOST_ROM: u32 = 16 << 20;

pub(super) fn check(guest: &Guest) -> Result<(), StoredError> {
    let Guest { version: _, identity, board, cpu, memory, boot, clock, devices, minted } = guest;
    check_identity(identity)?;
    let Board { type_, hpet: _, acpi: _, graphics: _, ends_on_reboot: _ } = board;
    must("board", type_, is_board(type_))?;
    check_cpu(cpu)?;
    let Memory { bytes, most_bytes } = memory;
    must("memory", bytes, MEMORY.contains(bytes) && MEMORY.contains(most_bytes) && bytes <= most_bytes)?;
    let Boot { firmware: _, kernel, flash: _ } = boot;
    if let Some(Kernel { arguments: Some(arguments) }) = kernel {
        must("kernel arguments", arguments, is_text(arguments))?;
    }
    let Clock { zone, catches_up: _, goes_on: _ } = clock;
    if let Some(zone) = zone {
        must("time zone", zone, is_zone(zone) || is_offset(zone))?;
    }
    let mut places = BTreeSet::new();
    for (id, device) in devices {
        check_device(id, device, minted)?;
        check_place(id, &device.place, devices)?;
        must("place of", id, device.place == Place::Isa || places.insert(&device.place))?;
    }
    Ok(())
}

fn must(field: &'static str, value: &impl ToString, holds: bool) -> Result<(), StoredError> {
    if holds { Ok(()) } else { Err(StoredError::Value { field, value: value.to_string() }) }
}

fn check_identity(identity: &Identity) -> Result<(), StoredError> {
    let Identity { name, uuid, system, chassis } = identity;
    must("name", name, is_text(name))?;
    if let Some(uuid) = uuid {
        must("UUID", uuid, is_uuid(uuid))?;
    }
    for (key, value) in system {
        must("system information", key, SYSTEM_KEYS.contains(&key.as_str()) && is_text(value))?;
    }
    for (key, value) in chassis.iter().flatten() {
        must("chassis information", key, CHASSIS_KEYS.contains(&key.as_str()) && is_text(value))?;
    }
    Ok(())
}

fn check_cpu(cpu: &Cpu) -> Result<(), StoredError> {
    let Cpu { model, features, sockets, most_sockets, cores, threads, found } = cpu;
    must("CPU model", model, is_cpu_name(model))?;
    for (name, _) in features {
        must("CPU feature", name, is_cpu_name(name))?;
    }
    if let Some(found) = found {
        must("digest of the CPU", found, found.len() == 64 && found.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    }
    let total = u64::from(*most_sockets).saturating_mul(u64::from(*cores)).saturating_mul(u64::from(*threads));
    must("number of vCPUs", &total, (1..=MOST_VCPUS).contains(&total) && (1..=*most_sockets).contains(sockets))
}

fn check_device(id: &DeviceId, device: &Device, minted: &BTreeMap<String, u32>) -> Result<(), StoredError> {
    let Device { of, place: _, kind, rom_bytes } = device;
    // Otherwise the next device could get the id of this one.
    let count = minted.get(kind.prefix()).copied().unwrap_or_default();
    let number = id.as_str().strip_prefix(kind.prefix()).and_then(|number| number.parse::<u32>().ok());
    must("device id", id, number.is_some_and(|number| number < count))?;
    must("device name of", id, of.as_deref().is_none_or(is_text))?;
    let is_rom = |bytes: u32| kind.has_rom() && bytes.is_power_of_two() && bytes <= MOST_ROM;
    must("size of the ROM of", id, rom_bytes.is_none_or(is_rom))?;
    match kind {
        Kind::Disk(disk) => must("serial number of", id, disk.serial.as_deref().is_none_or(is_text)),
        Kind::Interface(interface) => must("address of", id, is_unicast(&interface.mac)),
        _ => Ok(()),
    }
}

/// It is within what QEMU counts, and on a controller or port that is there.
fn check_place(id: &DeviceId, place: &Place, devices: &BTreeMap<DeviceId, Device>) -> Result<(), StoredError> {
    let (bus, is_within) = match place {
        Place::Pci { slot, function } => (None, *slot <= 31 && *function <= 7),
        Place::Isa => (None, true),
        Place::Port { .. } => (Some(Kind::RootPort), true),
        Place::Sata { port, .. } => (Some(Kind::Sata), *port < 6),
        Place::Scsi { lun, .. } => (Some(Kind::Scsi), *lun < 256),
        Place::Usb { port, .. } => (Some(Kind::Usb), (1..=4).contains(port)),
        Place::Channel { number, .. } => (Some(Kind::Channels), (1..=30).contains(number)),
    };
    let found = place.needs().and_then(|needed| devices.get(needed)).map(|device| &device.kind);
    must("place of", id, is_within && found == bus.as_ref())
}

/// As the builder writes an offset: `UTC-01:30:00`.
fn is_offset(zone: &str) -> bool {
    let Some(offset) = zone.strip_prefix("UTC") else { return false };
    let digits = offset.strip_prefix(['+', '-']).unwrap_or_default();
    digits.len() == 8 && digits.split(':').all(|part| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit()))
}
