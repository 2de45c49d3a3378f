//! The bytes of a migration on their way out of the launcher.
//!
//! virt-handler connects to the launcher, one connection for each channel, and says first which one it carries; QEMU connects to
//! the launcher as well; the launcher passes bytes between the two.
//!
//! That QEMU does not talk to the network itself has a reason. A QEMU whose connection breaks lets its guest run on at once. After the
//! guest has parted, the other side may have all of it by then. So from that moment on a lane is held: if the far end breaks, QEMU's end
//! stays open, and QEMU waits until the launcher knows where the guest goes on.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use launcher_api::names::LEAVING_SOCKET;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// How long virt-handler, and then QEMU, may take to connect.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest name of a channel.
const LONGEST: usize = 64;
const BUFFER: usize = 128 << 10;

/// Connections that carry a guest away.
#[derive(Debug)]
pub(crate) struct Lanes {
    listener: UnixListener,
    path: PathBuf,
    runtime: PathBuf,
    /// Those that have come before anybody asked for them.
    waiting: BTreeMap<String, UnixStream>,
}

impl Drop for Lanes {
    fn drop(&mut self) {
        // The directory may be gone already, and the file with it.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Lanes {
    /// Listens in the guest's own directory.
    pub(crate) fn open(runtime: &Path) -> io::Result<Self> {
        let (listener, path) = listen(runtime, LEAVING_SOCKET)?;
        Ok(Self { listener, path, runtime: runtime.to_owned(), waiting: BTreeMap::new() })
    }

    /// The connection that carries a channel.
    async fn far_end(&mut self, channel: &str) -> io::Result<UnixStream> {
        loop {
            if let Some(stream) = self.waiting.remove(channel) {
                return Ok(stream);
            }
            let (mut stream, _) = self.listener.accept().await?;
            let name = timeout(PATIENCE, read_name(&mut stream)).await.map_err(io::Error::from)??;
            self.waiting.insert(name, stream);
        }
    }

    /// A lane for a channel: virt-handler's end is there, and QEMU is to connect to the path.
    pub(super) async fn lane(&mut self, channel: &str) -> io::Result<Lane> {
        let far = timeout(PATIENCE, self.far_end(channel)).await.map_err(|_| {
            io::Error::new(io::ErrorKind::TimedOut, format!("nobody came to carry the channel {channel:?}"))
        })??;
        let (listener, path) = listen(&self.runtime, &format!("out-{}.sock", channel.replace(' ', "-")))?;
        Ok(Lane { listener, path, far })
    }
}

fn listen(runtime: &Path, name: &str) -> io::Result<(UnixListener, PathBuf)> {
    let path = runtime.join(name);
    if let Err(error) = std::fs::remove_file(&path)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    Ok((listener, path))
}

/// The first line, and not a byte more: what follows is the channel's.
async fn read_name(stream: &mut UnixStream) -> io::Result<String> {
    let mut name = Vec::new();
    loop {
        match stream.read_u8().await? {
            b'\n' => return String::from_utf8(name).map_err(io::Error::other),
            _ if name.len() == LONGEST => return Err(io::Error::other("the channel's name is too long")),
            byte => name.push(byte),
        }
    }
}

/// A channel that QEMU has not connected to yet.
pub(super) struct Lane {
    listener: UnixListener,
    path: PathBuf,
    far: UnixStream,
}

impl Lane {
    /// Where QEMU is to connect.
    pub(super) fn path(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }

    /// Waits for QEMU, and passes bytes on from then on.
    pub(super) async fn connect(self) -> io::Result<Pump> {
        let accepted = timeout(PATIENCE, self.listener.accept()).await;
        // Nobody else is to connect.
        let _ = std::fs::remove_file(&self.path);
        let (qemu, _) = accepted.map_err(io::Error::from)??;
        Ok(Pump::start(qemu, self.far))
    }
}

/// Whether QEMU's end stays open when the far end breaks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Hold {
    No,
    Yes,
    Released,
}

/// A channel that bytes go through, in both directions. One that was never held ends with this.
#[derive(Debug)]
pub(super) struct Pump {
    hold: watch::Sender<Hold>,
    cut: watch::Receiver<bool>,
    carrying: AbortHandle,
}

impl Drop for Pump {
    fn drop(&mut self) {
        // What nobody takes any more would keep QEMU waiting.
        if *self.hold.borrow() == Hold::No {
            self.carrying.abort();
        }
    }
}

impl Pump {
    fn start(qemu: UnixStream, far: UnixStream) -> Self {
        let (hold, held) = watch::channel(Hold::No);
        let (cutting, cut) = watch::channel(false);
        let carrying = tokio::spawn(async move { carry(qemu, far, held, cutting).await }).abort_handle();
        Self { hold, cut, carrying }
    }

    /// From now on QEMU does not learn that the far end broke. It never learns if it broke just before: then QEMU was told already,
    /// and the far end cannot have what was not sent yet.
    pub(super) fn hold(&self) {
        self.hold.send_replace(Hold::Yes);
    }

    /// Lets QEMU learn it.
    pub(super) fn release(&self) {
        self.hold.send_replace(Hold::Released);
    }

