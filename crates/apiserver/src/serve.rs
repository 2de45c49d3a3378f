//! The server on the network: TLS, client certificates, and clients that are slow, silent or too many.

mod answers;
mod credentials;
mod guard;
mod strangers;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use certificates::{CertificateError, Request};
use futures_util::future::join_all;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

use crate::ApiServer;
use crate::audit::Peer;
use crate::authority;
use crate::identity::Identity;
pub(crate) use answers::Answers;
use credentials::{Credentials, kubeconfig_text};
use guard::Guarded;
use strangers::Crowd;
pub(crate) use strangers::Known;

/// Connections at the same time, at one address; the next ones wait to be accepted.
const MOST_CONNECTIONS: u32 = 4096;
/// Of these, how many may be of clients that are trusted less.
const MOST_STRANGERS: usize = 2048;
/// A client that does not finish its handshake or its headers in this time is cut. It is as long as with kube-apiserver: on a busy
/// machine, an honest client may get no processor for some seconds, and it takes a cut for a server that is broken.
const SLOWEST_START: Duration = Duration::from_secs(32);
/// Requests that are running when the server is told to stop have this long to end.
const SLOWEST_END: Duration = Duration::from_secs(5);

/// Why the server cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("listen on {address}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("prepare certificates")]
    Certificates(#[from] CertificateError),
}

/// Where a server listens.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// Its own address, which kubeconfigs name; port 0 takes a free one.
    pub own: SocketAddr,
    /// Further addresses, with the same port, for clients that are trusted less: however many connections they open, the
    /// server is still reached at its own. The machine may get these addresses later.
    pub further: Vec<IpAddr>,
    /// Where else the machine is reached, if its own address is all of them: the certificate names these, too.
    pub public: Vec<IpAddr>,
    /// The machine's name, which the certificate then names as well.
    pub host: Option<String>,
}

impl From<SocketAddr> for Addresses {
    fn from(own: SocketAddr) -> Self {
        Self { own, further: Vec::new(), public: Vec::new(), host: None }
    }
}

/// A listener, and those addresses of it that are for clients that are trusted less.
struct Door {
    listener: TcpListener,
    strangers: Vec<IpAddr>,
}

/// A server that listens and is not yet running.
pub struct Listening {
    doors: Vec<Door>,
    credentials: Arc<Credentials>,
}

impl Listening {
    /// Listens, with certificates of an authority that is kept in `folder`, and writes the admin's kubeconfig there.
    ///
    /// # Errors
    /// When an address is taken or a file cannot be written.
    pub async fn on(addresses: impl Into<Addresses>, folder: &Path, server: &ApiServer) -> Result<Self, ServeError> {
        let Addresses { own, further, public, host } = addresses.into();
        let failed = |source| ServeError::Listen { address: own, source };
        let listener = TcpListener::bind(own).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        // Whoever listens everywhere listens there already.
        let (inside, outside): (Vec<IpAddr>, Vec<IpAddr>) = further.iter().partition(|ip| covers(own.ip(), **ip));
        let mut doors = vec![Door { listener, strangers: inside }];
        for ip in outside {
            let address = SocketAddr::new(ip, address.port());
            let failed = |source| ServeError::Listen { address, source };
            doors.push(Door { listener: listen_early(address).map_err(failed)?, strangers: vec![ip] });
        }
        let mut reached = vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        let everywhere = public.into_iter().filter(|_| own.ip().is_unspecified());
        for ip in further.into_iter().chain(everywhere).chain([address.ip()]) {
            if !ip.is_unspecified() && !reached.contains(&ip) {
                reached.push(ip);
            }
        }
        let host = host.filter(|_| own.ip().is_unspecified());
        let local = if address.ip().is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { address.ip() };
        let public = SocketAddr::new(local, address.port());
        server.inner.address.store(Arc::new(public.to_string()));
        let now = server.inner.clock.now();
        let credentials = Credentials::issue(folder, public, &reached, host.as_deref(), now)?;
        Ok(Self { doors, credentials: Arc::new(credentials) })
    }

