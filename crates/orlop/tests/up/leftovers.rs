//! What a test may have left on the machine.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::machine::command_line;

/// Processes are gone a moment after they were ended: their parent must have seen it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Everything that is looked at.
#[derive(Debug, PartialEq)]
pub(crate) struct Leftovers {
    processes: BTreeSet<String>,
    mounts: BTreeSet<String>,
    namespaces: BTreeSet<String>,
    links: BTreeSet<String>,
    rules: BTreeSet<String>,
    loops: BTreeSet<String>,
    cgroups: BTreeSet<String>,
    forwarding: String,
}

impl Leftovers {
    /// The machine as it is now.
    pub(crate) fn look() -> Result<Self> {
        let rules = e2e::output(std::process::Command::new("nft").args(["list", "ruleset"]))?;
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
        Ok(Self {
            processes: processes(),
            mounts: mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(str::to_owned).collect(),
            namespaces: namespaces(),
            links: names("/sys/class/net"),
            rules: rules.lines().map(|line| line.trim().to_owned()).collect(),
            loops: names("/sys/block").into_iter().filter(|name| is_used_loop(name)).collect(),
            cgroups: cgroups(),
            forwarding: std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward")?,
        })
    }

    /// Fails with what is there now and was not before.
    pub(crate) fn compare(&self) -> Result<()> {
        let since = Instant::now();
        loop {
            let now = Self::look()?;
            let more = self.more(&now);
            if more.is_empty() {
                return Ok(());
            }
            ensure!(since.elapsed() < PATIENCE, "left over:\n  {}", more.join("\n  "));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends at once all that runs for a folder, and removes what is there now and was not before, but for files: as a machine
    /// does that loses power.
    pub(crate) fn cut_power(&self, data: &Path) -> Result<()> {
        let run =
            |program: &str, words: &[&str]| e2e::output(std::process::Command::new(program).args(words)).map(drop);
        let running = of_folder(data);
        // One that has gone meanwhile is as good as killed.
        let pids: Vec<String> = running.iter().map(u32::to_string).collect();
        let _ = run("kill", &[&["-KILL"], &pids.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat());
        while pids.iter().any(|pid| !is_dead(pid)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let table = std::fs::read_to_string("/proc/self/mountinfo")?;
        let mounts: Vec<&str> = table.lines().filter_map(|line| line.split(' ').nth(4)).collect();
        for mount in mounts.into_iter().rev().filter(|mount| !self.mounts.contains(*mount)) {
            run("umount", &["--lazy", mount])?;
        }
        for link in names("/sys/class/net").difference(&self.links) {
            // The other end of a pair may have taken it along.
            let _ = run("ip", &["link", "delete", link]);
        }
        let tables = e2e::output(std::process::Command::new("nft").args(["list", "tables"]))?;
        for table in tables.lines().filter(|line| !self.rules.contains(&format!("{line} {{"))) {
            let words: Vec<&str> = table.split_whitespace().collect();
            run("nft", &[&["delete"], &words[..]].concat())?;
        }
        for group in cgroups().difference(&self.cgroups) {
            run("find", &[group, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";"])?;
        }
        Ok(())
    }

    fn more(&self, now: &Self) -> Vec<String> {
        let kinds = [
            ("process", &self.processes, &now.processes),
            ("mount", &self.mounts, &now.mounts),
            ("namespace", &self.namespaces, &now.namespaces),
            ("link", &self.links, &now.links),
            ("rule", &self.rules, &now.rules),
            ("loop device", &self.loops, &now.loops),
            ("cgroup", &self.cgroups, &now.cgroups),
        ];
        let new =
            kinds.iter().flat_map(|(kind, before, now)| now.difference(before).map(move |one| format!("{kind} {one}")));
        let changed = (self.forwarding != now.forwarding).then(|| format!("ip_forward {}", now.forwarding.trim()));
        new.chain(changed).collect()
    }
}

/// Programs that only tests of ours run.
fn processes() -> BTreeSet<String> {
    let ours = ["orlop", "qemu-system-x86", "runc", "crun", "virtiofsd"];
    let mut found = BTreeSet::new();
    for pid in names("/proc").into_iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())) {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if ours.iter().any(|our| name.trim().starts_with(our)) && !is_dead(&pid) {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            found.insert(format!("{pid} {}", line.chars().take(160).collect::<String>()));
        }
    }
    found
}

/// Processes that name a folder, and all that they started.
fn of_folder(data: &Path) -> BTreeSet<u32> {
    let numbers = || names("/proc").into_iter().filter_map(|name| name.parse::<u32>().ok());
    let data = data.display().to_string();
    let mut found: BTreeSet<u32> = numbers().filter(|pid| command_line(*pid).contains(&data)).collect();
    loop {
        let known = found.len();
        found.extend(
            numbers().filter(|pid| parent(*pid).is_some_and(|parent| found.contains(&parent))).collect::<Vec<_>>(),
        );
        if found.len() == known {
            return found;
        }
    }
}

fn parent(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// Ended, and only not yet buried by the machine's first process.
fn is_dead(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().find(|line| line.starts_with("State:")).is_none_or(|line| line.contains('Z'))
}

/// Network namespaces that processes are in.
fn namespaces() -> BTreeSet<String> {
    let of = |pid: String| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let found = names("/proc").into_iter().filter_map(of);
    found.map(|link: PathBuf| link.display().to_string()).collect()
}

fn is_used_loop(name: &str) -> bool {
    name.starts_with("loop") && Path::new("/sys/block").join(name).join("loop/backing_file").exists()
}

/// Groups of ours, in any hierarchy.
fn cgroups() -> BTreeSet<String> {
    let roots = names("/sys/fs/cgroup").into_iter().map(|name| Path::new("/sys/fs/cgroup").join(name));
    let ours = roots.chain([PathBuf::from("/sys/fs/cgroup")]).map(|root| root.join("orlop"));
    ours.filter_map(|path| std::fs::read_dir(&path).ok().map(|_| path))
        .flat_map(|path| {
            let children = std::fs::read_dir(&path).into_iter().flatten().flatten();
            children
                .filter(|entry| entry.path().is_dir())
                .map(|entry| entry.path().display().to_string())
                .collect::<Vec<_>>()
        })
        .collect()
}

fn names(folder: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
