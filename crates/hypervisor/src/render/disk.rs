//! Disks: the chain of images behind each, and the device in front of it.

use serde_json::{Map, Value, json};

use super::{Part, set};
use crate::guest::{Cache, Device, DeviceId, Disk, Io, Media, OnError, Place};
use crate::refusal::Refusals;
use crate::wiring::{Format, Layer, Source, SourceKind};

const PATH: &str = "spec.domain.devices.disks";
/// What the node that a device is attached to is called, behind the device's id.
const TOP: &str = "-top";

/// The device whose bytes a block node carries, if it is the node that the guest sees.
#[must_use]
pub fn name_of_node(node: &str) -> Option<&str> {
    node.strip_suffix(TOP)
}

/// The block node that the guest sees through a device.
#[must_use]
pub fn node_of(device: &str) -> String {
    format!("{device}{TOP}")
}

/// How bytes travel between the guest and the file.
struct Travel {
    direct: bool,
    native: bool,
}

pub(super) fn disk(
    refusals: &mut Refusals,
    parts: &mut Vec<Part>,
    properties: &mut Map<String, Value>,
    (id, device): (&DeviceId, &Device),
    disk: &Disk,
    source: Option<&Source>,
) -> Option<()> {
    let name = device.of.as_deref().unwrap_or_default();
    let Some(source) = source else {
        refusals.refuse(PATH, format!("volume {name:?} does not exist"));
        return None;
    };
    let is_sata = matches!(device.place, Place::Sata { .. });
    if is_sata && disk.media == Media::Disk && source.read_only {
        let problem = format!("{name:?}: a sata disk cannot be read-only; use virtio or scsi, or make it a cdrom");
        refusals.refuse(PATH, problem);
        return None;
    }
    let direct = match disk.cache {
        Cache::Auto => source.direct_io,
        Cache::None => true,
        Cache::Writethrough | Cache::Writeback => false,
    };
    let native = match disk.io {
        Io::Auto => direct && source.top.kind == SourceKind::Block,
        Io::Native if !direct => {
            let problem = format!("{name:?}: io native needs cache none and a file system that supports O_DIRECT");
            refusals.refuse(PATH, problem);
            return None;
        }
        Io::Native => true,
        Io::Threads => false,
    };
    let read_only = source.read_only || disk.read_only;
    parts.push(Part::Block(chain(refusals, id, source, read_only, &Travel { direct, native })?));
    let is_cdrom = disk.media == Media::Cdrom;
    let driver = match (&device.place, is_cdrom) {
        (Place::Scsi { .. }, true) => "scsi-cd",
        (Place::Scsi { .. }, false) => "scsi-hd",
        (Place::Sata { .. }, true) => "ide-cd",
        (Place::Sata { .. }, false) => "ide-hd",
        _ => "virtio-blk-pci",
    };
    set(properties, [("driver", driver.into()), ("drive", format!("{id}{TOP}").into())]);
    if !is_cdrom {
        let write_cache = if disk.write_cache { "on" } else { "off" };
        let (write, read) = on_error(disk.on_error);
        set(properties, [("write-cache", write_cache.into()), ("werror", write.into()), ("rerror", read.into())]);
        for (key, size) in [
            ("logical_block_size", disk.logical_block),
            ("physical_block_size", disk.physical_block),
            ("discard_granularity", disk.discard_granularity),
        ] {
            properties.extend(size.map(|size| (key.to_owned(), size.into())));
        }
    }
    properties.extend(disk.serial.clone().map(|serial| ("serial".to_owned(), serial.into())));
    properties.extend(disk.boot_order.map(|order| ("bootindex".to_owned(), order.into())));
    Some(())
}

/// For writes, and for reads, which cannot fail for want of room.
fn on_error(policy: OnError) -> (&'static str, &'static str) {
    match policy {
        OnError::Stop => ("stop", "stop"),
        OnError::Report => ("report", "report"),
        OnError::Ignore => ("ignore", "ignore"),
        OnError::StopIfFull => ("enospc", "report"),
    }
}

/// The images behind a disk, each with a name and its format spelled out: QEMU guesses nothing, and follows no name in a header.
fn chain(refusals: &mut Refusals, id: &DeviceId, source: &Source, read_only: bool, travel: &Travel) -> Option<Value> {
    // From below, so that each stands on the one before.
    let mut below = Value::Null;
    for (depth, layer) in source.below.iter().enumerate().rev() {
        below = node(refusals, &format!("{id}-base{}", depth + 1), layer, true, below, travel)?;
    }
    node(refusals, &format!("{id}{TOP}"), &source.top, read_only, below, travel)
}

fn node(
    refusals: &mut Refusals,
    name: &str,
    layer: &Layer,
    read_only: bool,
    backing: Value,
    travel: &Travel,
) -> Option<Value> {
    let Layer { path, format, kind } = layer;
    let file_driver = match kind {
        SourceKind::File => "file",
        SourceKind::Block => "host_device",
    };
    let cache = json!({ "direct": travel.direct });
    let file = json!({
        "node-name": format!("{name}-file"),
        "driver": file_driver,
        "filename": refusals.path(PATH, path)?,
        "read-only": read_only,
        "aio": if travel.native { "native" } else { "threads" },
        "cache": cache,
        "discard": "unmap",
    });
    let driver = match format {
        Format::Raw => "raw",
        Format::Qcow2 => "qcow2",
    };
    let mut node = json!({
        "node-name": name,
        "driver": driver,
        "read-only": read_only,
        "discard": "unmap",
        "cache": cache,
        "file": file,
    });
    if *format == Format::Qcow2 {
        node["backing"] = backing;
    }
    Some(node)
}
