//! The guests of this node, for those who ask about them from outside: virt-api.
//!
//! ```text
//! virt-api ──> NodeGuests ──> the launcher's connection: questions, the serial port
//!                        ├──> QEMU's socket in the launcher's folder: the screen
//!                        └──> the launcher's network namespace: ports
//! ```
//! In one process virt-api has this value itself. Where nodes are processes of their own on one machine, it finds their launchers
//! below the nodes' directories. On Kubernetes virt-handler serves it over TLS ([`door`]), and virt-api has a
//! client of that instead; nothing else changes.

mod attached;
mod dial;
pub(crate) mod door;
mod screen;
mod told;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use hypervisor::render::{SERIAL_SOCKET, VNC_SOCKET};
use launcher_api::Feature;
use launcher_api::client::{self, Client};
use launcher_api::names::PRIVATE;
use launcher_api::rpc::{ConsoleInput, Empty, FreezeRequest, ScreenshotRequest};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::io::{CopyToBytes, SinkWriter, StreamReader};
use tokio_util::sync::PollSender;
use tonic::{Code, Status};
use virt_api::subresources::{Answering, Connection, GuestError, GuestName, Guests, Question, Reply, Way};

use crate::folders;
use crate::host::{Machine, Reached};
use crate::isolation::Peer;
use crate::launchers::connect;
use attached::Attached;
use screen::Screens;

/// How long a launcher may take for an answer; a guest's agent takes its time.
const ANSWER: Duration = Duration::from_secs(30);
/// How long a launcher may take to open a way.
const DIAL: Duration = Duration::from_secs(10);
/// Pieces that wait for the launcher.
const TYPED: usize = 16;

/// The guests of this machine's nodes. Clones are the same; before a node's handler has started there are none of it.
#[derive(Clone, Default)]
pub struct NodeGuests {
    nodes: Arc<Mutex<BTreeMap<String, Node>>>,
}

#[derive(Clone)]
struct Node {
    launchers: Source,
    screens: Screens,
}

/// Where the launchers of a node are found.
#[derive(Clone)]
enum Source {
    /// With the handler in this process, which is connected to them.
    Handler(Arc<Machine>),
    /// Below the kubelet's directory of pods: the handler is another process of this machine.
    Pods(PathBuf),
}

impl std::fmt::Debug for NodeGuests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeGuests").field("nodes", &self.nodes().keys()).finish()
    }
}

impl NodeGuests {
    /// From now on the guests of this node are reached, through the handler in this process.
    pub(crate) fn are_of(&self, node: &str, machine: Arc<Machine>) {
        self.add(node, Source::Handler(machine));
    }

    /// From now on the guests of this node are reached, through the kubelet's directory of its pods: its handler is another process.
    pub fn are_below(&self, node: &str, pods: PathBuf) {
        self.add(node, Source::Pods(pods));
    }

    fn add(&self, node: &str, launchers: Source) {
        self.nodes().insert(node.to_owned(), Node { launchers, screens: Screens::default() });
    }

    fn nodes(&self) -> MutexGuard<'_, BTreeMap<String, Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node that a guest is on, if it is one of these.
    fn node_of(&self, guest: &GuestName) -> Result<Node, GuestError> {
        let nodes = self.nodes();
        if nodes.is_empty() {
            return Err(GuestError::Unknown("virt-handler has not started yet".to_owned()));
        }
        let GuestName { namespace, name, node, .. } = guest;
        let missing = || format!("VMI {namespace}/{name} is on node {node:?}, which cannot be reached");
        nodes.get(node).cloned().ok_or_else(|| GuestError::Unknown(missing()))
    }
}

impl Guests for NodeGuests {
    fn ask(&self, guest: GuestName, question: Question) -> Answering<Reply> {
        let node = self.node_of(&guest);
        Box::pin(async move {
            let launcher = node?.launcher(&guest).await?;
            let asking = ask(launcher.client.clone(), question);
            timeout(ANSWER, asking).await.unwrap_or_else(|_| {
                Err(GuestError::Failed(format!("the launcher did not answer within {} s", ANSWER.as_secs())))
            })
        })
    }

