//! What `orlop up` and the programs of a VM hold.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::guests::{Instances, empty};
use super::machine::Machine;

/// After so long without anything to do, memory is what it stays: what is free has been given back.
pub(super) const QUIET: Duration = Duration::from_secs(8);
/// VMs that the growth per VM is taken from.
const SOME: u64 = 4;

/// Resident memory in KiB, by the kernel's account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// All.
    pub resident: u64,
    /// What is its own: heap, stacks, changed data.
    pub anonymous: u64,
    /// What is of files, mostly the program itself: shared by all processes that run it.
    pub of_files: u64,
}

impl Memory {
    /// Of a process; nothing if it is gone.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        Self::read(&std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default())
    }

    fn read(status: &str) -> Self {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
        };
        Self { resident: field("VmRSS:"), anonymous: field("RssAnon:"), of_files: field("RssFile:") }
    }

    fn figure(self, name: &str) -> Value {
        let Self { resident, anonymous, of_files } = self;
        json!({ "figure": name, "kib": resident, "anonymous": anonymous, "of files": of_files })
    }
}

/// The processes of a VM.
#[derive(Clone, Copy, Debug)]
pub struct Processes {
    /// Of its pod.
    pub shim: u32,
    /// Its first.
    pub launcher: u32,
    /// QEMU.
    pub guest: u32,
}

/// The processes of a VM of this machine.
///
/// # Errors
/// When one of them is not there.
pub fn of_pod(machine: &Machine, name: &str) -> Result<Processes> {
    let processes = processes();
    let shims = machine.data().join("shims").display().to_string();
    let named = format!("guest=default_{name},");
    let guests = processes.iter().filter(|one| one.line.contains(&named) && one.line.contains("qemu-system"));
    for guest in guests {
        let parent = |pid: u32| processes.iter().find(|one| one.pid == pid);
        let Some(launcher) = parent(guest.parent) else { continue };
        let Some(shim) = parent(launcher.parent).filter(|shim| shim.line.contains(&shims)) else { continue };
        return Ok(Processes { shim: shim.pid, launcher: launcher.pid, guest: guest.pid });
    }
    None.with_context(|| format!("{name} has no QEMU"))
}

struct Process {
    pid: u32,
    parent: u32,
    line: String,
}

fn processes() -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let all = pids.filter_map(|pid| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()?;
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        Some(Process { pid, parent, line: String::from_utf8_lossy(&line).replace('\0', " ") })
    });
    all.collect()
}

/// Figures of memory: of `orlop up` without and with VMs, and of what each VM has around it.
///
/// # Errors
/// When a VM does not run.
pub async fn measure(machine: &Machine, tell: &mut dyn FnMut(Value)) -> Result<()> {
    sleep(QUIET).await;
    let idle = Memory::of(machine.pid());
    let mut figure = idle.figure("resident memory of orlop up, idle");
    figure["budget"] = json!(60 << 10);
    tell(figure);
    let mut instances = Instances::watch(machine.client());
    instances.create(&empty("cost0", "64Mi")).await?;
    instances.running("cost0").await?;
    sleep(QUIET).await;
    let one = Memory::of(machine.pid());
    tell(one.figure("resident memory of orlop up, one VM"));
    let Processes { shim, launcher, .. } = of_pod(machine, "cost0")?;
    let (shim, launcher) = (Memory::of(shim), Memory::of(launcher));
    tell(shim.figure("resident memory of a shim"));
    let mut figure = launcher.figure("resident memory of a launcher");
    figure["budget"] = json!(10 << 10);
    tell(figure);
    let names: Vec<String> = (1..=SOME).map(|number| format!("cost{number}")).collect();
    instances.start_all(names.iter().map(|name| empty(name, "64Mi")).collect()).await?;
    sleep(QUIET).await;
    let growth = Memory::of(machine.pid()).anonymous.saturating_sub(one.anonymous) / SOME;
    let own = shim.anonymous + launcher.anonymous + growth;
    let what = "memory of a VM beyond its guest: shim, launcher and growth of orlop up";
    tell(json!({ "figure": what, "kib": own, "growth": growth }));
    for name in names.iter().map(String::as_str).chain(["cost0"]) {
        instances.delete(name).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_what_the_kernel_tells() {
        let status = "VmRSS:\t   300 kB\nRssAnon:\t   200 kB\nRssFile:\t   100 kB\nRssShmem:\t 0 kB\n";
        assert_eq!(Memory::read(status), Memory { resident: 300, anonymous: 200, of_files: 100 });
        assert!(Memory::of(std::process::id()).anonymous > 0);
    }
}
