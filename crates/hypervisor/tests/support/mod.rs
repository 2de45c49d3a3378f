//! The wiring of any instance, as if everything it names had been prepared.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use api::vmi::VirtualMachineInstance;
use hypervisor::accelerator::Accelerator;
use hypervisor::wiring::{Attachment, Efi, Format, Forward, Kernel, Layer, Source, SourceKind, Wiring};

pub(crate) fn wiring(vmi: &VirtualMachineInstance) -> Wiring {
    let firmware = vmi.spec.domain.firmware.as_ref();
    let efi = firmware.and_then(|firmware| firmware.bootloader.as_ref()).and_then(|bootloader| bootloader.efi.as_ref());
    let kernel = firmware.and_then(|firmware| firmware.kernel_boot.as_ref());
    Wiring {
        accelerator: Accelerator::Tcg,
        runtime: "/run/guest".into(),
        volumes: vmi.spec.volumes.iter().flatten().map(|volume| (volume.name.clone(), source(volume))).collect(),
        interfaces: interfaces(vmi),
        kernel: kernel.map(|_| Kernel { kernel: Some("/boot/kernel".into()), initrd: Some("/boot/initrd".into()) }),
        incoming: false,
        efi: efi.map(|_| Efi { code: "/usr/share/efi/code.fd".into(), variables: "/run/guest/variables.fd".into() }),
    }
}

fn interfaces(vmi: &VirtualMachineInstance) -> BTreeMap<String, Attachment> {
    let forward = Forward { address: Ipv4Addr::LOCALHOST.into(), host: 2222, guest: 22 };
    let names = vmi.spec.domain.devices.interfaces.iter().flatten().map(|interface| interface.name.clone());
    names.map(|name| (name, Attachment::User { forwards: vec![forward] })).collect()
}

fn source(volume: &api::volumes::Volume) -> Source {
    let overlay = volume.container_disk.is_some();
    let claim = volume.persistent_volume_claim.as_ref();
    let block = claim.is_some();
    let is_made_of_files = volume.cloud_init_config_drive.is_some()
        || volume.cloud_init_no_cloud.is_some()
        || volume.config_map.is_some()
        || volume.secret.is_some();
    let layer = |path: PathBuf, is_qcow2: bool| Layer {
        path,
        format: if is_qcow2 { Format::Qcow2 } else { Format::Raw },
        kind: if block { SourceKind::Block } else { SourceKind::File },
    };
    Source {
        top: layer(PathBuf::from("/volumes").join(&volume.name), overlay),
        below: overlay.then(|| layer("/cache/disk".into(), true)).into_iter().collect(),
        read_only: claim.is_some_and(|claim| claim.read_only == Some(true)),
        // As launchers have it.
        direct_io: !is_made_of_files,
    }
}
