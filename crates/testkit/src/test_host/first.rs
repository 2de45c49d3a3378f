//! The first process of a machine: furnishes it, starts the tests and buries whoever ends.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use rustix::process::{WaitOptions, wait};

use super::mounts::{self, Mount};
use super::{INSIDE, LINK, MOUNT, ROLE, TABLE};

/// Furnishes the machine and runs the tests there.
#[expect(clippy::zombie_processes, reason = "whoever ends is waited for, the tests among them")]
pub(super) fn run() -> ExitCode {
    forget_others_mounts();
    show_own_system();
    // As service managers have it.
    command("mount", &["--make-rshared", "/"]);
    furnish();
    let tests = Command::new(std::env::current_exe().unwrap())
        .args(std::env::args_os().skip(1))
        .env(ROLE, INSIDE)
        .spawn()
        .unwrap();
    loop {
        // All orphans are children of the first process.
        let Ok(Some((process, status))) = wait(WaitOptions::empty()) else { return ExitCode::FAILURE };
        if u32::try_from(process.as_raw_nonzero().get()) == Ok(tests.id()) {
            let code = status.exit_status().and_then(|code| u8::try_from(code).ok());
            return code.map_or(ExitCode::FAILURE, ExitCode::from);
        }
    }
}

/// Lets go of mounts that belong to something short-lived, a container or another test: while they are held here, their
/// owner cannot be rid of them.
fn forget_others_mounts() {
    let (folder, program) = (std::env::temp_dir(), std::env::current_exe().unwrap());
    let here = std::env::current_dir().unwrap();
    let kept: [&Path; 3] = [&folder, &program, &here];
    let outer = folder.parent().map(Path::to_owned).unwrap_or_default();
    let is_others = |mount: &Mount| {
        let place = Path::new(&mount.place);
        let is_short_lived = ["nsfs", "overlay"].contains(&mount.kind.as_str()) || place.starts_with(&outer);
        is_short_lived && place != outer && !kept.iter().any(|path| path.starts_with(place))
    };
    let others: Vec<Mount> = mounts::all().into_iter().filter(is_others).collect();
    for mount in others.iter().rev() {
        // One below another is gone with it.
        let _ = Command::new("umount").args(["--lazy", &mount.place]).output();
    }
}

/// What `/sys` shows of links and control groups is those of whoever mounted it.
fn show_own_system() {
    let below = mounts::all().into_iter().filter(|mount| mount.place.starts_with("/sys/fs/cgroup"));
    let (groups, others): (Vec<Mount>, Vec<Mount>) = below.partition(Mount::is_groups);
    command("umount", &["--lazy", "--recursive", "/sys"]);
    command("mount", &["-t", "sysfs", "sysfs", "/sys"]);
    if others.iter().any(|mount| mount.place == "/sys/fs/cgroup") {
        command("mount", &["-t", "tmpfs", "-o", "mode=755", "tmpfs", "/sys/fs/cgroup"]);
    }
    for mount in &groups {
        std::fs::create_dir_all(&mount.place).unwrap();
        match mount.kind.as_str() {
            "cgroup" => command("mount", &["-t", "cgroup", "-o", &mount.controllers(), "cgroup", &mount.place]),
            kind => command("mount", &["-t", kind, kind, &mount.place]),
        }
    }
    assert!(mounts::all().iter().filter(|mount| mount.is_groups()).all(|mount| mount.root == "/"));
}

/// What a machine has before anybody works on it: links, rules that count, mounts.
fn furnish() {
    for words in ["link set lo up", "link add LINK type bridge", "link set LINK up"] {
        ip(words);
    }
    ip("addr add 192.0.2.1/24 dev LINK");
    if std::path::Path::new("/proc/sys/net/ipv6").exists() {
        ip("addr add 2001:db8::1/64 dev LINK nodad");
    }
    let chain = |hook: &str| {
        format!(
            "chain {hook} {{ type filter hook {hook} priority 10; policy accept; counter accept comment \"kept\"; }}"
        )
    };
    let chains = ["input", "forward", "output"].map(chain).join("\n");
    let rules = format!("table {TABLE} {{\n{chains}\n}}");
    command("nft", &[&rules]);
    let place: PathBuf = std::env::temp_dir().join(MOUNT);
    std::fs::create_dir(&place).unwrap();
    command("mount", &["-t", "tmpfs", "tmpfs", &place.display().to_string()]);
}

fn ip(words: &str) {
    let words = words.replace("LINK", LINK);
    command("ip", &words.split(' ').collect::<Vec<_>>());
}

fn command(program: &str, words: &[&str]) {
    let output = Command::new(program).args(words).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}
