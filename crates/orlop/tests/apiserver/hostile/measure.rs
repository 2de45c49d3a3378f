//! What a process has used, told by the kernel, and whether that is too much.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// What was used between two looks, while others asked so many things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    /// Time of all CPUs together. A busy machine makes a process wait, not compute.
    pub(super) cpu: Duration,
    /// Bytes beyond those that were resident at the first look, at the worst moment.
    pub(super) memory: u64,
    /// The most CPU time between two answers to others: who works on one request and leaves others waiting shows here.
    pub(super) stall: Duration,
    /// How many requests of others were answered.
    pub(super) answered: usize,
}

/// How much more than an honest request of its size another may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// As many times the CPU time, and so much more.
    pub(super) cpu: (u32, Duration),
    /// The same of bytes.
    pub(super) memory: (u64, u64),
}

/// Honest bodies differ among themselves: a number weighs more per byte than a text, a patch is worked on twice, a definition is
/// compiled. What is quadratic, or repeats a body for each of its parts, is hundreds of times as expensive. Measured on what is
/// sent here, the most was twelve times the CPU time (of 0.2 s) and five times the memory (of 11 MB), in a build without
/// optimisation. The floors are for small bodies, which cost nothing that could be multiplied; they are far above what connections,
/// allocators and caches that fill make of chance.
pub(super) const USUAL: Limits = Limits { cpu: (10, Duration::from_secs(5)), memory: (4, 64 << 20) };

/// Compares with what was used for an honest request of the same size.
///
/// # Errors
/// What is too much.
pub(super) fn judge(limits: Limits, honest: Usage, other: Usage) -> Result<(), Box<Excess>> {
    let cpu = honest.cpu * limits.cpu.0 + limits.cpu.1;
    let memory = honest.memory * limits.memory.0 + limits.memory.1;
    // What one request may use, others may have to wait for, and no longer.
    let most = Usage { cpu, memory, stall: cpu, answered: honest.answered };
    let fits = other.cpu <= most.cpu
        && other.memory <= most.memory
        && other.stall <= most.stall
        && other.answered >= most.answered;
    if fits { Ok(()) } else { Err(Box::new(Excess { honest, most, other })) }
}

/// More was used than may be.
#[derive(Debug)]
pub(super) struct Excess {
    honest: Usage,
    most: Usage,
    other: Usage,
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it used {:?}, more than {:?}; an honest one used {:?}", self.other, self.most, self.honest)
    }
}

/// Milliseconds of a tick: what programs are told is in hundredths of a second, whatever the kernel counts in.
const TICK: u64 = 10;

/// Looks at a process.
pub(super) struct Meter {
    process: PathBuf,
    cpu: Duration,
    resident: u64,
    /// At the last answer to others.
    last: Duration,
    stall: Duration,
    answered: usize,
}

impl Meter {
    /// Begins to count.
    pub(super) fn begin(pid: u32) -> Self {
        let process = PathBuf::from(format!("/proc/{pid}"));
        // From here on the largest size is that since now: `man 5 proc_pid_clear_refs`.
        std::fs::write(process.join("clear_refs"), "5").unwrap();
        let (cpu, resident) = (cpu(&process), memory(&process, "VmRSS"));
        Self { process, cpu, resident, last: cpu, stall: Duration::ZERO, answered: 0 }
    }

    /// Somebody else was answered.
    pub(super) fn answered(&mut self) {
        let now = cpu(&self.process);
        self.stall = self.stall.max(now.saturating_sub(self.last));
        (self.last, self.answered) = (now, self.answered + 1);
    }

    pub(super) fn end(self) -> Usage {
        Usage {
            cpu: cpu(&self.process).saturating_sub(self.cpu),
            memory: memory(&self.process, "VmHWM").saturating_sub(self.resident),
            stall: self.stall,
            answered: self.answered,
        }
    }
}

fn cpu(process: &std::path::Path) -> Duration {
    let text = std::fs::read_to_string(process.join("stat")).unwrap();
    // The name of the program is in parentheses, and may have spaces and parentheses of its own. What follows begins with the
    // third field; the time of the process and that of the kernel for it are the 14th and the 15th.
    let (_, rest) = text.rsplit_once(')').unwrap();
    let ticks: u64 = rest.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * TICK)
}

fn memory(process: &std::path::Path, field: &str) -> u64 {
    let text = std::fs::read_to_string(process.join("status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// What was once found on a running server, next to honest requests of the same size as they were measured here. The former comes
/// from an optimised build: in one without, it would be even more.
#[test]
fn what_was_found_before_would_be_found_again() {
    let used = |milliseconds: u64, megabytes: u64| Usage {
        cpu: Duration::from_millis(milliseconds),
        memory: megabytes << 20,
        stall: Duration::from_millis(20),
        answered: 30,
    };
    for (what, honest, found) in [
        ("owners that all control, 0.5 MB", used(120, 15), used(90_000, 15_000)),
        ("130,000 finalizers, 1.4 MB", used(210, 43), used(39_000, 500)),
        ("a long key, 2.9 MB", used(420, 48), used(1000, 400)),
    ] {
        assert!(judge(USUAL, honest, found).is_err(), "{what}");
    }
    let one = used(120, 15);
    assert!(judge(USUAL, one, one).is_ok());
    assert!(judge(USUAL, one, Usage { answered: 29, ..one }).is_err());
    assert!(judge(USUAL, one, Usage { stall: Duration::from_secs(90), ..one }).is_err());
}
