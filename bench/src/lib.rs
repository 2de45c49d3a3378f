//! What the benchmarks share.

pub mod apiserver;
pub mod boot;
pub mod controllers;
pub mod density;
pub mod garbage;
pub mod growth;
pub mod rounds;
pub mod scheduler;
pub mod streams;
pub mod volumes;
mod watched;

/// The resident memory of a process in KiB, by the kernel's account; zero if it is gone.
#[must_use]
pub fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}
