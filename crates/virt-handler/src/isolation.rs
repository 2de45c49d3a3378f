//! Who is behind a socket: the process, and the namespaces that it lives in.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::{Pid, PidfdFlags};
use tokio::net::UnixStream;

use crate::folders;
use crate::launchers::is_shortage;

/// A process behind a socket, held such that its number cannot become another's.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Its number.
    pub(crate) pid: u32,
    /// The user that it ran as when it began to listen.
    pub(crate) uid: u32,
    /// And the group.
    pub(crate) gid: u32,
    process: OwnedFd,
    network: OwnedFd,
}

/// Why nobody knows who is behind a socket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IsolationError {
    /// The socket does not tell.
    #[error("cannot find the owner of the socket")]
    Unknown,
    /// The process could not be looked at.
    #[error("look at process {pid}")]
    Look {
        /// Its number.
        pid: u32,
        source: io::Error,
    },
    /// It ended while we looked.
    #[error("process {pid} ended")]
    Ended {
        /// Its number.
        pid: u32,
    },
    /// It belongs to another pod.
    #[error("process {pid} does not belong to pod {pod}: its control group is {group}")]
    Foreign {
        /// Its number.
        pid: u32,
        /// The pod that it should be of.
        pod: String,
        /// Where it is.
        group: String,
    },
}

impl IsolationError {
    /// Whether it says nothing about the process: something here is short.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Self::Look { source, .. } if is_shortage(source))
    }
}

impl Peer {
    /// Who listens on the other side.
    ///
    /// # Guarantees
    /// The process was alive after its namespace was opened and its control group was read: they are its own.
    pub(crate) fn of(stream: &UnixStream, pod: &str) -> Result<Self, IsolationError> {
        let credentials = stream.peer_cred().map_err(|_| IsolationError::Unknown)?;
        let pid = credentials.pid().ok_or(IsolationError::Unknown)?;
        let number = Pid::from_raw(pid).ok_or(IsolationError::Unknown)?;
        let pid = u32::try_from(pid).map_err(|_| IsolationError::Unknown)?;
        let look = |source: io::Error| IsolationError::Look { pid, source };
        let process = rustix::process::pidfd_open(number, PidfdFlags::empty()).map_err(|error| look(error.into()))?;
        let network =
            rustix::fs::openat(CWD, format!("/proc/{pid}/ns/net"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .map_err(|error| look(error.into()))?;
        let theirs = fs::read_to_string(format!("/proc/{pid}/cgroup")).map_err(look)?;
        let ours = fs::read_to_string("/proc/self/cgroup").map_err(look)?;
        if let Some(group) = foreign_group(&ours, &theirs, pod) {
            return Err(IsolationError::Foreign { pid, pod: pod.to_owned(), group });
        }
        let peer = Self { pid, uid: credentials.uid(), gid: credentials.gid(), process, network };
        if peer.is_alive() { Ok(peer) } else { Err(IsolationError::Ended { pid }) }
    }

    /// Whether it still runs.
    pub(crate) fn is_alive(&self) -> bool {
        let mut ends = [PollFd::new(&self.process, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(rustix::event::poll(&mut ends, Some(&at_once)), Ok(0))
    }

    /// Resolves when it has ended.
    pub(crate) fn ended(&self) -> io::Result<impl Future<Output = ()> + Send + 'static + use<>> {
        let process = folders::readable(self.process.as_fd().try_clone_to_owned()?)?;
        Ok(async move { drop(process.readable().await) })
    }

    /// Its mount namespace; whoever needs it asks afterwards whether the process still runs.
    pub(crate) fn mounts(&self) -> io::Result<OwnedFd> {
        let path = format!("/proc/{}/ns/mnt", self.pid);
        Ok(rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Its network namespace.
    pub(crate) fn network(&self) -> io::Result<OwnedFd> {
        self.network.as_fd().try_clone_to_owned()
    }
}

/// The control group of a process that names a pod, if it names another than this one. Not every node names pods in its
/// groups, and what our own group has in common with it tells nothing.
fn foreign_group(ours: &str, theirs: &str, pod: &str) -> Option<String> {
    let place = |line: &str| line.splitn(3, ':').nth(2).unwrap_or_default().to_owned();
    let controller = |line: &str| line.split(':').nth(1).unwrap_or_default().to_owned();
    theirs.lines().find_map(|line| {
        let own = ours.lines().find(|own| controller(own) == controller(line)).map(place).unwrap_or_default();
        let path = place(line);
        let same = own.split('/').zip(path.split('/')).take_while(|(one, other)| one == other).count();
        let rest = path.split('/').skip(same);
        let mut named = rest.flat_map(uids).peekable();
        named.peek()?;
        named.all(|uid| uid != pod).then_some(path.clone())
    })
}

/// The UIDs in a part of a control group's path, such as `kubepods-pod9f..slice`; systemd has underscores for dashes.
fn uids(part: &str) -> Vec<String> {
    const LENGTH: usize = 36;
    let part = part.replace('_', "-");
    let is_uid = |text: &str| {
        text.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    };
    let last = part.len().saturating_sub(LENGTH);
    let ways = (0..=last).filter_map(|start| part.get(start..start + LENGTH));
    ways.filter(|text| is_uid(text)).map(str::to_ascii_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = "9f1c0a7e-1111-2222-3333-444455556666";

    #[test]
    fn a_group_of_another_pod_is_foreign() {
        let other = POD.replace('9', "8");
        let ours = "0::/kubepods.slice/kubepods-podaaaaaaaa_1111_2222_3333_444455556666.slice/cri-1.scope\n";
        let with = |pod: &str| format!("0::/kubepods.slice/kubepods-pod{}.slice/cri-2.scope\n", pod.replace('-', "_"));
        assert_eq!(foreign_group(ours, &with(POD), POD), None);
        assert!(foreign_group(ours, &with(&other), POD).unwrap().contains("pod8f1c0a7e"));
    }

    #[test]
    fn groups_that_name_no_pod_tell_nothing() {
        assert_eq!(foreign_group("0::/\n", "0::/user.slice/session-1.scope\n", POD), None);
        let own = format!("4:memory:/kubepods/pod{}/x\n0::/\n", POD.replace('9', "7"));
        assert_eq!(foreign_group(&own, &own, POD), None);
    }

    #[test]
    fn groups_of_version_one_are_looked_at_by_controller() {
        let ours = "4:memory:/\n0::/\n";
        let theirs = format!("4:memory:/kubepods/burstable/pod{POD}/c\n0::/\n");
        assert_eq!(foreign_group(ours, &theirs, POD), None);
        assert!(foreign_group(ours, &theirs, "11111111-1111-2222-3333-444455556666").is_some());
    }

    #[tokio::test]
    async fn the_process_behind_a_socket_is_known_with_its_namespace() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _listener = tokio::net::UnixListener::bind(&path).unwrap();
        let stream = UnixStream::connect(&path).await.unwrap();
        let peer = Peer::of(&stream, POD).unwrap();
        assert_eq!(peer.pid, std::process::id());
        assert!(peer.is_alive());
        let own = fs::metadata("/proc/self/ns/net").unwrap();
        let theirs = rustix::fs::fstat(peer.network().unwrap()).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::ino(&own), theirs.st_ino);
    }
}