    /// Where it is reached.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.credentials.address
    }

    /// The admin's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.credentials.kubeconfig
    }

    /// Serves until `stop` resolves, then lets running requests and streams end. Watches are cut.
    pub async fn run(self, server: ApiServer, stop: impl Future<Output = ()>) {
        let (stopping, stopped) = watch::channel(false);
        let Self { doors, credentials } = self;
        let open = |door| accept(door, credentials.clone(), server.clone(), stopped.clone());
        let doors = join_all(doors.into_iter().map(open));
        let stop = async {
            stop.await;
            stopping.send_replace(true);
            // Connections that are not HTTP any more take leave of their clients.
            server.inner.stopping.send_replace(true);
            drop(timeout(SLOWEST_END, server.inner.stopping.closed()).await);
        };
        tokio::select! {
            biased;
            _ = async { tokio::join!(doors, stop) } => {}
            () = credentials.renew(&server.inner.clock) => {}
        }
    }
}

/// Makes a kubeconfig for a user of a group, signed by the authority of a server that was started in `folder` before. It
/// leads to where the server is reached from its own machine.
///
/// # Errors
/// When the server was never started there, or its files cannot be read.
pub fn kubeconfig_for(folder: &Path, address: SocketAddr, user: &str, group: &str) -> Result<String, ServeError> {
    let now = crate::Clock::system().now();
    let keeper = authority::open(&folder.join("pki"), now)?;
    let leaf = keeper.issue(&Request::client(user, &[group]), now)?;
    Ok(kubeconfig_text(address, &keeper.trusted().borrow(), user, &leaf))
}

/// Whether a socket at one address also takes connections to the other.
fn covers(own: IpAddr, other: IpAddr) -> bool {
    match own {
        IpAddr::V4(own) => own.is_unspecified() && other.is_ipv4(),
        // As Linux has it unless told otherwise: both families.
        IpAddr::V6(own) => own.is_unspecified(),
    }
}

/// Listens on an address that the machine may not have yet.
fn listen_early(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    socket.set_reuseaddr(true)?;
    match address {
        SocketAddr::V4(_) => rustix::net::sockopt::set_ip_freebind(&socket, true),
        SocketAddr::V6(_) => rustix::net::sockopt::set_ipv6_freebind(&socket, true),
    }?;
    socket.bind(address)?;
    socket.listen(1024)
}

/// Accepts connections at one address until the end, and waits for the last of them.
async fn accept(door: Door, credentials: Arc<Credentials>, server: ApiServer, stopped: watch::Receiver<bool>) {
    let Door { listener, strangers } = door;
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS as usize));
    let of_strangers = Arc::new(Semaphore::new(MOST_STRANGERS));
    let crowd = Crowd::default();
    let mut stop = stopped.clone();
    let mut stop = std::pin::pin!(stop.wait_for(|stop| *stop));
    loop {
        let accepted = async {
            // The semaphore is never closed.
            let place = places.clone().acquire_owned().await.ok()?;
            Some((place, listener.accept().await))
        };
        let (place, stream, peer) = tokio::select! {
            biased;
            _ = &mut stop => break,
            accepted = accepted => match accepted {
                Some((place, Ok((stream, peer)))) => (place, stream, peer.ip()),
                Some((_, Err(error))) => {
                    // Out of file descriptors, most likely: those in use must end first.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
                None => break,
            },
        };
        let is_stranger = stream.local_addr().is_ok_and(|local| strangers.contains(&local.ip().to_canonical()));
        let stranger = is_stranger.then(|| (of_strangers.clone().try_acquire_owned().ok(), crowd.enter(peer)));
        // Too many of those, or of this one: the others are not to suffer for it.
        if matches!(stranger, Some((None, _) | (_, None))) {
            continue;
        }
        let known = is_stranger.then(Known::default);
        let (tls, server, stopped) = (credentials.acceptor(), server.clone(), stopped.clone());
        tokio::spawn(async move {
            // Answers are small and complete; waiting for more of them only adds latency.
            drop(stream.set_nodelay(true));
            connection(stream, (peer, known), tls, server, stopped).await;
            drop((place, stranger));
        });
    }
    drop(listener);
    // All places are free when all connections have ended. Watches do not end by themselves; whoever is left after this
    // long is cut with the process.
    drop(timeout(SLOWEST_END, places.acquire_many(MOST_CONNECTIONS)).await);
}