    fn open(&self, guest: GuestName, way: Way) -> Answering<Connection> {
        let node = self.node_of(&guest);
        Box::pin(async move {
            let node = node?;
            match way {
                Way::Console { replay } => node.console(&guest, replay).await,
                Way::Vnc { preserve } => node.screen(&guest, preserve).await,
                Way::Port { port } => node.port(&guest, port).await,
                Way::Datagrams { port } => node.datagrams(&guest, port).await,
            }
        })
    }
}

impl Node {
    /// The guest's launcher.
    async fn launcher(&self, guest: &GuestName) -> Result<Arc<Reached>, GuestError> {
        let found = match &self.launchers {
            Source::Handler(machine) => machine.launcher_of(&guest.uid),
            Source::Pods(pods) => timeout(DIAL, reach(pods, &guest.uid)).await.ok().flatten().map(Arc::new),
        };
        found.ok_or_else(|| unreachable(guest))
    }

    fn pods(&self) -> PathBuf {
        match &self.launchers {
            Source::Handler(machine) => machine.pods(),
            Source::Pods(pods) => pods.clone(),
        }
    }

    async fn console(&self, guest: &GuestName, replay: bool) -> Result<Connection, GuestError> {
        let launcher = self.launcher(guest).await?;
        let mut client = launcher.client.clone();
        if !launcher.greeting.has(Feature::Console) {
            // A launcher of an earlier release: QEMU's port is free.
            let socket = self.socket(guest, SERIAL_SOCKET).await;
            return socket.map(|socket| Box::new(socket) as Connection).map_err(|error| closed("serial port", &error));
        }
        let (typed, lines) = mpsc::channel::<Bytes>(TYPED);
        let begin = tokio_stream::iter([ConsoleInput { data: Vec::new(), replay }]);
        let lines = ReceiverStream::new(lines).map(|data| ConsoleInput { data: data.into(), replay: false });
        let opened = timeout(DIAL, client.console(begin.chain(lines))).await;
        let opened = opened.map_err(|_| GuestError::Failed("the launcher did not open its console".to_owned()))?;
        let written = opened.map_err(|status| refused(&status))?.into_inner();
        let written = written.map(|message| match message {
            Ok(output) => Ok(Bytes::from(output.data)),
            Err(status) => Err(io::Error::other(status.message().to_owned())),
        });
        let typed = PollSender::new(typed).sink_map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe));
        let both = tokio::io::join(StreamReader::new(written), SinkWriter::new(CopyToBytes::new(typed)));
        Ok(Box::new(both))
    }

    async fn screen(&self, guest: &GuestName, preserve: bool) -> Result<Connection, GuestError> {
        let opening = async { self.socket(guest, VNC_SOCKET).await.map_err(|error| closed("screen", &error)) };
        Ok(Box::new(self.screens.open(&guest.uid, preserve, opening).await?))
    }

    /// Dials the guest from its own pod, as the pod's programs do: no address that a guest tells is trusted, and nothing of this
    /// machine can be reached in this way.
    async fn port(&self, guest: &GuestName, port: u16) -> Result<Connection, GuestError> {
        let (network, gone) = self.network(guest).await?;
        let dialled = dial::stream(network, port).await.map_err(|error| undialled(port, &error))?;
        Ok(Box::new(Attached::new(dialled, gone)))
    }

    /// The same for datagrams.
    async fn datagrams(&self, guest: &GuestName, port: u16) -> Result<Connection, GuestError> {
        let (network, gone) = self.network(guest).await?;
        let opened = dial::datagrams(network, port).await.map_err(|error| undialled(port, &error))?;
        Ok(Box::new(Attached::new(opened, gone)))
    }

    /// The network namespace of the guest's pod, and what resolves when its launcher has ended.
    async fn network(
        &self,
        guest: &GuestName,
    ) -> Result<(OwnedFd, impl Future<Output = ()> + Send + 'static + use<>), GuestError> {
        let launcher = self.launcher(guest).await?;
        let peer = Some(&launcher.peer).filter(|peer| peer.is_alive());
        let both = peer.and_then(|peer| Some((peer.network().ok()?, peer.ended().ok()?)));
        both.ok_or_else(|| unreachable(guest))
    }

    /// A socket of QEMU's in the launcher's folder, opened such that the launcher cannot lead us elsewhere.
    async fn socket(&self, guest: &GuestName, name: &str) -> io::Result<UnixStream> {
        let launcher = self.launcher(guest).await.map_err(|_| io::Error::from(io::ErrorKind::NotFound))?;
        if !folders::is_plain(&launcher.pod) || !folders::is_plain(&guest.uid) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let pods = folders::open_own(&self.pods())?;
        let folder = folders::open_beneath(&pods, &folders::volume_path(&launcher.pod, PRIVATE).join(&guest.uid))?;
        let socket = folders::open_socket(&folder, name)?;
        UnixStream::connect(folders::by_descriptor(socket.as_fd())).await
    }
}

