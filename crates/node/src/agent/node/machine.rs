//! What this machine is and has.

use std::fs;
use std::num::NonZeroU32;
use std::path::Path;

use api::quantity::Amount;

use super::Amounts;

/// The most pods of one node.
const PODS: i64 = 500;
/// Below this much free memory, in bytes, there is pressure.
const LOW_MEMORY: u64 = 100 << 20;
/// Below this share of the disk, in percent, there is pressure.
const LOW_DISK: u64 = 10;
/// However large the disk is, this many free bytes are enough.
const ENOUGH_DISK: u64 = 5 << 30;
/// Above this share of possible processes, in percent, there is pressure.
const MANY_PROCESSES: u64 = 90;

/// What does not change while it runs.
#[derive(Clone, Debug, Default)]
pub(in crate::agent) struct Machine {
    pub(in crate::agent) memory: u64,
    pub(in crate::agent) boot_id: String,
    pub(in crate::agent) capacity: Amounts,
    pub(in crate::agent) allocatable: Amounts,
    pub(super) machine_id: String,
    pub(super) system_uuid: String,
    pub(super) kernel: String,
    pub(super) os: String,
}

/// What is short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pressure {
    pub(super) memory: bool,
    pub(super) disk: bool,
    pub(super) processes: bool,
}

impl Machine {
    /// Looks at the machine; `root` is where pods keep their files. Of `nodes` on one machine, each offers its equal share.
    pub(in crate::agent) fn read(root: &Path, reserved_memory: u64, nodes: NonZeroU32) -> Self {
        let share = u64::from(nodes.get());
        let memory = meminfo(&text("/proc/meminfo"), "MemTotal").unwrap_or(0) / share;
        // What is kept back is rounded up: shares must not add up to more than the whole.
        let reserved_memory = reserved_memory.div_ceil(share);
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let millis = i64::try_from(cpus).unwrap_or(1).saturating_mul(1000) / i64::from(nodes.get());
        let disk = room(root).map_or(0, |(total, _)| total) / share;
        let amounts = |memory: u64, disk: u64| -> Amounts {
            [
                ("cpu".to_owned(), Amount::milli(millis)),
                ("memory".to_owned(), Amount::bytes(memory)),
                ("ephemeral-storage".to_owned(), Amount::bytes(disk)),
                ("pods".to_owned(), Amount::from(PODS)),
            ]
            .into()
        };
        let machine_id = text("/etc/machine-id");
        let uuid = text("/sys/class/dmi/id/product_uuid");
        Self {
            memory,
            boot_id: text("/proc/sys/kernel/random/boot_id"),
            capacity: amounts(memory, disk),
            // What the last tenth of the disk is for, a kubelet keeps back, too.
            allocatable: amounts(memory.saturating_sub(reserved_memory), disk / 10 * 9),
            system_uuid: if uuid.is_empty() { machine_id.clone() } else { uuid },
            machine_id,
            kernel: text("/proc/sys/kernel/osrelease"),
            os: pretty_name(&text("/etc/os-release")),
        }
    }

    pub(super) fn pressure(&self, root: &Path) -> Pressure {
        let available = meminfo(&text("/proc/meminfo"), "MemAvailable");
        let number = |path: &str| text(path).parse::<u64>().ok();
        let processes = text("/proc/loadavg").split(['/', ' ']).nth(4).and_then(|count| count.parse::<u64>().ok());
        let most = number("/proc/sys/kernel/pid_max");
        Pressure {
            memory: available.is_some_and(|available| available < LOW_MEMORY),
            disk: room(root).is_some_and(|(total, free)| is_short(total, free)),
            processes: processes
                .zip(most)
                .is_some_and(|(count, most)| count.saturating_mul(100) > most.saturating_mul(MANY_PROCESSES)),
        }
    }
}

/// A kubelet wants a tenth of any disk; of a large one that is more than a machine needs to stay well.
fn is_short(total: u64, free: u64) -> bool {
    free < (total / 100).saturating_mul(LOW_DISK).min(ENOUGH_DISK)
}

/// All bytes of the file system, and those that are free for everybody.
pub(super) fn room(path: &Path) -> Option<(u64, u64)> {
    let existing = path.ancestors().find(|path| path.exists())?;
    let stat = rustix::fs::statvfs(existing).ok()?;
    Some((stat.f_blocks.saturating_mul(stat.f_frsize), stat.f_bavail.saturating_mul(stat.f_frsize)))
}

/// What is not there says nothing.
fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn meminfo(table: &str, name: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

fn pretty_name(release: &str) -> String {
    let line = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    line.unwrap_or("Linux").trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_tells_what_it_has() {
        let machine = Machine::read(Path::new("/not/there/yet"), 1 << 20, NonZeroU32::MIN);
        assert!(machine.memory > 1 << 20 && !machine.boot_id.is_empty() && !machine.kernel.is_empty());
        assert!(machine.allocatable["memory"] < machine.capacity["memory"]);
        assert!(!machine.capacity["ephemeral-storage"].is_zero());
    }

    #[test]
    fn nodes_of_one_machine_never_offer_more_than_it_has() {
        let read = |nodes| Machine::read(Path::new("/not/there/yet"), 1 << 20, NonZeroU32::new(nodes).unwrap());
        let (whole, third) = (read(1), read(3));
        for name in ["cpu", "memory", "ephemeral-storage"] {
            for (whole, third) in [(&whole.capacity, &third.capacity), (&whole.allocatable, &third.allocatable)] {
                let three = third[name] + third[name] + third[name];
                assert!(!third[name].is_zero() && three <= whole[name], "{name}: {three} of {}", whole[name]);
            }
        }
    }

    #[test]
    fn a_disk_is_short_of_a_tenth_or_of_what_is_enough_for_any() {
        const GB: u64 = 1 << 30;
        assert!(is_short(20 * GB, GB) && !is_short(20 * GB, 3 * GB));
        assert!(is_short(4000 * GB, 4 * GB) && !is_short(4000 * GB, 6 * GB));
    }

    #[test]
    fn tables_of_the_kernel_are_read() {
        assert_eq!(meminfo("MemTotal:  2 kB\nMemAvailable: 1 kB\n", "MemAvailable"), Some(1024));
        assert_eq!(meminfo("MemTotalX: 2 kB\n", "MemTotal"), None);
        assert_eq!(pretty_name("NAME=x\nPRETTY_NAME=\"Debian 12\"\n"), "Debian 12");
    }
}
