//! Devices as a preference likes them: buses, models, and what is attached by itself.

use api::devices::{BlockSize, Devices, Disk, DiskBus, DriverCache, DriverIO, InputBus, InputType, PanicDevice};
use api::networks::{Interface, InterfaceMasquerade};
use api::preference::{DevicePreferences, VirtualMachinePreferenceSpec};
use api::vmi::{VirtualMachineInstance, VirtualMachineInstanceSpec};

use super::{fill, fill_word, within};
use crate::instancetype::says;

/// Applies what a preference says about devices that come without being listed. It must be known before they come.
pub fn auto_attach(vmi: &mut VirtualMachineInstance, preference: &VirtualMachinePreferenceSpec) {
    let Some(preferred) = &preference.devices else { return };
    let devices = &mut vmi.spec.domain.devices;
    fill(&mut devices.autoattach_graphics_device, preferred.preferred_autoattach_graphics_device.as_ref());
    fill(&mut devices.autoattach_input_device, preferred.preferred_autoattach_input_device.as_ref());
    fill(&mut devices.autoattach_mem_balloon, preferred.preferred_autoattach_mem_balloon.as_ref());
    fill(&mut devices.autoattach_pod_interface, preferred.preferred_autoattach_pod_interface.as_ref());
    fill(&mut devices.autoattach_serial_console, preferred.preferred_autoattach_serial_console.as_ref());
}

/// Fills in everything else about devices.
pub(super) fn apply(spec: &mut VirtualMachineInstanceSpec, preference: &DevicePreferences) {
    let DevicePreferences {
        preferred_autoattach_graphics_device: _,
        preferred_autoattach_input_device: _,
        preferred_autoattach_mem_balloon: _,
        preferred_autoattach_pod_interface: _,
        preferred_autoattach_serial_console: _,
        preferred_block_multi_queue,
        preferred_cdrom_bus,
        preferred_disable_hotplug,
        preferred_disk_block_size: block_size,
        preferred_disk_bus,
        preferred_disk_cache: cache,
        preferred_disk_dedicated_io_thread,
        preferred_disk_io: io,
        preferred_input_bus,
        preferred_input_type,
        preferred_interface_masquerade,
        preferred_interface_model,
        preferred_lun_bus,
        preferred_network_interface_multi_queue,
        preferred_panic_device_model,
        preferred_rng,
        preferred_sound_model,
        preferred_tpm,
        preferred_use_virtio_transitional,
        preferred_video_type,
        preferred_virtual_gpu_options,
    } = preference;
    interfaces(spec, preferred_interface_model.as_ref(), preferred_interface_masquerade.as_ref());
    let devices = &mut spec.domain.devices;
    fill(&mut devices.block_multi_queue, preferred_block_multi_queue.as_ref());
    fill(&mut devices.disable_hotplug, preferred_disable_hotplug.as_ref());
    fill(&mut devices.network_interface_multiqueue, preferred_network_interface_multi_queue.as_ref());
    fill(&mut devices.rng, preferred_rng.as_ref());
    fill(&mut devices.tpm, preferred_tpm.as_ref());
    fill(&mut devices.use_virtio_transitional, preferred_use_virtio_transitional.as_ref());
    within(&mut devices.video, |video| fill_word(&mut video.type_, preferred_video_type.as_ref()));
    if let Some(sound) = &mut devices.sound {
        fill_word(&mut sound.model, preferred_sound_model.as_ref());
    }
    for gpu in devices.gpus.iter_mut().flatten() {
        fill(&mut gpu.virtual_gpu_options, preferred_virtual_gpu_options.as_ref());
    }
    let disks = DiskPreferences {
        bus: preferred_disk_bus.as_ref(),
        cdrom_bus: preferred_cdrom_bus.as_ref(),
        lun_bus: preferred_lun_bus.as_ref(),
        block_size: block_size.as_ref(),
        cache: cache.as_ref(),
        io: io.as_ref(),
        dedicated_io_thread: preferred_disk_dedicated_io_thread.as_ref(),
    };
    devices.disks.iter_mut().flatten().for_each(|disk| disks.apply(disk));
    inputs(devices, preferred_input_bus.as_ref(), preferred_input_type.as_ref());
    if let Some(model) = preferred_panic_device_model {
        let listed = devices.panic_devices.get_or_insert_default();
        if listed.is_empty() {
            listed.push(PanicDevice::default());
        }
        listed.iter_mut().for_each(|device| fill_word(&mut device.model, Some(model)));
    }
}

struct DiskPreferences<'a> {
    bus: Option<&'a DiskBus>,
    cdrom_bus: Option<&'a DiskBus>,
    lun_bus: Option<&'a DiskBus>,
    block_size: Option<&'a BlockSize>,
    cache: Option<&'a DriverCache>,
    io: Option<&'a DriverIO>,
    dedicated_io_thread: Option<&'a bool>,
}

impl DiskPreferences<'_> {
    fn apply(&self, disk: &mut Disk) {
        if let Some(cdrom) = &mut disk.cdrom {
            fill_word(&mut cdrom.bus, self.cdrom_bus);
            return;
        }
        if let Some(lun) = &mut disk.lun {
            fill_word(&mut lun.bus, self.lun_bus);
            return;
        }
        within(&mut disk.disk, |target| fill_word(&mut target.bus, self.bus));
        fill(&mut disk.block_size, self.block_size);
        fill_word(&mut disk.cache, self.cache);
        fill_word(&mut disk.io, self.io);
        let bus = disk.disk.as_ref().and_then(|target| target.bus.as_ref());
        if bus == Some(&DiskBus::Virtio) {
            fill(&mut disk.dedicated_io_thread, self.dedicated_io_thread);
        }
    }
}

fn interfaces(spec: &mut VirtualMachineInstanceSpec, model: Option<&String>, masquerade: Option<&InterfaceMasquerade>) {
    let networks = spec.networks.as_deref().unwrap_or_default();
    for interface in spec.domain.devices.interfaces.iter_mut().flatten() {
        fill_word(&mut interface.model, model);
        let pod = networks.iter().any(|network| network.name == interface.name && network.pod.is_some());
        if pod && !is_bound(interface) {
            fill(&mut interface.masquerade, masquerade);
        }
    }
}

fn is_bound(interface: &Interface) -> bool {
    let Interface { binding, bridge, macvtap, masquerade, passt, passt_binding, slirp, sriov, .. } = interface;
    binding.is_some()
        || bridge.is_some()
        || macvtap.is_some()
        || masquerade.is_some()
        || passt.is_some()
        || passt_binding.is_some()
        || slirp.is_some()
        || sriov.is_some()
}

fn inputs(devices: &mut Devices, bus: Option<&InputBus>, type_: Option<&InputType>) {
    for input in devices.inputs.iter_mut().flatten() {
        fill_word(&mut input.bus, bus);
        if let Some(type_) = type_.filter(|_| !says(Some(&input.type_))) {
            input.type_ = type_.clone();
        }
    }
}
