//! Disks: the chain of files behind each, and the device in front of it.

use std::collections::BTreeSet;

use api::devices::{BlockSize, CustomBlockSize, Disk, DiskBus, DiskErrorPolicy, DriverCache, DriverIO};
use api::vmi::VirtualMachineInstanceSpec;
use serde_json::{Value, json};

use super::line::Line;
use crate::resources::{Base, Format, Resources, Source, SourceKind};

/// Ports of one AHCI controller.
const AHCI_PORTS: usize = 6;

pub(super) fn add(line: &mut Line, spec: &VirtualMachineInstanceSpec, resources: &Resources) {
    let mut buses = Buses::default();
    let mut orders = BTreeSet::new();
    let mut names = BTreeSet::new();
    let order_given = boot_order_given(spec);
    for (index, disk) in spec.domain.devices.disks.iter().flatten().enumerate() {
        let path = format!("spec.domain.devices.disks[{index}]");
        if !names.insert(&disk.name) {
            line.refuse(format!("{path}.name"), format!("there is another disk {:?}", disk.name));
        }
        if let Some(order) = disk.boot_order
            && (order == 0 || !orders.insert(order))
        {
            line.refuse(format!("{path}.bootOrder"), "must be at least 1, and no two disks may share it");
        }
        let Some(source) = resources.volumes.get(&disk.name) else {
            line.refuse(format!("{path}.name"), format!("there is no volume {:?}", disk.name));
            continue;
        };
        let Some(target) = Target::of(line, &path, disk) else { continue };
        if target.bus == DiskBus::Sata && !target.cdrom && (target.read_only || source.read_only) {
            line.refuse(&path, "a disk on sata cannot be read-only; use virtio or scsi, or make it a cdrom");
            continue;
        }
        let Some(options) = Options::of(line, &path, disk, source) else { continue };
        let Some(node) = chain(line, &path, index, source, &target, &options) else { continue };
        line.json("-blockdev", &node);
        let mut device = device(line, &path, index, disk, &target, &options, &mut buses);
        if let Some(order) = disk.boot_order {
            device["bootindex"] = order.into();
        } else if !order_given {
            device["bootindex"] = (index + 1).into();
        }
        line.json("-device", &device);
    }
}

/// Whether anything says what is booted first. If nothing does, disks are tried in their order.
fn boot_order_given(spec: &VirtualMachineInstanceSpec) -> bool {
    let devices = &spec.domain.devices;
    devices.disks.iter().flatten().any(|disk| disk.boot_order.is_some())
        || devices.interfaces.iter().flatten().any(|interface| interface.boot_order.is_some())
}

/// What the guest sees, whatever is behind it.
struct Target {
    bus: DiskBus,
    cdrom: bool,
    read_only: bool,
}

impl Target {
    fn of(line: &mut Line, path: &str, disk: &Disk) -> Option<Self> {
        let Disk {
            name: _,
            block_size: _,
            boot_order: _,
            cache: _,
            cdrom,
            changed_block_tracking,
            dedicated_io_thread,
            disk,
            error_policy: _,
            io: _,
            lun,
            serial: _,
            shareable,
            tag,
        } = disk;
        for (name, set) in [
            ("changedBlockTracking", *changed_block_tracking == Some(true)),
            ("dedicatedIOThread", *dedicated_io_thread == Some(true)),
            ("lun", lun.is_some()),
            ("shareable", *shareable == Some(true)),
            ("tag", tag.is_some()),
        ] {
            line.unsupported(&format!("{path}.{name}"), set);
        }
        let (field, bus, cdrom, read_only) = match (disk, cdrom) {
            (Some(_), Some(_)) => {
                line.refuse(path, "disk and cdrom exclude each other");
                return None;
            }
            (Some(disk), None) => {
                line.unsupported(&format!("{path}.disk.pciAddress"), disk.pci_address.is_some());
                ("disk", disk.bus.clone(), false, disk.readonly == Some(true))
            }
            (None, Some(cdrom)) => {
                line.unsupported(&format!("{path}.cdrom.tray"), cdrom.tray.is_some());
                ("cdrom", cdrom.bus.clone(), true, cdrom.readonly != Some(false))
            }
            (None, None) => ("disk", None, false, false),
        };
        let bus = bus.unwrap_or(DiskBus::Sata);
        match (&bus, cdrom) {
            (DiskBus::Virtio, true) => line.refuse(format!("{path}.cdrom.bus"), "a CD-ROM sits on sata or scsi"),
            (DiskBus::Usb | DiskBus::Other(_), _) => {
                line.refuse(
                    format!("{path}.{field}.bus"),
                    format!("{:?} is not supported; use virtio, sata or scsi", bus.as_str()),
                );
            }
            (DiskBus::Virtio | DiskBus::Sata | DiskBus::Scsi, _) => return Some(Self { bus, cdrom, read_only }),
        }
        None
    }
}

