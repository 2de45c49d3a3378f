//! Network namespaces for tests: each lives as long as its guard.

use std::fs::File;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::waiting::{NEVER, until};

/// A network namespace, held by a process that does nothing.
pub struct Namespace {
    holder: Child,
}

impl Default for Namespace {
    fn default() -> Self {
        Self::new()
    }
}

impl Namespace {
    /// Makes one in which only the loopback link is, and is up.
    ///
    /// # Panics
    /// Without the rights of root, as all of this does whatever fails.
    #[must_use]
    pub fn new() -> Self {
        let before = std::fs::read_link("/proc/self/ns/net").unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare", "--net", "sleep", "infinity"]).stdin(Stdio::null());
        let this = Self { holder: command.spawn().unwrap() };
        // Two programs follow each other in this process before it is what it shall be.
        let is_ready = || {
            let command = std::fs::read(format!("/proc/{}/cmdline", this.holder.id())).unwrap_or_default();
            command.starts_with(b"sleep") && std::fs::read_link(this.path()).is_ok_and(|now| now != before)
        };
        until("the namespace is there", is_ready);
        this.ip("link set lo up");
        this
    }

    /// Where it can be opened.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.holder.id()).into()
    }

    /// The namespace as a file.
    ///
    /// # Panics
    /// When it is gone.
    #[must_use]
    pub fn open(&self) -> File {
        File::open(self.path()).unwrap()
    }

    /// The process that holds it.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.holder.id()
    }

    /// Runs a program in it; its output.
    ///
    /// # Panics
    /// When it fails.
    pub fn run(&self, program: &str, arguments: &[&str]) -> String {
        let target = format!("--net={}", self.path().display());
        let output = Command::new("nsenter").arg(target).arg(program).args(arguments).output().unwrap();
        assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs `ip` in it.
    pub fn ip(&self, arguments: &str) -> String {
        self.run("ip", &arguments.split_whitespace().collect::<Vec<_>>())
    }

    /// Does something in a thread of its own that is in the namespace. Sockets that are opened there stay there.
    ///
    /// # Panics
    /// When that does.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let netns = self.open();
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                move_into_link_name_space(netns.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                work()
            });
            inside.join().unwrap()
        })
    }

    /// Connects from it to an address. There is none if nobody listens there, or nobody has that address.
    ///
    /// # Panics
    /// When nobody says so either: whatever was sent is lost.
    #[must_use]
    pub fn dial(&self, to: SocketAddr) -> Option<TcpStream> {
        match self.inside(|| TcpStream::connect_timeout(&to, NEVER)) {
            Ok(stream) => Some(stream),
            Err(error) if [ErrorKind::ConnectionRefused, ErrorKind::HostUnreachable].contains(&error.kind()) => None,
            Err(error) => panic!("{to}: {error}"),
        }
    }

    /// Connects it with another one: a link in each, with the given names.
    pub fn connect(&self, link: &str, other: &Self, other_link: &str) {
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
