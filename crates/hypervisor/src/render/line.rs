//! The arguments of QEMU.

use std::ffi::OsString;

use serde_json::json;

use super::console::{self, MONITOR_SOCKET, VNC_SOCKET};
use super::{device_parts, in_order};
use crate::accelerator::Accelerator;
use crate::guest::{Board, Boot, Clock, Cpu, Firmware, Guest, Identity, Kernel, Kind, Memory, WatchdogAction};
use crate::keyval::Keyval;
use crate::refusal::Refusals;
use crate::wiring::{self, Efi, Wiring};

/// Enough for a Linux guest's working set of translated code; QEMU's own choice is up to a gigabyte per guest.
const TRANSLATION_CACHE_MIB: u32 = 64;
const EFI_PATH: &str = "spec.domain.firmware.bootloader.efi";
const KERNEL_PATH: &str = "spec.domain.firmware.kernelBoot";

/// How to run QEMU for one guest. It starts paused and connects to the monitor socket, where the caller must listen.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CommandLine {
    /// The arguments, without the program.
    pub arguments: Vec<OsString>,
    /// Variables to set in its environment.
    pub environment: Vec<(String, String)>,
}

impl CommandLine {
    fn flag(&mut self, name: &str) {
        self.arguments.push(name.into());
    }

    /// An option whose value is fixed or was made safe.
    fn option(&mut self, name: &str, value: impl Into<OsString>) {
        self.arguments.push(name.into());
        self.arguments.push(value.into());
    }

    fn keyval(&mut self, name: &str, value: Keyval) {
        self.option(name, value.into_string());
    }
}

pub(super) fn line(refusals: &mut Refusals, guest: &Guest, wiring: &Wiring) -> CommandLine {
    let Guest { version: _, identity, board, cpu, memory, boot, clock, devices, minted: _ } = guest;
    let mut line = CommandLine::default();
    base(&mut line);
    if wiring.incoming {
        // From where is told later, when both sides are ready.
        line.option("-incoming", "defer");
    }
    add_identity(&mut line, identity);
    add_board(&mut line, board, boot, wiring.accelerator);
    add_cpu(&mut line, cpu);
    add_memory(&mut line, memory);
    add_boot(refusals, &mut line, boot, wiring);
    add_clock(&mut line, clock);
    // Every path below the guest's own directory was read as text by this.
    let _ = refusals.path("the runtime directory", &wiring.runtime);
    line.keyval(
        "-chardev",
        Keyval::of("socket").set("id", "monitor").set("path", console::path(wiring, MONITOR_SOCKET)),
    );
    line.option("-mon", "chardev=monitor,mode=control");
    for (id, device) in in_order(devices) {
        match &device.kind {
            Kind::Video(_) => {
                line.keyval("-vnc", Keyval::of(&format!("unix:{}", console::path(wiring, VNC_SOCKET))));
            }
            Kind::Watchdog(action) => line.option("-action", format!("watchdog={}", watchdog(*action))),
            _ => {}
        }
        for part in device_parts(refusals, guest, wiring, id, device).into_iter().flatten() {
            let (option, value) = part.argument();
            line.option(option, value);
        }
    }
    line
}