/// How bytes travel between the guest and the file.
struct Options {
    direct: bool,
    write_cache: bool,
    native: bool,
    on_error: &'static str,
    block: CustomBlockSize,
}

impl Options {
    fn of(line: &mut Line, path: &str, disk: &Disk, source: &Source) -> Option<Self> {
        let (direct, write_cache) = match &disk.cache {
            // O_DIRECT where it works, and otherwise nothing that a crash of the host could lose.
            None => (source.direct_io, source.direct_io),
            Some(DriverCache::None) => (true, true),
            Some(DriverCache::Writethrough) => (false, false),
            Some(DriverCache::Writeback) => (false, true),
            Some(DriverCache::Other(other)) => {
                line.refuse(format!("{path}.cache"), format!("{other:?} is none of {}", DriverCache::KNOWN.join(", ")));
                return None;
            }
        };
        let native = match &disk.io {
            None => direct && source.kind == SourceKind::Block,
            Some(DriverIO::Native) if !direct => {
                line.refuse(format!("{path}.io"), "native needs cache none and a file system that takes O_DIRECT");
                return None;
            }
            Some(DriverIO::Native) => true,
            Some(DriverIO::Threads) => false,
            Some(DriverIO::Other(other)) => {
                line.refuse(format!("{path}.io"), format!("{other:?} is none of {}", DriverIO::KNOWN.join(", ")));
                return None;
            }
        };
        let on_error = match &disk.error_policy {
            None | Some(DiskErrorPolicy::Stop) => "stop",
            Some(DiskErrorPolicy::Report) => "report",
            Some(DiskErrorPolicy::Ignore) => "ignore",
            Some(DiskErrorPolicy::Enospace) => "enospc",
            Some(DiskErrorPolicy::Other(other)) => {
                let known = DiskErrorPolicy::KNOWN.join(", ");
                line.refuse(format!("{path}.errorPolicy"), format!("{other:?} is none of {known}"));
                return None;
            }
        };
        let block = block_size(line, path, disk.block_size.as_ref())?;
        Some(Self { direct, write_cache, native, on_error, block })
    }
}

fn block_size(line: &mut Line, path: &str, block_size: Option<&BlockSize>) -> Option<CustomBlockSize> {
    let Some(BlockSize { custom, match_volume }) = block_size else { return Some(CustomBlockSize::default()) };
    let matching = match_volume.as_ref().is_some_and(|state| state.enabled != Some(false));
    line.unsupported(&format!("{path}.blockSize.matchVolume"), matching);
    let custom = custom.clone().unwrap_or_default();
    let valid = |size: &Option<u32>| size.is_none_or(|size| size.is_power_of_two() && (512..=2 << 20).contains(&size));
    let ordered = custom.logical.unwrap_or(512) <= custom.physical.unwrap_or(u32::MAX);
    if !valid(&custom.logical) || !valid(&custom.physical) || !ordered {
        let problem = "sizes are powers of two from 512 to 2097152, logical not above physical";
        line.refuse(format!("{path}.blockSize.custom"), problem);
        return None;
    }
    Some(custom)
}