/// Connects to the launcher of an instance, wherever it is among these pods. Whoever can read this directory is root.
async fn reach(pods: &Path, instance: &str) -> Option<Reached> {
    if !folders::is_plain(instance) {
        return None;
    }
    let entries = std::fs::read_dir(pods).ok()?.flatten();
    let mut uids = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let pod = uids.find(|pod| pods.join(folders::volume_path(pod, PRIVATE)).join(instance).is_dir())?;
    let stream = connect(pods, &pod, Duration::ZERO).await.ok()?;
    let peer = Peer::of(&stream, &pod).ok()?;
    let mut client = client::over(stream).await.ok()?;
    let greeting = client::greet(&mut client).await.ok()?;
    Some(Reached { instance: instance.to_owned(), pod, peer, client, greeting })
}

async fn ask(mut client: Client, question: Question) -> Result<Reply, GuestError> {
    let done = |answer: Result<(), Status>| answer.map(|()| Reply::Done).map_err(|status| refused(&status));
    match question {
        Question::Pause => done(client.pause(Empty {}).await.map(drop)),
        Question::Unpause => done(client.unpause(Empty {}).await.map(drop)),
        Question::Reset => done(client.reset(Empty {}).await.map(drop)),
        Question::SoftReboot => done(client.soft_reboot(Empty {}).await.map(drop)),
        Question::Freeze { thaw_after } => {
            let unfreeze_ms = thaw_after.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
            done(client.freeze(FreezeRequest { unfreeze_ms }).await.map(drop))
        }
        Question::Unfreeze => done(client.unfreeze(Empty {}).await.map(drop)),
        Question::Info => {
            let info = client.get_guest_info(Empty {}).await.map_err(|status| refused(&status))?.into_inner();
            // An agent that tells one thing need not tell the others.
            let users = client.get_users(Empty {}).await.map(tonic::Response::into_inner).unwrap_or_default();
            let mounted = client.get_filesystems(Empty {}).await.map(tonic::Response::into_inner).unwrap_or_default();
            Ok(Reply::Object(told::info(info, users, mounted)))
        }
        Question::Users => {
            let users = client.get_users(Empty {}).await.map_err(|status| refused(&status))?;
            Ok(Reply::Object(told::list(&told::users(users.into_inner()))))
        }
        Question::Filesystems => {
            let mounted = client.get_filesystems(Empty {}).await.map_err(|status| refused(&status))?;
            Ok(Reply::Object(told::list(&told::filesystems(mounted.into_inner()))))
        }
        Question::Screenshot | Question::MovedScreenshot => {
            let wanted = ScreenshotRequest { move_cursor: question == Question::MovedScreenshot };
            let picture = client.screenshot(wanted).await.map_err(|status| refused(&status))?;
            Ok(Reply::Picture(Bytes::from(picture.into_inner().png)))
        }
    }
}

fn unreachable(guest: &GuestName) -> GuestError {
    GuestError::Unknown(format!("the launcher of VMI {}/{} cannot be reached", guest.namespace, guest.name))
}

fn undialled(port: u16, error: &io::Error) -> GuestError {
    GuestError::Failed(format!("dialing VM: port {port}: {error}"))
}

fn closed(what: &str, error: &io::Error) -> GuestError {
    GuestError::Failed(format!("the guest's {what} cannot be opened: {error}"))
}

/// What a launcher's refusal is to whoever asked.
fn refused(status: &Status) -> GuestError {
    let message = status.message().to_owned();
    match status.code() {
        Code::FailedPrecondition | Code::NotFound => GuestError::Refused(message),
        _ => GuestError::Failed(message),
    }
}

#[cfg(test)]
mod tests;
