//! What a process takes, by the kernel's account.

use std::ops::Sub;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// Ticks of a second, as the kernel shows CPU time to programs: the same on every machine that Linux runs on today.
const TICKS: f64 = 100.0;
const MIB: f64 = 1024.0;

/// What a process has taken so far.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Usage {
    /// CPU, of all threads.
    pub cpu_seconds: f64,
    /// Resident memory now.
    pub resident_mib: f64,
    /// What of it is the process' own, and of no file.
    pub own_mib: f64,
    /// The most resident memory that it ever had.
    pub peak_mib: f64,
}

impl Usage {
    /// Of a process; nothing if it is gone.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let (stat, status) = (read("stat"), read("status"));
        Self {
            cpu_seconds: ticks(&stat) / TICKS,
            resident_mib: kib(&status, "VmRSS:") / MIB,
            own_mib: kib(&status, "RssAnon:") / MIB,
            peak_mib: kib(&status, "VmHWM:") / MIB,
        }
    }

    /// Of this process.
    #[must_use]
    pub fn own() -> Self {
        Self::of(std::process::id())
    }
}

impl Sub for Usage {
    type Output = Self;

    /// What came since an earlier look; the peak is that of the later one.
    fn sub(self, earlier: Self) -> Self {
        Self {
            cpu_seconds: self.cpu_seconds - earlier.cpu_seconds,
            resident_mib: self.resident_mib - earlier.resident_mib,
            own_mib: self.own_mib - earlier.own_mib,
            peak_mib: self.peak_mib,
        }
    }
}

fn ticks(stat: &str) -> f64 {
    // The name may have spaces and parentheses; what follows its last one has not.
    let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let fields = after_name.split(' ').skip(11).take(2);
    fields.filter_map(|field| field.parse::<f64>().ok()).sum()
}

fn kib(status: &str, name: &str) -> f64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0.0)
}

/// A process that is killed and reaped when dropped.
pub struct Running(Child);

impl Running {
    /// Starts a program whose output goes to a file. It ends with this process even if that is killed.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(program: &Path, arguments: &[String], log: &Path) -> Result<Self> {
        let log = std::fs::File::create(log)?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(program).args(arguments);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("start {}", program.display()))?;
        Ok(Self(child))
    }

    /// What it has taken.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage::of(self.0.id())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_any_name() {
        let stat = "7 (a) b) S 1 1 1 0 -1 4194560 9 0 0 0 150 50 0 0 20 0 4 0 9";
        assert!((ticks(stat) - 200.0).abs() < f64::EPSILON);
    }

    #[test]
    fn this_process_has_memory() {
        let usage = Usage::own();
        assert!(usage.resident_mib > 0.0 && usage.peak_mib >= usage.resident_mib);
    }
}