/// What every guest has: nothing that was not asked for, a sandbox, and no instruction run before it is told to.
fn base(line: &mut CommandLine) {
    line.flag("-nodefaults");
    line.flag("-no-user-config");
    line.option("-display", "none");
    line.option("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
    line.flag("-S");
}

fn add_identity(line: &mut CommandLine, identity: &Identity) {
    let Identity { name, uuid, system, chassis } = identity;
    line.keyval("-name", Keyval::default().set("guest", name).set("debug-threads", "on"));
    if let Some(uuid) = uuid {
        line.option("-uuid", uuid);
    }
    for (number, texts) in [("1", Some(system)), ("3", chassis.as_ref())] {
        let Some(texts) = texts else { continue };
        let table = Keyval::default().set("type", number);
        line.keyval("-smbios", texts.iter().fold(table, |table, (key, value)| table.set(key, value)));
    }
}

fn add_board(line: &mut CommandLine, board: &Board, boot: &Boot, accelerator: Accelerator) {
    let Board { type_, hpet, acpi, graphics, ends_on_reboot } = board;
    let mut machine = Keyval::of(type_).set("usb", "off").set("vmport", "off").set("dump-guest-core", "off");
    for (key, on) in [("hpet", hpet), ("acpi", acpi), ("graphics", graphics)] {
        if !on {
            machine = machine.set(key, "off");
        }
    }
    if boot.firmware == Firmware::Efi {
        machine = machine.set("pflash0", "efi-code").set("pflash1", "efi-variables");
    }
    line.keyval("-machine", machine);
    match accelerator {
        Accelerator::Kvm => line.option("-accel", "kvm"),
        Accelerator::Tcg => line.option("-accel", format!("tcg,thread=multi,tb-size={TRANSLATION_CACHE_MIB}")),
    }
    let reboot = if *ends_on_reboot { "shutdown" } else { "reset" };
    // A guest that has panicked ends; its event tells why before QEMU exits.
    line.option("-action", format!("reboot={reboot},shutdown=poweroff,panic=shutdown"));
}

fn add_cpu(line: &mut CommandLine, cpu: &Cpu) {
    let Cpu { model, features, sockets, most_sockets, cores, threads, found: _ } = cpu;
    let flags = features.iter().map(|(name, on)| format!("{name}={}", if *on { "on" } else { "off" }));
    line.option("-cpu", std::iter::once(model.clone()).chain(flags).collect::<Vec<_>>().join(","));
    let count = |sockets: u32| u64::from(sockets) * u64::from(*cores) * u64::from(*threads);
    let room = if most_sockets > sockets { format!(",maxcpus={}", count(*most_sockets)) } else { String::new() };
    // Sockets are those that there is room for; those that are filled follow from the count.
    line.option("-smp", format!("{}{room},sockets={most_sockets},cores={cores},threads={threads}", count(*sockets)));
}

fn add_memory(line: &mut CommandLine, memory: &Memory) {
    let Memory { bytes, most_bytes } = memory;
    let room = if most_bytes > bytes { format!(",maxmem={}k", most_bytes / 1024) } else { String::new() };
    line.option("-m", format!("size={}k{room}", bytes / 1024));
}

fn add_boot(refusals: &mut Refusals, line: &mut CommandLine, boot: &Boot, wiring: &Wiring) {
    let Boot { firmware, kernel, flash: _ } = boot;
    match (firmware, &wiring.efi) {
        (Firmware::Bios, _) => {}
        (Firmware::Efi, None) => {
            refusals.refuse(EFI_PATH, "this machine has no EFI firmware; install the package ovmf");
        }
        (Firmware::Efi, Some(Efi { code, variables })) => {
            for (node, path, read_only) in [("efi-code", code, true), ("efi-variables", variables, false)] {
                let Some(path) = refusals.path(EFI_PATH, path) else { continue };
                let file = json!({ "driver": "file", "filename": path });
                let flash = json!({ "node-name": node, "driver": "raw", "read-only": read_only, "file": file });
                line.option("-blockdev", flash.to_string());
            }
        }
    }
    if let Some(kernel) = kernel {
        add_kernel(refusals, line, kernel, wiring.kernel.as_ref());
    }
    // Only what has a boot order is tried, and nothing else is searched.
    line.option("-boot", "strict=on");
}

fn add_kernel(refusals: &mut Refusals, line: &mut CommandLine, kernel: &Kernel, files: Option<&wiring::Kernel>) {
    let Some(wiring::Kernel { kernel: file, initrd }) = files else {
        refusals.refuse(format!("{KERNEL_PATH}.container"), "its files are missing");
        return;
    };
    for (option, path) in [("-kernel", file), ("-initrd", initrd)] {
        if let Some(path) = path.as_deref().and_then(|path| refusals.path(KERNEL_PATH, path)) {
            line.option(option, path);
        }
    }
    if let Some(arguments) = &kernel.arguments {
        line.option("-append", arguments);
    }
}

fn add_clock(line: &mut CommandLine, clock: &Clock) {
    let Clock { zone, catches_up, goes_on } = clock;
    let mut rtc = Keyval::default().set("base", if zone.is_some() { "localtime" } else { "utc" });
    // QEMU's local time is that of its environment.
    line.environment.extend(zone.clone().map(|zone| ("TZ".to_owned(), zone)));
    if *catches_up {
        rtc = rtc.set("driftfix", "slew");
    }
    rtc = rtc.set_some("clock", goes_on.map(|goes_on| if goes_on { "host" } else { "vm" }));
    line.keyval("-rtc", rtc);
}

fn watchdog(action: WatchdogAction) -> &'static str {
    match action {
        WatchdogAction::Reset => "reset",
        WatchdogAction::Poweroff => "poweroff",
        WatchdogAction::Shutdown => "shutdown",
    }
}