/// Serves one connection until either side ends it, or until a stranger has stayed too long without saying who it is.
async fn connection<S>(
    stream: S,
    (peer, known): (IpAddr, Option<Known>),
    tls: TlsAcceptor,
    server: ApiServer,
    stopped: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Ok(Ok(stream)) = timeout(SLOWEST_START, tls.accept(Guarded::new(stream))).await else { return };
    let (_, session) = stream.get_ref();
    let http2 = session.alpn_protocol() == Some(b"h2");
    let identity = session.peer_certificates().and_then(|chain| chain.first()).and_then(|first| identify(first));
    let asked = Arc::new(Notify::new());
    let (told, of_request) = (asked.clone(), known.clone());
    let answers = Answers::default();
    let of_connection = answers.clone();
    let service = server.map_request(move |mut request: http::Request<hyper::body::Incoming>| {
        told.notify_one();
        request.extensions_mut().insert(Peer(peer));
        request.extensions_mut().insert(of_connection.clone());
        if let Some(known) = &of_request {
            request.extensions_mut().insert(known.clone());
        }
        if let Some(identity) = &identity {
            request.extensions_mut().insert(identity.clone());
        }
        request
    });
    let (stream, service) = (TokioIo::new(stream), TowerToHyperService::new(service));
    // By ALPN, not by the first bytes: who waits for those may wait for ever.
    if http2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(250)
            .keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(30));
        let serving = builder.serve_connection(stream, service);
        drive(serving, http2::Connection::graceful_shutdown, (&asked, known, &answers), stopped).await;
    } else {
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(SLOWEST_START);
        let serving = builder.serve_connection(stream, service).with_upgrades();
        drive(serving, http1::UpgradeableConnection::graceful_shutdown, (&asked, known, &answers), stopped).await;
    }
}

/// Runs a connection until it ends; `end` tells it to, after what it works on. One that asks nothing is cut: hyper waits
/// for the start of HTTP/2 without a limit. So is one that does not read an answer to its end. A stranger that has stayed too long is
/// told to end, and then cut.
async fn drive<C>(
    connection: C,
    end: fn(Pin<&mut C>),
    (asked, known, answers): (&Notify, Option<Known>, &Answers),
    mut stopped: watch::Receiver<bool>,
) where
    C: Future<Output = Result<(), hyper::Error>>,
{
    let silent = async {
        if timeout(SLOWEST_START, asked.notified()).await.is_ok() {
            std::future::pending::<()>().await;
        }
    };
    let mut connection = std::pin::pin!(connection);
    // What the connection itself has to say comes first.
    let (ended, limit) = tokio::select! {
        biased;
        ended = connection.as_mut() => (Some(ended), None),
        () = silent => return,
        () = answers.overdue() => {
            tracing::debug!("a client did not read its answer in time");
            return;
        }
        () = strangers::outstays(known) => (None, Some(SLOWEST_END)),
        _ = stopped.wait_for(|stopped| *stopped) => (None, None),
    };
    let ended = match (ended, limit) {
        (Some(ended), _) => ended,
        (None, limit) => {
            end(connection.as_mut());
            match limit {
                Some(limit) => timeout(limit, connection).await.unwrap_or(Ok(())),
                None => connection.await,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

/// The subject of a certificate that the authority signed: CN is the user, each O a group.
pub(crate) fn identify(certificate: &CertificateDer<'_>) -> Option<Identity> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let user = parsed.subject().iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups = parsed.subject().iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned);
    Some(Identity::new(user, groups.collect::<Vec<_>>()))
}
