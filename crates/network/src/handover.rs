//! Hands the guest's network over from virt-handler to a launcher, with its sockets.
//!
//! The launcher listens, virt-handler connects, sends one message and waits until it is acknowledged. It may do so
//! again, after a restart or for one more interface; the launcher keeps what it has and takes what is new.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, chmodat, open};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen as start_listening,
    socket_with,
};
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;

use crate::attached::{Attached, AttachedInterface, Sockets, SocketsError};
use crate::{kernel, wire};

/// How long one side waits for the other. The launcher only listens and does nothing else on this socket.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What the launcher answers.
const ACKNOWLEDGED: &[u8] = b"ok";

/// Why it was not handed over.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// The socket's path is of no use.
    #[error("{} is not a valid socket path", .0.display())]
    Path(PathBuf),
    /// The socket could not be made or reached.
    #[error("cannot {action} {}", path.display())]
    Socket { action: &'static str, path: PathBuf, source: io::Error },
    /// The connection broke.
    #[error("the connection broke")]
    Broken(#[source] io::Error),
    /// Nobody answered.
    #[error("the launcher did not acknowledge")]
    NotAcknowledged,
    /// The message is of another kind.
    #[error("the message is invalid")]
    Message(#[source] serde_json::Error),
    /// The message and its sockets do not fit.
    #[error(transparent)]
    Sockets(#[from] SocketsError),
}

/// The launcher's end. Its socket is removed with it.
#[derive(Debug)]
pub struct Listener {
    socket: AsyncFd<OwnedFd>,
    path: PathBuf,
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Whoever listens there next removes what is left.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[derive(Serialize, Deserialize)]
struct Message {
    interfaces: Vec<AttachedInterface>,
}

/// Listens at a path, in place of whoever did before. Only its owner and root may connect.
///
/// # Errors
/// When the socket cannot be made.
pub fn listen(path: &Path) -> Result<Listener, HandoverError> {
    let failed = |source| HandoverError::Socket { action: "listen at", path: path.to_owned(), source };
    let place = SocketPath::of(path)?;
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let make = || -> io::Result<AsyncFd<OwnedFd>> {
        let socket = seqpacket()?;
        bind(&socket, &place.address()?)?;
        chmodat(&place.folder, place.name.as_str(), Mode::RUSR | Mode::WUSR, rustix::fs::AtFlags::empty())?;
        start_listening(&socket, 4)?;
        kernel::watched(socket)
    };
    Ok(Listener { socket: make().map_err(failed)?, path: path.to_owned() })
}

/// Waits until something is handed over. What is sent again is received again: see [`Taken`] for what is new in it.
///
/// # Errors
/// When the socket itself is broken; who sends garbage is not answered, and the next one is waited for.
pub async fn receive(listener: &Listener) -> Result<Attached, HandoverError> {
    loop {
        let connection = accept(listener).await?;
        match tokio::time::timeout(TIMEOUT, take(&connection)).await {
            Ok(Ok(attached)) => {
                if let Err(error) = wire::send_async(&connection, ACKNOWLEDGED, &[]).await {
                    tracing::debug!(%error, "the process that handed over the network has ended");
                }
                return Ok(attached);
            }
            Ok(Err(error)) => tracing::warn!(%error, "cannot read a handover of the network"),
            Err(_) => tracing::warn!("a connection for a network handover sent nothing"),
        }
    }
}

/// What a launcher has taken so far, interface by interface.
#[derive(Debug, Default)]
pub struct Taken {
    interfaces: Vec<AttachedInterface>,
    /// Sockets of interfaces that nobody serves yet.
    waiting: Vec<(String, Sockets)>,
}

impl Taken {
    /// Takes what is new. What is here already stays: its guest may be using it.
    pub fn add(&mut self, Attached { interfaces, sockets }: Attached) {
        for (interface, sockets) in interfaces.into_iter().zip(sockets) {
            if self.interfaces.iter().all(|known| known.name != interface.name) {
                self.waiting.push((interface.name.clone(), sockets));
                self.interfaces.push(interface);
            }
        }
    }

    /// Everything that was taken.
    #[must_use]
    pub fn interfaces(&self) -> &[AttachedInterface] {
        &self.interfaces
    }

    /// Interfaces that are to be served from now on, each with its sockets; each once.
    pub fn unserved(&mut self) -> Vec<(AttachedInterface, Sockets)> {
        let waiting = std::mem::take(&mut self.waiting);
        let known = |name: &str| self.interfaces.iter().find(|interface| interface.name == name).cloned();
        waiting.into_iter().filter_map(|(name, sockets)| known(&name).map(|interface| (interface, sockets))).collect()
    }
}

/// Hands over what was attached, and waits until it was taken.
///
/// # Errors
/// When the launcher is not there yet, or not any more; it may be sent again.
pub async fn send(path: &Path, attached: &Attached) -> Result<(), HandoverError> {
    match tokio::time::timeout(TIMEOUT, deliver(path, attached)).await {
        Ok(delivered) => delivered,
        Err(_) => Err(HandoverError::NotAcknowledged),
    }
}

async fn deliver(path: &Path, attached: &Attached) -> Result<(), HandoverError> {
    let failed = |source| HandoverError::Socket { action: "connect to", path: path.to_owned(), source };
    let place = SocketPath::of(path)?;
    let reach = || -> io::Result<AsyncFd<OwnedFd>> {
        let socket = seqpacket()?;
        connect(&socket, &place.address()?)?;
        kernel::watched(socket)
    };
    let socket = reach().map_err(failed)?;
    let message = Message { interfaces: attached.interfaces.clone() };
    let bytes = serde_json::to_vec(&message).map_err(HandoverError::Message)?;
    wire::send_async(&socket, &bytes, &attached.descriptors()).await.map_err(HandoverError::Broken)?;
    let (answer, _) = wire::receive_async(&socket).await.map_err(HandoverError::Broken)?;
    if answer == ACKNOWLEDGED { Ok(()) } else { Err(HandoverError::NotAcknowledged) }
}

async fn accept(listener: &Listener) -> Result<AsyncFd<OwnedFd>, HandoverError> {
    loop {
        let mut guard = listener.socket.readable().await.map_err(HandoverError::Broken)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match guard.try_io(|socket| Ok(accept_with(socket.get_ref(), flags)?)) {
            Ok(accepted) => {
                let accepted = accepted.and_then(kernel::watched);
                return accepted.map_err(HandoverError::Broken);
            }
            Err(_would_block) => {}
        }
    }
}

async fn take(connection: &AsyncFd<OwnedFd>) -> Result<Attached, HandoverError> {
    let (bytes, descriptors) = wire::receive_async(connection).await.map_err(HandoverError::Broken)?;
    let message: Message = serde_json::from_slice(&bytes).map_err(HandoverError::Message)?;
    Ok(Attached::join(message.interfaces, descriptors)?)
}

fn seqpacket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// A path of any length: its directory, open, and the name in it.
struct SocketPath {
    folder: OwnedFd,
    name: String,
}

impl SocketPath {
    fn of(path: &Path) -> Result<Self, HandoverError> {
        let name = path.file_name().and_then(|name| name.to_str());
        let (Some(name), Some(folder)) = (name, path.parent()) else {
            return Err(HandoverError::Path(path.to_owned()));
        };
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let opened = open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let failed = |error: rustix::io::Errno| HandoverError::Socket {
            action: "open the directory of",
            path: path.to_owned(),
            source: error.into(),
        };
        Ok(Self { folder: opened.map_err(failed)?, name: name.to_owned() })
    }

    /// The kernel takes 108 bytes; this is short whatever the directory's path is.
    fn address(&self) -> io::Result<SocketAddrUnix> {
        use std::os::fd::AsRawFd;
        Ok(SocketAddrUnix::new(format!("/proc/self/fd/{}/{}", self.folder.as_fd().as_raw_fd(), self.name))?)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use crate::mac::Mac;

    use super::*;

    fn attached(with_six: bool) -> Attached {
        let socket = || OwnedFd::from(std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        let interface = AttachedInterface {
            name: "default".to_owned(),
            pod_link: "eth0".to_owned(),
            tap: "tap0".to_owned(),
            bridge: "k6t-eth0".to_owned(),
            mac: Mac::stable("uid", "default"),
            mtu: 1500,
            queues: 1,
            guest4: Ipv4Addr::new(10, 0, 2, 2),
            gateway4: Ipv4Addr::new(10, 0, 2, 1),
            prefix4: 24,
            guest6: with_six.then(|| "fd10:0:2::2".parse().unwrap()),
            gateway6: with_six.then(|| "fd10:0:2::1".parse().unwrap()),
            prefix6: with_six.then_some(120),
            pod_addresses: Vec::new(),
        };
        let sockets = Sockets { dhcp4: socket(), dhcp6: with_six.then(socket), ra: with_six.then(socket) };
        Attached { interfaces: vec![interface], sockets: vec![sockets] }
    }

    fn port(socket: &OwnedFd) -> u16 {
        std::net::UdpSocket::from(socket.try_clone().unwrap()).local_addr().unwrap().port()
    }

    #[tokio::test]
    async fn what_is_sent_arrives_with_its_sockets_even_by_a_long_path() {
        let folder = tempfile::tempdir().unwrap();
        let long = folder.path().join("a".repeat(200));
        std::fs::create_dir(&long).unwrap();
        let path = long.join("network-sock");
        let listener = listen(&path).unwrap();
        for with_six in [true, false] {
            let sent = attached(with_six);
            let listener = listen(&path).unwrap();
            let (received, acknowledged) = tokio::join!(receive(&listener), send(&path, &sent));
            acknowledged.unwrap();
            let received = received.unwrap();
            assert_eq!(received.interfaces, sent.interfaces);
            let ports = |it: &Attached| (port(&it.sockets[0].dhcp4), it.sockets[0].ra.as_ref().map(port));
            assert_eq!(ports(&received), ports(&sent));
        }
        drop(listener);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_second_handover_adds_what_is_new_and_touches_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("network-sock");
        let listener = listen(&path).unwrap();
        let mut taken = Taken::default();
        let first = attached(false);
        let mut second = attached(false);
        let mut more = attached(false);
        more.interfaces[0].name = "more".to_owned();
        second.interfaces.append(&mut more.interfaces);
        second.sockets.append(&mut more.sockets);
        let names = |served: &[(AttachedInterface, Sockets)]| -> Vec<(String, u16)> {
            served.iter().map(|(interface, sockets)| (interface.name.clone(), port(&sockets.dhcp4))).collect()
        };
        let of =
            |sent: &Attached, index: usize| (sent.interfaces[index].name.clone(), port(&sent.sockets[index].dhcp4));
        for (sent, new) in [(&first, vec![of(&first, 0)]), (&first, vec![]), (&second, vec![of(&second, 1)])] {
            let (received, acknowledged) = tokio::join!(receive(&listener), send(&path, sent));
            acknowledged.unwrap();
            taken.add(received.unwrap());
            assert_eq!(names(&taken.unserved()), new);
        }
        assert_eq!(taken.interfaces(), second.interfaces);
    }

    #[tokio::test]
    async fn garbage_is_not_answered_and_the_next_one_is_heard() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("network-sock");
        let listener = listen(&path).unwrap();
        let garbage = async {
            let socket = seqpacket().unwrap();
            connect(&socket, &SocketPath::of(&path).unwrap().address().unwrap()).unwrap();
            rustix::net::send(&socket, b"{", rustix::net::SendFlags::empty()).unwrap();
            drop(socket);
            // Interfaces without their sockets.
            let mut incomplete = attached(true);
            incomplete.sockets.clear();
            assert!(send(&path, &incomplete).await.is_err());
            send(&path, &attached(true)).await.unwrap();
        };
        let (received, ()) = tokio::join!(receive(&listener), garbage);
        assert_eq!(received.unwrap().sockets.len(), 1);
    }

    #[tokio::test]
    async fn nobody_there_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let sent = send(&folder.path().join("network-sock"), &attached(false)).await;
        assert!(matches!(sent, Err(HandoverError::Socket { action: "connect to", .. })));
    }
}
