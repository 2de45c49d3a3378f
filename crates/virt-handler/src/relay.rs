//! The relay: carries a migration's bytes from the launcher of one node to that of another, over mutual TLS.
//!
//! ```text
//! launcher's leaving socket ──> source's handler ==TLS, one connection per channel==> target's handler ──> QEMU's socket
//!                               source's handler ==TLS, questions and answers=======> target's handler ──> launcher
//! ```
//! Each connection begins with one frame that names migration, pod, model digest and channel, and one answer. Nothing secret is in an
//! object's status: who may connect follows from certificates, and what may be sent from what the target's handler knows itself.
//!
//! # Guarantees
//! - Bytes reach a target only from the node that its migration names, for the pod and the guest that it was prepared for.
//! - A channel is carried once. What comes second is refused, so that nobody can be taken for a guest's memory.
//! - Who has not shown a certificate takes no place of a migration, and has few places of its own.
//! - A peer that vanishes without a word is noticed: its connections end after [`SILENCE`], or when the kernel gives up what is on its
//!   way to it. Until then the limits of the migration decide. A peer that is there and only takes nothing for a while is waited for.

mod serving;
#[cfg(test)]
mod tests;
mod wire;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use certificates::CertificateError;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ServerConfig};

pub(crate) use serving::{Admitted, Door, NotAdmitted, name_of, serve};
use wire::{Answer, read, write};
pub(crate) use wire::{Channel, Frame, Question, Reply};

/// How long a handshake, a frame and an answer may take together.
const GREETING: Duration = Duration::from_secs(20);
/// How long a question may take whose reply is read from images, for their digests.
const READING: Duration = Duration::from_secs(600);
/// How long any other question may take. The other node's launcher is asked, and addresses are moved.
const ASKING: Duration = Duration::from_secs(60);
/// How long a peer that owes nothing may be silent before its connections end.
const SILENCE: Duration = Duration::from_secs(30);
/// A target that takes none of a guest's memory for this long is gone, or as good as gone.
const MEMORY_SILENCE: Duration = Duration::from_secs(60);

/// How the handlers of other nodes are known, and how they know this one.
pub trait Credentials: Send + Sync {
    /// For those who connect to this node. Only other handlers are let in.
    ///
    /// # Errors
    /// When there is no certificate to be had.
    fn server(&self) -> Result<Arc<ServerConfig>, CertificateError>;

    /// For connections to other nodes, each by its name.
    ///
    /// # Errors
    /// When there is no certificate to be had.
    fn client(&self) -> Result<Arc<ClientConfig>, CertificateError>;
}

/// How this node takes part in migrations.
#[derive(Clone)]
pub struct Relay {
    /// Where other nodes reach this one.
    pub address: IpAddr,
    /// The port; any that is free, if it is zero.
    pub port: u16,
    pub credentials: Arc<dyn Credentials>,
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay").field("address", &self.address).field("port", &self.port).finish_non_exhaustive()
    }
}

/// Why another node did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RelayError {
    #[error("connect to virt-handler on the other node")]
    Unreachable(#[source] io::Error),
    #[error("find a certificate for the connection")]
    Certificate(#[from] CertificateError),
    #[error("{0}")]
    Refused(String),
    #[error("this node takes no part in migrations")]
    Absent,
}

/// The launcher that a guest is to come to.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    /// Its node, which its handler's certificate must name.
    pub(crate) node: String,
    /// The UID of the migration.
    pub(crate) migration: String,
    /// The UID of its pod.
    pub(crate) pod: String,
    /// The digest of the guest's model.
    pub(crate) digest: String,
}

impl Target {
    fn frame(&self, channel: Channel) -> Frame {
        let Self { migration, pod, digest, .. } = self;
        Frame { migration: migration.clone(), pod: pod.clone(), digest: digest.clone(), channel }
    }
}

impl Relay {
    /// Listens for other nodes.
    pub(crate) fn listen(&self) -> io::Result<TcpListener> {
        let listener = std::net::TcpListener::bind((self.address, self.port))?;
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    }

    /// Asks the target's handler something.
    pub(crate) async fn ask(&self, target: &Target, question: &Question) -> Result<Reply, RelayError> {
        let mut stream = self.connect(target, Channel::Words).await?;
        let asked = async {
            write(&mut stream, question).await?;
            read(&mut stream).await
        };
        let patience = match question {
            Question::Disks => READING,
            Question::Settle | Question::Take { .. } => ASKING,
        };
        let reply = timeout(patience, asked).await.map_err(io::Error::from).flatten();
        match reply.map_err(RelayError::Unreachable)? {
            Reply::Refused { why } => Err(RelayError::Refused(why)),
            reply => Ok(reply),
        }
    }

    /// Carries a channel of a launcher here to the target, until one of the two ends it.
    pub(crate) async fn carry(
        &self,
        target: &Target,
        channel: Channel,
        mut near: UnixStream,
    ) -> Result<(), RelayError> {
        let mut far = self.connect(target, channel).await?;
        tokio::spawn(async move {
            // What becomes of the migration, the launchers tell.
            let ended = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            tracing::debug!(?ended, "a channel of a migration ended");
        });
        Ok(())
    }

    /// Connects to the handler of another node. Its certificate must be that node's.
    async fn connect(&self, target: &Target, channel: Channel) -> Result<TlsStream<TcpStream>, RelayError> {
        let config = self.credentials.client()?;
        let name = ServerName::try_from(target.node.clone())
            .map_err(|_| RelayError::Refused(format!("{:?} cannot be a node's name", target.node)))?;
        let greeting = async {
            let stream = TcpStream::connect(target.address).await?;
            match channel {
                // Its guest may be stopped, and waits for the end of this channel to go on here.
                Channel::Memory => manager::accepting::mind_silence(&stream, MEMORY_SILENCE)?,
                Channel::Disk(_) | Channel::Words => mind_absence(&stream)?,
            }
            let mut stream = TlsConnector::from(config).connect(name, stream).await?;
            write(&mut stream, &target.frame(channel)).await?;
            let answer: Answer = read(&mut stream).await?;
            Ok((stream, answer))
        };
        let greeted = timeout(GREETING, greeting).await.map_err(io::Error::from).flatten();
        match greeted.map_err(RelayError::Unreachable)? {
            (stream, Answer::Welcome) => Ok(stream),
            (_, Answer::Refused { why }) => Err(RelayError::Refused(why)),
        }
    }
}

/// A guest's disk may keep the other side busy for longer than this.
fn mind_absence(stream: &TcpStream) -> io::Result<()> {
    manager::accepting::mind_absence(stream, SILENCE)
}
