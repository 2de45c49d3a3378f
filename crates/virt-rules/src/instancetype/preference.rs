//! The part of a preference: what the template leaves open.

mod devices;
mod features;

use std::fmt;

use api::clock::ClockOffset;
use api::domain::{CPU, CPUFeature};
use api::firmware::Firmware;
use api::preference::{
    CPUPreferences, ClockPreferences, FirmwarePreferences, MachinePreferences, VirtualMachinePreferenceSpec,
    VolumePreferences,
};
use api::vm::DataVolumeTemplateSpec;
use api::vmi::VirtualMachineInstance;

use super::says;

pub use devices::auto_attach;

/// Fills in what is not set. What only other parts of a VM can follow is not looked at here: its data volumes
/// ([`storage_class`]), the layout of an instancetype's vCPUs, and requirements.
pub(super) fn apply(vmi: &mut VirtualMachineInstance, preference: &VirtualMachinePreferenceSpec) {
    let VirtualMachinePreferenceSpec {
        annotations,
        clock,
        cpu,
        devices,
        features,
        firmware,
        machine,
        prefer_spread_socket_to_core_ratio: _,
        preferred_architecture,
        preferred_launch_security,
        preferred_subdomain,
        preferred_termination_grace_period_seconds,
        requirements: _,
        volumes: _,
    } = preference;
    auto_attach(vmi, preference);
    let spec = &mut vmi.spec;
    let domain = &mut spec.domain;
    if let Some(CPUPreferences { preferred_cpu_features, preferred_cpu_topology: _, spread_options: _ }) = cpu {
        add_cpu_features(&mut domain.cpu, preferred_cpu_features.as_deref().unwrap_or_default());
    }
    if let Some(devices) = devices {
        devices::apply(spec, devices);
    }
    let domain = &mut spec.domain;
    if let Some(features) = features {
        within(&mut domain.features, |set| features::apply(set, features));
    }
    if let Some(firmware) = firmware {
        within(&mut domain.firmware, |set| apply_firmware(set, firmware));
    }
    if let Some(MachinePreferences { preferred_machine_type }) = machine {
        within(&mut domain.machine, |machine| fill_word(&mut machine.type_, preferred_machine_type.as_ref()));
    }
    if let Some(ClockPreferences { preferred_clock_offset, preferred_timer }) = clock {
        within(&mut domain.clock, |clock| {
            // An offset is one thing: half of it from the VM and half from the preference would be neither's.
            if let (Some(offset), None, None) = (preferred_clock_offset, &clock.utc, &clock.timezone) {
                let ClockOffset { timezone, utc } = offset.clone();
                (clock.timezone, clock.utc) = (timezone, utc);
            }
            fill(&mut clock.timer, preferred_timer.as_ref());
        });
    }
    fill(&mut domain.launch_security, preferred_launch_security.as_ref());
    fill_word(&mut spec.subdomain, preferred_subdomain.as_ref());
    fill(&mut spec.termination_grace_period_seconds, preferred_termination_grace_period_seconds.as_ref());
    fill_word(&mut spec.architecture, preferred_architecture.as_ref());
    for (key, value) in annotations.iter().flatten() {
        let set = vmi.metadata.annotations.get_or_insert_default();
        set.entry(key.clone()).or_insert_with(|| value.clone());
    }
}

/// Gives the preferred storage class to data volumes that name none. They are made before any instance is.
pub fn storage_class(templates: &mut [DataVolumeTemplateSpec], preference: &VirtualMachinePreferenceSpec) {
    let Some(VolumePreferences { preferred_storage_class_name: class }) = &preference.volumes else { return };
    for template in templates {
        if let Some(pvc) = &mut template.spec.pvc {
            fill_word(&mut pvc.storage_class_name, class.as_ref());
        }
        if let Some(storage) = &mut template.spec.storage {
            fill_word(&mut storage.storage_class_name, class.as_ref());
        }
    }
}

fn add_cpu_features(cpu: &mut Option<CPU>, preferred: &[CPUFeature]) {
    within(cpu, |cpu| {
        for feature in preferred {
            let known = cpu.features.iter().flatten().any(|set| set.name == feature.name);
            if !known {
                cpu.features.get_or_insert_default().push(feature.clone());
            }
        }
    });
}

fn apply_firmware(firmware: &mut Firmware, preference: &FirmwarePreferences) {
    let FirmwarePreferences {
        preferred_efi,
        preferred_use_bios,
        preferred_use_bios_serial,
        preferred_use_efi,
        preferred_use_secure_boot,
    } = preference;
    within(&mut firmware.bootloader, |bootloader| {
        let open = bootloader.bios.is_none() && bootloader.efi.is_none();
        // The new field wins over the two that it replaced.
        let new = preferred_efi.is_some();
        if open && *preferred_use_bios == Some(true) {
            bootloader.bios = Some(Default::default());
        } else if open && new {
            bootloader.efi.clone_from(preferred_efi);
        } else if open && *preferred_use_efi == Some(true) {
            bootloader.efi = Some(Default::default());
        }
        if let Some(bios) = &mut bootloader.bios {
            fill(&mut bios.use_serial, preferred_use_bios_serial.as_ref());
        }
        if let Some(efi) = bootloader.efi.as_mut().filter(|_| !new) {
            fill(&mut efi.secure_boot, preferred_use_secure_boot.as_ref());
        }
    });
}

/// A field that is set if it is there.
fn fill<T: Clone>(slot: &mut Option<T>, value: Option<&T>) {
    if slot.is_none() {
        *slot = value.cloned();
    }
}

/// A text or word; an empty one is not set.
fn fill_word<T: Clone + fmt::Display>(slot: &mut Option<T>, value: Option<&T>) {
    if !says(slot.as_ref()) && says(value) {
        *slot = value.cloned();
    }
}

/// Fills in a part that may not be there yet, and leaves it out if nothing came of it.
fn within<T: Default + PartialEq>(slot: &mut Option<T>, change: impl FnOnce(&mut T)) {
    match slot {
        Some(part) => change(part),
        None => {
            let mut part = T::default();
            change(&mut part);
            if part != T::default() {
                *slot = Some(part);
            }
        }
    }
}
