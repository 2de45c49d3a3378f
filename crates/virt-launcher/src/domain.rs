//! The domain: the guest's state as the launcher publishes it.

use std::fmt;

/// A guest at one moment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Domain {
    /// Grows by one with every change; a reader can tell what it has seen.
    pub sequence: u64,
    /// Where it is in its life.
    pub state: State,
    /// A guest agent has opened its channel.
    pub agent_connected: bool,
    /// How often the guest was reset since it started.
    pub resets: u64,
    /// What is wrong with the disk for which it was stopped, in words; empty while it runs.
    pub io_error: String,
    /// Its way to another launcher, the last if there were several.
    pub migration: Option<Migration>,
}

impl Domain {
    /// A guest that is being started.
    #[must_use]
    pub fn starting() -> Self {
        let state = State::Starting;
        Self { sequence: 0, state, agent_connected: false, resets: 0, io_error: String::new(), migration: None }
    }
}

/// A guest's way to another launcher, as the launcher that it leaves sees it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Migration {
    /// The UID of the migration.
    pub to: String,
    pub course: Course,
    /// How it is to be on the other side, if it is not to run: it was paused when it left.
    pub paused: Option<Pause>,
    pub progress: Progress,
}

/// How far a guest is on its way.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Course {
    /// Its disks and memory are being copied, and it runs on here.
    UnderWay,
    /// It is stopped, and the last of it is being sent. Whether all of it arrives, QEMU will tell.
    Parted,
    /// The same, and the connection broke: whether the other side has all of it, only the other side knows.
    Cut,
    /// It was promised to the other launcher.
    Given,
    /// It stays here.
    Stayed { why: String },
}

/// How much was copied.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Progress {
    /// Bytes of memory that were sent.
    pub sent: u64,
    /// Bytes of memory that are still to be sent.
    pub remaining: u64,
    /// All of it.
    pub total: u64,
}

/// Where a guest is in its life.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum State {
    /// QEMU is being started.
    Starting,
    /// The vCPUs run.
    Running,
    /// The vCPUs are stopped.
    Paused(Pause),
    /// QEMU waits for the guest's state.
    Awaiting,
    /// The guest's state has come; the launcher that it came from may still let it run.
    Loaded,
    /// The guest's state has gone to another launcher.
    Left,
    /// The guest was asked to power off, and will be killed if it does not.
    Stopping,
    /// QEMU is gone.
    Ended(End),
}

/// Why the vCPUs are stopped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pause {
    /// Somebody asked for it.
    ByUser,
    /// A disk failed, or is full.
    IoError,
    /// QEMU did it by itself.
    ByQemu,
    /// Its migration would not come to an end otherwise. It goes on where it ends up.
    ForMigration,
}

/// How a guest came to its end.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum End {
    /// The guest powered itself off, asked to or not.
    PoweredOff,
    /// The guest rebooted, and its policy says that this is the end.
    Rebooted,
    /// The guest's kernel panicked.
    Panicked,
    /// It was killed on request, or because its grace period was over.
    Killed,
    /// Something outside killed QEMU.
    KilledFromOutside,
    /// The kernel killed QEMU because memory ran out.
    OutOfMemory,
    /// QEMU itself crashed.
    Crashed {
        /// The signal that ended it.
        signal: i32,
        /// What it said last.
        words: String,
    },
    /// QEMU stopped the guest for good, by an error that is not the guest's.
    InternalError {
        /// It happened under KVM and soon after the start: such a KVM is not to be trusted with the next guest.
        kvm_is_suspect: bool,
        /// What QEMU said last.
        words: String,
    },
    /// It lives on in another launcher.
    Moved,
    /// It ended here when it was stopped and on its way: the other launcher may have all of it.
    OnTheWay {
        /// What QEMU said last.
        words: String,
    },
    /// It never came: it lives on where it was.
    NotTaken {
        /// What QEMU said last.
        words: String,
    },
    /// QEMU did not start.
    FailedToStart {
        /// In its own words.
        words: String,
    },
}

