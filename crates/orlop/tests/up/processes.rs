//! Processes of the machine that is tested.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

/// The QEMU processes that run a guest of this name.
pub(crate) fn qemus(name: &str) -> Vec<u32> {
    let wanted = format!("guest=default_{name},");
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| command_line(*pid).contains(&wanted)).collect()
}

/// The words of a process.
pub(crate) fn command_line(pid: u32) -> String {
    let line = std::fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// Kills a process at once.
pub(crate) fn kill(pid: u32) -> Result<()> {
    e2e::output(Command::new("kill").args(["-KILL", &pid.to_string()])).map(drop)
}
