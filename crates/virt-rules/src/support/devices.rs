//! Devices other than disks and interfaces.

use api::devices::{
    Devices, Diag288Watchdog, I6300ESBWatchdog, Input, InputBus, InputType, PanicDevice, PanicDeviceModel, VideoDevice,
    Watchdog, WatchdogAction,
};

use super::instance::filled;
use super::sheet::Sheet;
use super::{disks, interfaces, order};

/// Instead of claims on devices that are allocated dynamically.
pub(super) const NO_CLAIMS: &str = "remove it; host devices cannot be passed through to guests";

pub(super) fn place(sheet: &mut Sheet<'_>, devices: &Devices) {
    let Devices {
        autoattach_graphics_device,
        autoattach_input_device,
        autoattach_mem_balloon,
        autoattach_pod_interface,
        autoattach_serial_console,
        autoattach_vsock,
        block_multi_queue,
        client_passthrough,
        disable_hotplug,
        disks: disks_of_it,
        downward_metrics,
        filesystems,
        gpus,
        host_devices,
        inputs,
        interfaces: interfaces_of_it,
        log_serial_console,
        network_interface_multiqueue,
        panic_devices,
        rng,
        sound,
        tpm,
        use_virtio_transitional,
        video,
        watchdog: watchdog_of_it,
    } = devices;
    sheet.works("autoattachGraphicsDevice", autoattach_graphics_device);
    sheet.works("autoattachInputDevice", autoattach_input_device);
    sheet.works("autoattachMemBalloon", autoattach_mem_balloon);
    sheet.works("autoattachPodInterface", autoattach_pod_interface);
    sheet.works("autoattachSerialConsole", autoattach_serial_console);
    let vsock = "remove it; use the guest's network or its serial console";
    sheet.unsupported("autoattachVSOCK", vsock, *autoattach_vsock == Some(true));
    sheet.not_acted_on(
        "blockMultiQueue",
        "QEMU chooses the number of queues of a disk; only the speed differs",
        block_multi_queue,
    );
    sheet.unsupported("clientPassthrough", "remove it", client_passthrough.is_some());
    sheet.works("disableHotplug", disable_hotplug);
    sheet.each("disks", disks_of_it.as_ref(), disks::place);
    sheet.unsupported("downwardMetrics", disks::NO_METRICS, downward_metrics.is_some());
    sheet.unsupported("filesystems", "attach the volume as a disk", filled(filesystems.as_ref()));
    sheet.unsupported("gpus", NO_CLAIMS, filled(gpus.as_ref()));
    sheet.unsupported("hostDevices", NO_CLAIMS, filled(host_devices.as_ref()));
    sheet.each("inputs", inputs.as_ref(), input);
    sheet.each("interfaces", interfaces_of_it.as_ref(), interfaces::place);
    sheet.works("logSerialConsole", log_serial_console);
    let one = "remove it; an interface has one queue";
    sheet.unsupported("networkInterfaceMultiqueue", one, *network_interface_multiqueue == Some(true));
    sheet.each("panicDevices", panic_devices.as_ref(), panic);
    sheet.works("rng", rng);
    sheet.unsupported("sound", "remove it; guests have no sound device", sound.is_some());
    let wanted = tpm.as_ref().is_some_and(|tpm| tpm.enabled != Some(false));
    sheet.unsupported("tpm", "remove it, or set enabled to false to override a preference", wanted);
    let modern = "remove it; virtio devices have version 1";
    sheet.unsupported("useVirtioTransitional", modern, *use_virtio_transitional == Some(true));
    sheet.part("video", video.as_ref(), |sheet, VideoDevice { type_ }| {
        sheet.words("type", type_.as_deref(), &["vga", "bochs", "virtio", "cirrus"]);
    });
    if video.is_some() && *autoattach_graphics_device == Some(false) {
        sheet.refuse("video", "there is no graphics device because autoattachGraphicsDevice is false; remove one");
    }
    sheet.part("watchdog", watchdog_of_it.as_ref(), watchdog);
    order::check(sheet, devices);
}

fn input(sheet: &mut Sheet<'_>, input: &Input) {
    let Input { name, type_, bus } = input;
    sheet.works("name", name);
    sheet.words("type", Some(type_.as_str()), InputType::KNOWN);
    sheet.words("bus", bus.as_ref().map(InputBus::as_str), InputBus::KNOWN);
}

fn panic(sheet: &mut Sheet<'_>, device: &PanicDevice) {
    let PanicDevice { model } = device;
    sheet.words("model", model.as_ref().map(PanicDeviceModel::as_str), &["isa", "pvpanic"]);
}

fn watchdog(sheet: &mut Sheet<'_>, watchdog: &Watchdog) {
    let Watchdog { name, diag288, i6300esb } = watchdog;
    sheet.works("name", name);
    let other = diag288.as_ref().is_some_and(|Diag288Watchdog { action: _ }| true);
    sheet.unsupported("diag288", "use i6300esb, the watchdog of amd64", other);
    sheet.part("i6300esb", i6300esb.as_ref(), |sheet, I6300ESBWatchdog { action }| {
        sheet.words("action", action.as_ref().map(WatchdogAction::as_str), WatchdogAction::KNOWN);
    });
    if i6300esb.is_none() {
        sheet.refuse("i6300esb", "is required; it is the only watchdog of amd64");
    }
}