impl End {
    /// Whether the guest ended as it should.
    #[must_use]
    pub fn is_success(&self) -> bool {
        matches!(self, Self::PoweredOff | Self::Rebooted | Self::Moved)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PoweredOff => f.write_str("the guest powered off"),
            Self::Rebooted => f.write_str("the guest rebooted, and its reboot policy is to end"),
            Self::Panicked => f.write_str("the guest's kernel panicked"),
            Self::Killed => f.write_str("the guest was killed"),
            Self::KilledFromOutside => f.write_str("QEMU was killed by another process"),
            Self::OutOfMemory => f.write_str("QEMU was killed because it ran out of memory"),
            Self::Crashed { signal, words } if words.is_empty() => write!(f, "QEMU crashed with signal {signal}"),
            Self::Crashed { signal, words } => write!(f, "QEMU crashed with signal {signal}: {words}"),
            Self::InternalError { kvm_is_suspect: true, words } => {
                f.write_str("KVM stopped the guest soon after its start")?;
                tell(f, words)?;
                f.write_str(
                    ". KVM is tested again before the next start; if it fails again, fix the machine's KVM, or run guests \
                     without it (--accelerator tcg)",
                )
            }
            Self::InternalError { kvm_is_suspect: false, words } => {
                f.write_str("QEMU stopped the guest after an internal error")?;
                tell(f, words)
            }
            Self::Moved => f.write_str("the guest moved to another launcher"),
            Self::OnTheWay { words } => {
                f.write_str("QEMU ended while the guest was on its way to another launcher")?;
                tell(f, words)
            }
            Self::NotTaken { words } => {
                f.write_str("the guest did not arrive from the other launcher")?;
                tell(f, words)
            }
            Self::FailedToStart { words } if words.is_empty() => f.write_str("QEMU did not start and gave no reason"),
            Self::FailedToStart { words } => write!(f, "QEMU did not start: {words}"),
        }
    }
}

/// The first line of what QEMU said, if it said anything; the rest are the guest's registers.
fn tell(f: &mut fmt::Formatter<'_>, words: &str) -> fmt::Result {
    match words.lines().find(|line| !line.contains("warning:") && !line.trim().is_empty()) {
        Some(first) => write!(f, " ({})", first.trim()),
        None => Ok(()),
    }
}

/// How QEMU ended, and what was known by then.
#[derive(Clone, Debug)]
pub struct Exit {
    /// The code it returned, if it did.
    pub code: Option<i32>,
    /// The signal that killed it, if one did.
    pub signal: Option<i32>,
    /// The end of what it wrote to standard error.
    pub words: String,
    /// The kernel counted an out-of-memory kill in this launcher's group.
    pub out_of_memory: bool,
}

/// SIGKILL: what the launcher, the kernel and everyone else in a hurry send.
const KILL: i32 = 9;

/// Tells how a guest ended.
///
/// `told` is what QEMU said in its last SHUTDOWN event, `killed` whether the launcher killed it, `started` whether the
/// guest ever ran.
#[must_use]
pub fn end_of(exit: &Exit, told: Option<&str>, killed: bool, started: bool) -> End {
    match (told, exit.signal) {
        (Some("guest-panic"), _) => End::Panicked,
        (Some("guest-reset"), _) => End::Rebooted,
        (Some("guest-shutdown"), _) => End::PoweredOff,
        _ if killed => End::Killed,
        (_, Some(KILL)) if exit.out_of_memory => End::OutOfMemory,
        (_, Some(KILL)) => End::KilledFromOutside,
        // SIGTERM, SIGINT or SIGHUP, or a `quit` by someone on the monitor: QEMU says so and exits cleanly.
        (Some("host-signal" | "host-qmp-quit" | "host-ui"), _) => End::KilledFromOutside,
        (_, Some(signal)) => End::Crashed { signal, words: exit.words.clone() },
        _ if !started => End::FailedToStart { words: exit.words.clone() },
        _ if exit.code == Some(0) => End::PoweredOff,
        _ => End::Crashed { signal: 0, words: exit.words.clone() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(code: Option<i32>, signal: Option<i32>) -> Exit {
        Exit { code, signal, words: "words".into(), out_of_memory: false }
    }

    #[test]
    fn what_qemu_told_goes_before_how_it_exited() {
        let clean = exit(Some(0), None);
        assert_eq!(end_of(&clean, Some("guest-shutdown"), false, true), End::PoweredOff);
        assert_eq!(end_of(&clean, Some("guest-reset"), false, true), End::Rebooted);
        assert_eq!(end_of(&clean, Some("guest-panic"), false, true), End::Panicked);
    }

    #[test]
    fn a_guest_that_powered_off_in_time_was_not_killed() {
        assert_eq!(end_of(&exit(None, Some(9)), Some("guest-shutdown"), true, true), End::PoweredOff);
        assert_eq!(end_of(&exit(None, Some(9)), None, true, true), End::Killed);
    }

    #[test]
    fn a_kill_that_was_not_ours_is_told_apart() {
        assert_eq!(end_of(&exit(None, Some(9)), None, false, true), End::KilledFromOutside);
        assert_eq!(end_of(&exit(Some(0), None), Some("host-signal"), false, true), End::KilledFromOutside);
        let out_of_memory = Exit { out_of_memory: true, ..exit(None, Some(9)) };
        assert_eq!(end_of(&out_of_memory, None, false, true), End::OutOfMemory);
    }

    #[test]
    fn a_qemu_that_never_ran_the_guest_failed_to_start() {
        assert_eq!(end_of(&exit(Some(1), None), None, false, false), End::FailedToStart { words: "words".into() });
    }

    #[test]
    fn a_crash_names_its_signal() {
        assert_eq!(end_of(&exit(None, Some(6)), None, false, true), End::Crashed { signal: 6, words: "words".into() });
    }
}