    /// Waits until the far end broke while it was held.
    pub(super) async fn cut(&mut self) {
        if self.cut.wait_for(|cut| *cut).await.is_err() {
            // QEMU closed it, which it tells itself.
            std::future::pending::<()>().await;
        }
    }
}

/// Which end of a copy is gone.
enum Gone {
    Reader,
    Writer,
}

async fn carry(qemu: UnixStream, far: UnixStream, mut held: watch::Receiver<Hold>, cut: watch::Sender<bool>) {
    let (mut from_qemu, mut to_qemu) = qemu.into_split();
    let (mut from_far, mut to_far) = far.into_split();
    let qemu_is_gone = tokio::select! {
        biased;
        gone = copy(&mut from_qemu, &mut to_far) => matches!(gone, Gone::Reader),
        gone = copy(&mut from_far, &mut to_qemu) => matches!(gone, Gone::Writer),
    };
    if qemu_is_gone {
        // What was sent arrives before the end.
        let _ = to_far.shutdown().await;
        return;
    }
    if *held.borrow() == Hold::No {
        return;
    }
    cut.send_replace(true);
    let released = async {
        if held.wait_for(|hold| *hold == Hold::Released).await.is_err() {
            // Nobody is left who could know that the guest may run here: it must not.
            std::future::pending::<()>().await;
        }
    };
    let mut nowhere = tokio::io::sink();
    tokio::select! {
        biased;
        () = released => {}
        _ = copy(&mut from_qemu, &mut nowhere) => {}
    }
}

async fn copy(from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin)) -> Gone {
    let mut buffer = vec![0; BUFFER];
    loop {
        match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return Gone::Reader,
            Ok(count) => {
                let (part, _) = buffer.split_at(count);
                if to.write_all(part).await.is_err() {
                    return Gone::Writer;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use launcher_api::names::MEMORY_CHANNEL as MEMORY;

    use super::*;

    async fn pumped() -> (UnixStream, UnixStream, Pump) {
        let (qemu, near) = UnixStream::pair().unwrap();
        let (far, beyond) = UnixStream::pair().unwrap();
        (qemu, beyond, Pump::start(near, far))
    }

    #[tokio::test]
    async fn bytes_go_both_ways_and_what_was_sent_arrives_before_the_end() {
        let (mut qemu, mut beyond, _pump) = pumped().await;
        let mut word = [0; 5];
        beyond.write_all(b"reply").await.unwrap();
        qemu.read_exact(&mut word).await.unwrap();
        assert_eq!(&word, b"reply");
        let reading = tokio::spawn(async move {
            let mut all = Vec::new();
            beyond.read_to_end(&mut all).await.unwrap();
            all.len()
        });
        qemu.write_all(&[7; 1 << 20]).await.unwrap();
        drop(qemu);
        assert_eq!(reading.await.unwrap(), 1 << 20);
    }

    #[tokio::test]
    async fn qemu_learns_that_the_far_end_broke() {
        let (mut qemu, beyond, _pump) = pumped().await;
        drop(beyond);
        assert_eq!(qemu.read(&mut [0]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn qemu_waits_while_a_lane_is_held_and_hears_what_was_said_before() {
        let (mut qemu, mut beyond, mut pump) = pumped().await;
        pump.hold();
        beyond.write_all(b"x").await.unwrap();
        drop(beyond);
        pump.cut().await;
        let mut byte = [0];
        qemu.read_exact(&mut byte).await.unwrap();
        assert_eq!(&byte, b"x");
        qemu.write_all(&[0; 1024]).await.unwrap();
        let waiting = tokio::time::timeout(Duration::from_millis(50), qemu.read(&mut byte)).await;
        assert!(waiting.is_err(), "it was told: {waiting:?}");
        pump.release();
        assert_eq!(qemu.read(&mut byte).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_lane_that_is_given_up_is_closed_even_if_nobody_takes_what_is_in_it() {
        let (mut qemu, beyond, pump) = pumped().await;
        let stuck = tokio::time::timeout(Duration::from_millis(50), qemu.write_all(&[7; 8 << 20])).await;
        assert!(stuck.is_err(), "the far end takes nothing");
        drop(pump);
        let closed = tokio::time::timeout(Duration::from_secs(60), qemu.read(&mut [0])).await.unwrap();
        assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
        drop(beyond);
    }

    #[tokio::test]
    async fn lanes_are_told_apart_by_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let mut lanes = Lanes::open(folder.path()).unwrap();
        let socket = folder.path().join(LEAVING_SOCKET);
        let mut ends = Vec::new();
        for name in ["disk vd0", MEMORY] {
            let mut stream = UnixStream::connect(&socket).await.unwrap();
            stream.write_all(format!("{name}\n{name}").as_bytes()).await.unwrap();
            ends.push(stream);
        }
        for name in [MEMORY, "disk vd0"] {
            let mut far = lanes.far_end(name).await.unwrap();
            let mut text = vec![0; name.len()];
            far.read_exact(&mut text).await.unwrap();
            assert_eq!(text, name.as_bytes());
        }
    }
}
