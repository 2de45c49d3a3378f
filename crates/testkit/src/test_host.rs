//! A machine of the tests' own: what they do to links, rules, mounts, control groups and processes, they do to it, and
//! nothing that others do on the real machine meanwhile can be seen in it.
//!
//! ```text
//! this program            outside: makes directory and control groups, waits, removes them
//!   this program          the first process of namespaces for links, mounts, processes and control groups; furnishes them
//!     this program        runs the tests
//! ```
//!
//! Whatever a test leaves behind, or whoever kills it, all of it goes with the first process.

mod first;
mod groups;
mod mounts;

use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitCode};

use groups::Groups;
use rustix::fs::FlockOperation;

/// Tells a process which of them it is.
const ROLE: &str = "ORLOP_TEST_MACHINE";
const FIRST: &str = "first";
const INSIDE: &str = "inside";
/// The namespaces outside, for tests that want to be sure.
const OUTSIDE: &str = "ORLOP_TEST_OUTSIDE";
/// The namespaces that a machine has of its own.
pub const NAMESPACES: [&str; 4] = ["cgroup", "mnt", "net", "pid"];

/// A link that the machine has before any test.
pub const LINK: &str = "lan0";
/// A table of firewall rules that it has before any test. Its rules count.
pub const TABLE: &str = "inet of_the_machine";
/// A file system that it has mounted before any test, below the directory for temporary files.
pub const MOUNT: &str = "of-the-machine";

/// Enters the machine: in its own control groups, which it takes for all there are; then in all else. A shell does it,
/// because this program has threads.
const ENTER: &str = r#"
for group in $ORLOP_TEST_GROUPS; do echo 0 > "$group/cgroup.procs"; done
exec unshare --cgroup sh -c '
    for group in $ORLOP_TEST_LEAVES; do echo 0 > "$group/cgroup.procs"; done
    exec unshare --net --mount --propagation private --pid --fork --kill-child=KILL --mount-proc "$@"
' sh "$@"
"#;

/// Whether this process is to run the tests.
pub(crate) fn is_inside() -> bool {
    std::env::var(ROLE).is_ok_and(|role| role == INSIDE)
}

/// The namespaces of the machine outside, by the names in `NAMESPACES`.
#[must_use]
pub fn outside() -> Vec<String> {
    std::env::var(OUTSIDE).unwrap_or_default().split(' ').map(str::to_owned).collect()
}

/// The namespaces of this process, by the names in `NAMESPACES`.
#[must_use]
pub fn namespaces() -> Vec<String> {
    let of = |name: &str| std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap().display().to_string();
    NAMESPACES.iter().map(|name| of(name)).collect()
}

/// Takes a directory for this process, unless another one has it: one in another container, for all that is known.
fn lock(folder: &Path) -> Option<File> {
    let folder = File::open(folder).ok()?;
    rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive).ok().map(|()| folder)
}

/// Runs this program again on a machine of its own.
pub(crate) fn run_inside() -> ExitCode {
    if std::env::var(ROLE).is_ok_and(|role| role == FIRST) {
        return first::run();
    }
    groups::remove_abandoned(&std::env::temp_dir(), |folder| {
        if lock(folder).is_some() {
            drop(std::fs::remove_dir_all(folder));
        }
    });
    // Short, as sockets are to be below it.
    let name = format!("{}{}", groups::PREFIX, std::process::id());
    let folder = tempfile::Builder::new().prefix(&name).rand_bytes(0).tempdir().unwrap();
    let _lock = lock(folder.path());
    let groups = Groups::make();
    let mut command = Command::new("setpriv");
    command
        // It is this process that others know and may kill.
        .args(["--pdeathsig", "KILL", "sh", "-euc", ENTER, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(std::env::args_os().skip(1))
        .env("ORLOP_TEST_GROUPS", groups.all())
        .env("ORLOP_TEST_LEAVES", groups.leaves())
        .env(OUTSIDE, namespaces().join(" "))
        .env(ROLE, FIRST)
        .env("TMPDIR", folder.path());
    let status = command.status().unwrap();
    u8::try_from(status.code().unwrap_or(1)).map_or(ExitCode::FAILURE, ExitCode::from)
}
