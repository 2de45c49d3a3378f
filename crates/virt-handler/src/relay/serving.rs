//! The target's side: who is let in, and what becomes of what it sends.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use launcher_api::Outcome;
use manager::errors::chain;
use tokio::io::{AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConnection;
use tokio_rustls::rustls::pki_types::CertificateDer;

use super::wire::{Answer, Channel, Frame, Question, Reply, read, write};
use super::{Credentials, GREETING, mind_absence};
use crate::host::Doing;

/// Connections at the same time: a migration has one for its memory, one for each disk, and one for words.
const MOST: usize = 256;
/// Connections of one address that have not shown yet whose they are.
const STRANGERS: usize = 32;
/// Channels that are remembered as carried; those of migrations that are over are forgotten first.
const REMEMBERED: usize = 4096;
/// Channels of one migration: more than a guest has disks.
const OF_ONE: usize = 256;

/// What a node awaits. Asked for each connection, when its frame has come.
pub(crate) trait Door: Send + Sync {
    /// Whether `node` may send this, and where it goes.
    fn admit<'a>(&'a self, node: &'a str, frame: &'a Frame) -> Doing<'a, Result<Admitted, NotAdmitted>>;

    /// Whether the migration of a frame is under way, so that another channel of it may come.
    fn is_under_way(&self, frame: &Frame) -> bool;

    /// Replies to a question of somebody who was let in.
    fn reply<'a>(&'a self, frame: &'a Frame, question: Question) -> Doing<'a, Reply>;
}

/// Where a channel goes.
pub(crate) enum Admitted {
    /// To QEMU.
    Stream(UnixStream),
    /// To whoever replies.
    Words,
}

/// Why a connection was not let in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotAdmitted {
    #[error("no launcher with pod {0} is on this node")]
    Pod(String),
    #[error("the instance is not known here")]
    Instance,
    #[error("migration {0} is not under way")]
    Migration(String),
    #[error("node {0} has nothing to send to this launcher")]
    Node(String),
    #[error("{0}")]
    Model(Outcome),
    #[error("the target was prepared for another guest: the digests of the models differ")]
    Guest,
    #[error("QEMU does not listen")]
    Closed(#[source] io::Error),
    #[error("this channel was carried already")]
    Carried,
    #[error("too many channels are carried")]
    TooMany,
}

/// Serves the connections of other nodes for as long as it is polled.
pub(crate) async fn serve(listener: TcpListener, credentials: Arc<dyn Credentials>, door: Arc<dyn Door>) {
    let serving = Arc::new(Serving {
        credentials,
        door,
        carried: Mutex::default(),
        places: Semaphore::new(MOST),
        strangers: Strangers::default(),
    });
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            // Out of descriptors, for example: others may end meanwhile.
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection for a migration");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some(stranger) = serving.strangers.admit(address.ip()) else { continue };
        let serving = serving.clone();
        tokio::spawn(async move {
            if let Err(error) = serving.receive(stream, stranger).await {
                tracing::info!(%error, %address, "a connection for a migration ended");
            }
        });
    }
}

/// Who has connected and has not shown yet who it is. Nobody can keep others out by saying nothing.
#[derive(Clone, Default)]
struct Strangers(Arc<Mutex<BTreeMap<IpAddr, usize>>>);

/// A stranger, as long as it is one.
struct Stranger {
    all: Strangers,
    address: IpAddr,
}

impl Strangers {
    fn counts(&self) -> MutexGuard<'_, BTreeMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(&self, address: IpAddr) -> Option<Stranger> {
        let mut counts = self.counts();
        let of_this = counts.get(&address).copied().unwrap_or_default();
        if of_this >= STRANGERS || counts.values().sum::<usize>() >= MOST {
            return None;
        }
        counts.insert(address, of_this + 1);
        Some(Stranger { all: self.clone(), address })
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let mut counts = self.all.counts();
        let left = counts.remove(&self.address).unwrap_or_default().saturating_sub(1);
        if left > 0 {
            counts.insert(self.address, left);
        }
    }
}

struct Serving {
    credentials: Arc<dyn Credentials>,
    door: Arc<dyn Door>,
    carried: Mutex<BTreeSet<Frame>>,
    places: Semaphore,
    strangers: Strangers,
}

impl Serving {
    async fn receive(&self, stream: TcpStream, stranger: Stranger) -> io::Result<()> {
        let Self { credentials, door, carried, places, .. } = self;
        mind_absence(&stream)?;
        // A handshake takes the certificates of its moment.
        let acceptor = TlsAcceptor::from(credentials.server().map_err(io::Error::other)?);
        let greeting = async {
            let mut stream = acceptor.accept(stream).await?;
            let node = name_of(stream.get_ref().1)?;
            drop(stranger);
            // Nobody closes it.
            let place = places.acquire().await.map_err(io::Error::other)?;
            let frame: Frame = read(&mut stream).await?;
            match admit(door.as_ref(), &node, &frame, carried).await {
                Ok(admitted) => {
                    write(&mut stream, &Answer::Welcome).await?;
                    Ok((stream, frame, admitted, place))
                }
                Err(error) => {
                    write(&mut stream, &Answer::Refused { why: chain(&error) }).await?;
                    stream.shutdown().await?;
                    Err(io::Error::other(error))
                }
            }
        };
        let (mut stream, frame, admitted, _place) = timeout(GREETING, greeting).await.map_err(io::Error::from)??;
        match admitted {
            Admitted::Stream(mut near) => copy_bidirectional(&mut stream, &mut near).await.map(drop),
            Admitted::Words => {
                let question = timeout(GREETING, read(&mut stream)).await.map_err(io::Error::from)??;
                let reply = door.reply(&frame, question).await;
                write(&mut stream, &reply).await?;
                stream.shutdown().await
            }
        }
    }
}

/// Lets a connection in, each channel once.
pub(super) async fn admit(
    door: &dyn Door,
    node: &str,
    frame: &Frame,
    carried: &Mutex<BTreeSet<Frame>>,
) -> Result<Admitted, NotAdmitted> {
    let admitted = door.admit(node, frame).await?;
    if frame.channel == Channel::Words {
        return Ok(admitted);
    }
    let mut carried = carried.lock().unwrap_or_else(PoisonError::into_inner);
    if carried.len() >= REMEMBERED {
        carried.retain(|one| door.is_under_way(one));
    }
    let of_this = carried.iter().filter(|one| one.migration == frame.migration).count();
    if carried.len() >= REMEMBERED || of_this >= OF_ONE {
        return Err(NotAdmitted::TooMany);
    }
    if carried.insert(frame.clone()) { Ok(admitted) } else { Err(NotAdmitted::Carried) }
}

/// Who is on the other side, by its certificate.
pub(crate) fn name_of(connection: &ServerConnection) -> io::Result<String> {
    let certificate = connection.peer_certificates().and_then(<[CertificateDer<'_>]>::first);
    let certificate = certificate.ok_or_else(|| io::Error::other("the peer showed no certificate"))?;
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(io::Error::other)?;
    let name = parsed.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    name.map(ToOwned::to_owned).ok_or_else(|| io::Error::other("the peer's certificate names nobody"))
}
