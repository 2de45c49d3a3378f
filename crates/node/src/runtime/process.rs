//! Processes, never mistaken for others of the same number.

use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A process, told from a later one of the same number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    /// When it was started, in ticks since the machine was.
    started: u64,
    /// Which start of the machine.
    boot: String,
}

impl Process {
    /// The calling process.
    pub(crate) fn own() -> io::Result<Self> {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        Ok(Self { pid, started: started(pid)?, boot: boot()? })
    }

    /// The process, held: none if it has ended, whoever has its number now.
    pub(crate) fn open(&self) -> Option<OwnedFd> {
        let process = pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::empty()).ok()?;
        // Only now: what is held keeps its number.
        let is_same = started(self.pid).ok()? == self.started && boot().ok()? == self.boot;
        is_same.then_some(process)
    }
}

/// A process whose end can be awaited: it becomes readable then.
#[expect(unsafe_code, reason = "the only way to await a descriptor that tokio has no type for")]
pub(crate) fn awaitable(process: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned descriptor stays open and the same until it is dropped, which it is with what it is put in.
    unsafe { AsyncFd::register_with_interest(process, Interest::READABLE) }.map_err(|error| error.into_parts().1)
}

/// A name that every start of a machine has for itself.
fn boot() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// From `/proc/PID/stat`; what has ended and is not yet buried counts as gone.
fn started(pid: i32) -> io::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    parse_started(&text).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// The program's name stands in parentheses and may hold anything, so that fields are counted behind it.
fn parse_started(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_from_a_later_one_of_the_same_number() {
        let own = Process::own().unwrap();
        assert!(own.open().is_some());
        assert!(Process { started: own.started + 1, ..own.clone() }.open().is_none());
        assert!(Process { boot: "another".to_owned(), ..own }.open().is_none());
    }

    #[test]
    fn the_name_of_a_program_does_not_confuse() {
        let rest = "S 1 ".to_owned() + &"0 ".repeat(17) + "77 0";
        assert_eq!(parse_started(&format!("5 (a) b (c)) {rest}")), Some(77));
        assert_eq!(parse_started(&format!("5 (a) {}", rest.replace('S', "Z"))), None);
    }
}
