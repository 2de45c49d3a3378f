//! Everything is killed, at any moment, again and again: VMs come back, and no disk ever has two writers.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use api::vm::VirtualMachine;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;

use super::Test;
use super::guests::{add_volume, bare};
use super::storing::claim;
use super::test_host::processes::{command_line, kill};
use super::test_host::{TestHost, qemus};

pub(crate) const TESTS: &[(&str, Test)] = &[("vms_survive_kills", vms_survive_kills)];

/// How many processes are killed, as many of each kind; `make soak` kills more. `ORLOP_KILL_SEED` chooses which and when.
const KILLS: usize = 12;
/// How often one is looked for until it is there to be killed: between two lives there is none.
const LOOKS: usize = 500;
const VMS: [&str; 3] = ["a", "b", "c"];
/// The longest pause before a kill: anything between nothing and a whole start.
const LONGEST: u64 = 1500;

/// What is killed.
#[derive(Clone, Copy, Debug)]
enum Victim {
    /// QEMU itself.
    Qemu,
    /// The launcher, first process of its container.
    Launcher,
    /// The pod's shim.
    Shim,
    /// API server, controllers, node agent and virt-handler: they are one process.
    Up,
}

fn vms_survive_kills() -> Result<()> {
    let seed = testkit::soak::seed("ORLOP_KILL_SEED");
    let mut chance = StdRng::seed_from_u64(seed);
    let mut machine = TestHost::up()?;
    for name in VMS {
        machine.create::<k8s_openapi::api::core::v1::PersistentVolumeClaim>(claim(name, "16Mi"))?;
        let mut vm = bare(name, "Always");
        add_volume(&mut vm, "data", "persistentVolumeClaim", json!({ "claimName": name }))?;
        machine.create::<VirtualMachine>(vm)?;
    }
    for name in VMS {
        machine.phase(name, Phase::Running, None)?;
    }
    let witness = Witness::start();
    let mut victims = Vec::new();
    for number in 0..testkit::soak::rounds(KILLS) {
        if victims.is_empty() {
            victims = vec![Victim::Qemu, Victim::Launcher, Victim::Shim, Victim::Up];
        }
        let victim = victims.swap_remove(chance.random_range(0..victims.len()));
        let of = |name: &str| format!("kill {number} of seed {seed}: {victim:?} of {name}");
        let mut looks = 0;
        loop {
            let name = VMS[chance.random_range(0..VMS.len())];
            std::thread::sleep(Duration::from_millis(chance.random_range(0..LONGEST)));
            let is_killed = strike(&mut machine, victim, name).with_context(|| of(name))?;
            witness.check().with_context(|| of(name))?;
            if is_killed {
                break;
            }
            looks += 1;
            ensure!(looks < LOOKS, "{}: there is none any more", of(name));
        }
    }
    for name in VMS {
        // What was killed last may not have been noticed yet: then a status is that of before.
        testkit::waiting::until("a guest runs on its disk, and locks it", || {
            let [pid] = qemus(name)[..] else { return false };
            matches!(disks(pid)[..], [Disk { is_locked: true, .. }])
        });
        let told = |vm: Option<&VirtualMachine>| {
            let status = vm.and_then(|vm| vm.status.as_ref());
            status.is_some_and(|status| status.ready == Some(true))
        };
        machine.wait::<VirtualMachine>(name, "ready", told)?;
        machine.phase(name, Phase::Running, None)?;
    }
    witness.check()
}

/// Kills a process, unless there is none at this moment; tells whether it did.
fn strike(machine: &mut TestHost, victim: Victim, name: &str) -> Result<bool> {
    let qemu = qemus(name).first().copied();
    let pid = match victim {
        Victim::Up => {
            machine.kill()?;
            return machine.start().map(|()| true);
        }
        Victim::Qemu => qemu,
        Victim::Launcher => qemu.and_then(parent),
        Victim::Shim => qemu.and_then(parent).and_then(parent),
    };
    let Some(pid) = pid.filter(|pid| *pid > 1) else { return Ok(false) };
    let words = command_line(pid);
    match victim {
        // A process that ends has none.
        _ if words.is_empty() => return Ok(false),
        Victim::Shim => ensure!(words.contains(" shim "), "{words} is no shim"),
        Victim::Launcher => ensure!(words.contains("virt-launcher"), "{words} is no launcher"),
        Victim::Qemu | Victim::Up => {}
    }
    // It may have ended by itself just now.
    if kill(pid).is_err() {
        return Ok(false);
    }
    testkit::waiting::until("a killed process ends", || command_line(pid) != words);
    Ok(true)
}

fn parent(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// Looks at all QEMU processes all the time, and at the files that they have open for writing.
struct Witness {
    seen: Arc<std::sync::Mutex<Option<String>>>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Witness {
    fn start() -> Self {
        let (seen, stop) = (Arc::new(std::sync::Mutex::new(None)), Arc::new(AtomicBool::new(false)));
        let (told, asked) = (seen.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            while !asked.load(Ordering::Relaxed) {
                if let Some(problem) = two_writers() {
                    *told.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(problem);
                    return;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Self { seen, stop, thread: Some(thread) }
    }

    fn check(&self) -> Result<()> {
        match &*self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner) {
            Some(problem) => bail!("{problem}"),
            None => Ok(()),
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Two processes that have the same disk open for writing, or locked.
fn two_writers() -> Option<String> {
    let mut writers: BTreeMap<(u64, u64), Vec<u32>> = BTreeMap::new();
    for name in VMS {
        for pid in qemus(name) {
            for disk in disks(pid) {
                writers.entry(disk.file).or_default().push(pid);
            }
        }
    }
    writers.into_iter().find(|(_, pids)| pids.len() > 1).map(|(file, pids)| format!("{file:?} is open in {pids:?}"))
}

/// A disk that a process can write, or keeps others from writing.
#[derive(Debug)]
struct Disk {
    /// Its device and inode.
    file: (u64, u64),
    is_locked: bool,
}

fn disks(pid: u32) -> Vec<Disk> {
    let folder = Path::new("/proc").join(pid.to_string());
    let entries = std::fs::read_dir(folder.join("fd")).into_iter().flatten().flatten();
    let opened = entries.filter_map(|entry| {
        let metadata = std::fs::metadata(entry.path()).ok().filter(std::fs::Metadata::is_file)?;
        let name = std::fs::read_link(entry.path()).ok()?;
        let info = std::fs::read_to_string(folder.join("fdinfo").join(entry.file_name())).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?.trim().to_owned();
        let is_writable = u32::from_str_radix(&flags, 8).ok()? & 0o3 != 0;
        // QEMU locks a byte for each thing that it does with an image, and for each that others may not.
        let is_locked = info.lines().any(|line| line.starts_with("lock:") && line.contains("OFDLCK"));
        (name.ends_with("disk.img") && (is_writable || is_locked))
            .then(|| ((metadata.dev(), metadata.ino()), is_locked))
    });
    // It opens one several times.
    let mut found: BTreeMap<(u64, u64), bool> = BTreeMap::new();
    for (file, is_locked) in opened {
        *found.entry(file).or_default() |= is_locked;
    }
    found.into_iter().map(|(file, is_locked)| Disk { file, is_locked }).collect()
}