/// The files behind a disk, each with its format spelled out: QEMU guesses nothing, and follows no name in a header.
fn chain(
    line: &mut Line,
    path: &str,
    index: usize,
    source: &Source,
    target: &Target,
    options: &Options,
) -> Option<Value> {
    let read_only = source.read_only || target.read_only;
    let aio = if options.native { "native" } else { "threads" };
    let file = |name: &str, kind: SourceKind, read_only: bool| {
        let driver = match kind {
            SourceKind::File => "file",
            SourceKind::Block => "host_device",
        };
        json!({
            "driver": driver,
            "filename": name,
            "read-only": read_only,
            "aio": aio,
            "cache": { "direct": options.direct },
            "discard": "unmap",
        })
    };
    let mut node = json!({
        "node-name": format!("disk{index}"),
        "driver": driver(source.format),
        "read-only": read_only,
        "discard": "unmap",
        "cache": { "direct": options.direct },
        "file": file(line.path(path, &source.path)?, source.kind, read_only),
    });
    if source.format == Format::Qcow2 {
        node["backing"] = match &source.base {
            None => Value::Null,
            Some(Base { path: base, format, kind }) => {
                let file = file(line.path(path, base)?, *kind, true);
                let mut base = json!({ "driver": driver(*format), "read-only": true, "file": file });
                if *format == Format::Qcow2 {
                    base["backing"] = Value::Null;
                }
                base
            }
        };
    }
    Some(node)
}

fn driver(format: Format) -> &'static str {
    match format {
        Format::Raw => "raw",
        Format::Qcow2 => "qcow2",
    }
}

/// Controllers made so far, and how far they are filled.
#[derive(Default)]
struct Buses {
    sata: usize,
    scsi: usize,
}

impl Buses {
    fn next_sata(&mut self, line: &mut Line) -> String {
        let (controller, port) = (self.sata / AHCI_PORTS, self.sata % AHCI_PORTS);
        if port == 0 {
            line.json("-device", &json!({ "driver": "ich9-ahci", "id": format!("sata{controller}") }));
        }
        self.sata += 1;
        format!("sata{controller}.{port}")
    }

    fn next_scsi(&mut self, line: &mut Line) -> usize {
        if self.scsi == 0 {
            line.json("-device", &json!({ "driver": "virtio-scsi-pci", "id": "scsi" }));
        }
        self.scsi += 1;
        self.scsi - 1
    }
}

fn device(
    line: &mut Line,
    path: &str,
    index: usize,
    disk: &Disk,
    target: &Target,
    options: &Options,
    buses: &mut Buses,
) -> Value {
    let on_off = |on: bool| if on { "on" } else { "off" };
    let mut device = json!({ "drive": format!("disk{index}"), "id": format!("device{index}") });
    match target.bus {
        DiskBus::Scsi => {
            device["driver"] = if target.cdrom { "scsi-cd" } else { "scsi-hd" }.into();
            device["bus"] = "scsi.0".into();
            device["scsi-id"] = 0.into();
            device["lun"] = buses.next_scsi(line).into();
        }
        DiskBus::Virtio => device["driver"] = "virtio-blk-pci".into(),
        DiskBus::Sata | DiskBus::Usb | DiskBus::Other(_) => {
            device["driver"] = if target.cdrom { "ide-cd" } else { "ide-hd" }.into();
            device["bus"] = buses.next_sata(line).into();
        }
    }
    if !target.cdrom {
        device["write-cache"] = on_off(options.write_cache).into();
        device["werror"] = options.on_error.into();
        device["rerror"] = if options.on_error == "enospc" { "report" } else { options.on_error }.into();
        for (key, size) in [
            ("logical_block_size", options.block.logical),
            ("physical_block_size", options.block.physical),
            ("discard_granularity", options.block.discard_granularity),
        ] {
            if let Some(size) = size {
                device[key] = size.into();
            }
        }
    }
    if let Some(serial) = disk.serial.as_deref().and_then(|serial| line.text(&format!("{path}.serial"), serial)) {
        device["serial"] = serial.into();
    }
    device
}
