//! Network namespaces for tests: each lives as long as its guard.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace, held by a process that does nothing.
pub(crate) struct Namespace {
    holder: Child,
}

impl Namespace {
    pub(crate) fn new() -> Self {
        let before = std::fs::read_link("/proc/self/ns/net").unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare", "--net", "sleep", "infinity"]).stdin(Stdio::null());
        let this = Self { holder: command.spawn().unwrap() };
        // Two programs follow each other in this process before it is what it shall be.
        let deadline = std::time::Duration::from_secs(20);
        let is_ready = || {
            let command = std::fs::read(format!("/proc/{}/cmdline", this.holder.id())).unwrap_or_default();
            command.starts_with(b"sleep") && std::fs::read_link(this.path()).is_ok_and(|now| now != before)
        };
        wait_until(deadline, is_ready);
        this.ip("link set lo up");
        this
    }

    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.holder.id()).into()
    }

    pub(crate) fn open(&self) -> File {
        File::open(self.path()).unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.holder.id()
    }

    /// Runs a program in it; its output.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> String {
        let target = format!("--net={}", self.path().display());
        let output = Command::new("nsenter").arg(target).arg(program).args(arguments).output().unwrap();
        assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs `ip` in it.
    pub(crate) fn ip(&self, arguments: &str) -> String {
        self.run("ip", &arguments.split_whitespace().collect::<Vec<_>>())
    }

    /// Does something in a thread of its own that is in the namespace. Sockets that are opened there stay there.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let netns = self.open();
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                move_into_link_name_space(netns.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                work()
            });
            inside.join().unwrap()
        })
    }

    /// Connects it with another one: a link in each, with the given names.
    pub(crate) fn connect(&self, link: &str, other: &Self, other_link: &str) {
        self.ip(&format!("link add {link} type veth peer name {other_link} netns {}", other.pid()));
        self.ip(&format!("link set {link} up"));
        other.ip(&format!("link set {other_link} up"));
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Looks again and again, as there is nobody who would tell.
#[expect(clippy::disallowed_methods, reason = "tests wait for other processes in real time")]
pub(crate) fn wait_until(limit: std::time::Duration, is_so: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !is_so() {
        assert!(start.elapsed() < limit, "it did not come true in {limit:?}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
