//! What a test may have left on the machine, or taken from it. The machine is the tests' own, so that whatever differs
//! afterwards is of their making.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use testkit::NEVER;

/// How long there may be something left: processes are gone a moment after they were ended.
const PATIENCE: Duration = Duration::from_secs(60);

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
    forwarding: BTreeSet<String>,
}

impl Leftovers {
    /// The machine as it is now.
    pub(crate) fn look() -> Result<Self> {
        // Without what rules have counted.
        let rules = run("nft", &["--stateless", "list", "ruleset"])?;
        Ok(Self {
            processes: processes(),
            mounts: mounts()?.into_iter().collect(),
            namespaces: namespaces(),
            links: names("/sys/class/net"),
            rules: flat(&rules),
            loops: names("/sys/block").into_iter().filter(|name| is_own_loop(name)).collect(),
            cgroups: cgroups(),
            forwarding: BTreeSet::from([std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward")?.trim().to_owned()]),
        })
    }

    /// Fails with what is there now and was not before, and with what was there before and is not now.
    pub(crate) fn compare(&self) -> Result<()> {
        let since = Instant::now();
        loop {
            let differences = self.differences(&Self::look()?);
            if differences.is_empty() {
                return Ok(());
            }
            ensure!(since.elapsed() < PATIENCE, "the machine is not as it was:\n  {}", differences.join("\n  "));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// What differs, one line each.
    pub(crate) fn differences(&self, now: &Self) -> Vec<String> {
        let kinds = [
            ("process", &self.processes, &now.processes),
            ("mount", &self.mounts, &now.mounts),
            ("namespace", &self.namespaces, &now.namespaces),
            ("link", &self.links, &now.links),
            ("rule", &self.rules, &now.rules),
            ("loop device", &self.loops, &now.loops),
            ("cgroup", &self.cgroups, &now.cgroups),
            ("ip_forward", &self.forwarding, &now.forwarding),
        ];
        let of = |(kind, before, now): (&str, &BTreeSet<String>, &BTreeSet<String>)| {
            let more = now.difference(before).map(|one| format!("left over: {kind} {one}"));
            let fewer = before.difference(now).map(|one| format!("taken away: {kind} {one}"));
            more.chain(fewer).collect::<Vec<_>>()
        };
        kinds.into_iter().flat_map(of).collect()
    }

    /// Ends at once all that runs on the machine, and removes what is there now and was not before, but for files: as a
    /// machine does that loses power. The machine outside does not lose it.
    pub(crate) fn cut_power(&self) -> Result<()> {
        ensure!(testkit::test_host::namespaces() != testkit::test_host::outside(), "this is no machine of our own");
        let since = Instant::now();
        loop {
            // One may have started another meanwhile.
            let running: Vec<String> = others().iter().map(u32::to_string).collect();
            if running.is_empty() {
                break;
            }
            ensure!(since.elapsed() < NEVER, "{running:?} cannot be killed");
            let words: Vec<&str> = ["-KILL"].into_iter().chain(running.iter().map(String::as_str)).collect();
            // One that has gone meanwhile is as good as killed.
            let _ = run("kill", &words);
            std::thread::sleep(Duration::from_millis(10));
        }
        for mount in mounts()?.into_iter().rev().filter(|mount| !self.mounts.contains(mount)) {
            run("umount", &["--lazy", &mount])?;
        }
        for link in names("/sys/class/net").difference(&self.links) {
            // The other end of a pair may have taken it along.
            let _ = run("ip", &["link", "delete", link]);
        }
        for table in run("nft", &["list", "tables"])?.lines().filter(|table| !self.rules.contains(*table)) {
            let words: Vec<&str> = ["delete"].into_iter().chain(table.split_whitespace()).collect();
            run("nft", &words)?;
        }
        for group in cgroups().difference(&self.cgroups) {
            run("find", &[group, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";"])?;
        }
        Ok(())
    }
}

fn run(program: &str, words: &[&str]) -> Result<String> {
    e2e::output(std::process::Command::new(program).args(words))
}

/// Every rule with the table and the chain that it is in, and how often it is there.
fn flat(ruleset: &str) -> BTreeSet<String> {
    let (mut inside, mut found) = (Vec::new(), BTreeSet::new());
    for line in ruleset.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if line == "}" {
            inside.pop();
            continue;
        }
        let opened = line.strip_suffix(" {");
        let path: Vec<&str> = inside.iter().copied().chain([opened.unwrap_or(line)]).collect();
        let (path, mut number) = (path.join(" | "), 1);
        let mut name = path.clone();
        while !found.insert(name) {
            number += 1;
            name = format!("{path} ({number})");
        }
        inside.extend(opened);
    }
    found
}

fn mounts() -> Result<Vec<String>> {
    let table = std::fs::read_to_string("/proc/self/mountinfo")?;
    Ok(table.lines().filter_map(|line| line.split(' ').nth(4)).map(str::to_owned).collect())
}

/// Processes that only the machine's first and this one know of: whatever tests have started.
fn others() -> Vec<u32> {
    let numbers = names("/proc").into_iter().filter_map(|name| name.parse::<u32>().ok());
    numbers.filter(|pid| ![1, std::process::id()].contains(pid) && !is_dead(*pid)).collect()
}

fn processes() -> BTreeSet<String> {
    let told = |pid: u32| {
        let line = super::test_host::processes::command_line(pid);
        format!("{pid} {}", line.chars().take(160).collect::<String>())
    };
    others().into_iter().map(told).collect()
}

/// Ended, and only not yet buried by the machine's first process.
fn is_dead(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().find(|line| line.starts_with("State:")).is_none_or(|line| line.contains('Z'))
}

/// Network namespaces that processes are in.
fn namespaces() -> BTreeSet<String> {
    let of = |pid: String| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let found = names("/proc").into_iter().filter_map(of);
    found.map(|link: PathBuf| link.display().to_string()).collect()
}

/// Loop devices are the same in every namespace; files of tests are below their directory for temporary ones.
fn is_own_loop(name: &str) -> bool {
    let file = Path::new("/sys/block").join(name).join("loop/backing_file");
    name.starts_with("loop")
        && std::fs::read_to_string(file).is_ok_and(|file| Path::new(file.trim()).starts_with(std::env::temp_dir()))
}

/// Groups of pods, in any hierarchy.
fn cgroups() -> BTreeSet<String> {
    let roots = names("/sys/fs/cgroup").into_iter().map(|name| Path::new("/sys/fs/cgroup").join(name));
    let ours = roots.chain([PathBuf::from("/sys/fs/cgroup")]).map(|root| root.join("orlop"));
    let folders = ours.flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten());
    folders.map(|entry| entry.path()).filter(|path| path.is_dir()).map(|path| path.display().to_string()).collect()
}

fn names(folder: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
