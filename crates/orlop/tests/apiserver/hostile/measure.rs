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
    /// The CPU time of these until the work was done.
    pub(super) worked: Duration,
    /// How many requests of others were answered until then.
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

/// Requests of others that must be answered for each second of CPU time that is worked for somebody. An idle server answers hundreds,
/// and one whose threads are all taken answers none; how long either takes by the clock says nothing, since a busy machine makes
/// both wait.
const ANSWERS_PER_SECOND: u128 = 2;

/// How many must be answered while so much was worked. A machine with one processor has one thread to work on requests.
fn least(worked: Duration) -> usize {
    let is_alone = std::thread::available_parallelism().is_ok_and(|count| count.get() == 1);
    let answers = usize::try_from(worked.as_millis() * ANSWERS_PER_SECOND / 1000).unwrap_or(usize::MAX);
    if is_alone { 0 } else { answers }
}

/// Compares with what was used for an honest request of the same size.
///
/// # Errors
/// What is too much, or too little.
pub(super) fn judge(limits: Limits, honest: Usage, other: Usage) -> Result<(), Box<Excess>> {
    let cpu = honest.cpu * limits.cpu.0 + limits.cpu.1;
    let memory = honest.memory * limits.memory.0 + limits.memory.1;
    // What one request may use, others may have to wait for, and no longer.
    let fits = other.cpu <= cpu && other.memory <= memory && other.stall <= cpu;
    let least = least(other.worked);
    if fits && other.answered >= least { Ok(()) } else { Err(Box::new(Excess { honest, cpu, memory, least, other })) }
}

/// More was used than may be, or fewer were answered.
#[derive(Debug)]
pub(super) struct Excess {
    honest: Usage,
    cpu: Duration,
    memory: u64,
    least: usize,
    other: Usage,
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { honest, cpu, memory, least, other } = self;
        write!(
            f,
            "it used {other:?}; at most {cpu:?}, also between two answers, and {memory} bytes are fine, and at least {least} "
        )?;
        write!(f, "answers to others; an honest one used {honest:?}")
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
    /// What was used, and how many were answered, when the work was done.
    done: Option<(Duration, usize)>,
}

impl Meter {
    /// Begins to count.
    pub(super) fn begin(pid: u32) -> Self {
        let process = PathBuf::from(format!("/proc/{pid}"));
        // From here on the largest size is that since now: `man 5 proc_pid_clear_refs`.
        std::fs::write(process.join("clear_refs"), "5").unwrap();
        let (cpu, resident) = (cpu(&process), memory(&process, "VmRSS"));
        Self { process, cpu, resident, last: cpu, stall: Duration::ZERO, answered: 0, done: None }
    }

    /// Somebody else was answered.
    pub(super) fn answered(&mut self) {
        let now = cpu(&self.process);
        self.stall = self.stall.max(now.saturating_sub(self.last));
        (self.last, self.answered) = (now, self.answered + 1);
    }

    /// What is measured is done.
    pub(super) fn done(&mut self) {
        self.done = Some((cpu(&self.process).saturating_sub(self.cpu), self.answered));
    }

    pub(super) fn is_done(&self) -> bool {
        self.done.is_some()
    }

    pub(super) fn end(self) -> Usage {
        let cpu = cpu(&self.process).saturating_sub(self.cpu);
        let (worked, answered) = self.done.unwrap_or((cpu, self.answered));
        let memory = memory(&self.process, "VmHWM").saturating_sub(self.resident);
        Usage { cpu, memory, stall: self.stall, worked, answered }
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
        worked: Duration::from_millis(milliseconds),
        answered: 30_000,
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
    let slow = Usage { worked: Duration::from_secs(4), ..one };
    assert!(judge(USUAL, one, Usage { answered: least(slow.worked), ..slow }).is_ok());
    if let Some(fewer) = least(slow.worked).checked_sub(1) {
        assert!(judge(USUAL, one, Usage { answered: fewer, ..slow }).is_err(), "others waited meanwhile");
    }
    assert!(judge(USUAL, one, Usage { stall: Duration::from_secs(90), ..one }).is_err());
}
