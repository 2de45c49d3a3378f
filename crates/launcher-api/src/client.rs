//! A connection to one launcher.

use std::io;
use std::path::Path;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use crate::rpc::launcher_client::LauncherClient;
use crate::rpc::{HelloRequest, Incoming, SyncRequest};
use crate::{Greeting, Outcome, rpc};

/// A client of the protocol.
pub type Client = LauncherClient<Channel>;

/// A client over this one connection: one that breaks is not replaced behind its user's back.
///
/// # Errors
/// When the other side does not speak the protocol.
pub async fn over(stream: UnixStream) -> Result<Client, tonic::transport::Error> {
    let mut stream = Some(TokioIo::new(stream));
    let connector = tower::service_fn(move |_| {
        let stream = stream.take().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected));
        async move { stream }
    });
    Endpoint::from_static("http://launcher").connect_with_connector(connector).await.map(LauncherClient::new)
}

/// A client of whoever listens on a socket.
///
/// # Errors
/// When nobody listens there, or does not speak the protocol.
pub async fn connect(socket: &Path) -> Result<Client, tonic::transport::Error> {
    let socket = socket.to_owned();
    let connector = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://launcher").connect_with_connector(connector).await.map(LauncherClient::new)
}

/// Asks a launcher who it is.
///
/// # Errors
/// When it does not answer.
pub async fn greet(client: &mut Client) -> Result<Greeting, Status> {
    let release = env!("CARGO_PKG_VERSION").to_owned();
    let answer = client.hello(HelloRequest { release }).await;
    Greeting::from_answer(answer.map(tonic::Response::into_inner))
}

/// What a launcher is asked to make of its guest.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// A VirtualMachineInstance as JSON.
    pub instance: Vec<u8>,
    /// What runs guests on this node, if that is known.
    pub accelerator: rpc::Accelerator,
    /// The guest comes from another launcher.
    pub incoming: Option<Incoming>,
    /// What the domain tells once it is done.
    pub mark: u64,
}

/// Asks a launcher to make its guest what is wanted. The domain is there if the launcher told one.
pub async fn sync(client: &mut Client, wanted: Wanted) -> (Option<rpc::Domain>, Outcome) {
    let Wanted { instance, accelerator, incoming, mark } = wanted;
    let request = SyncRequest { instance, accelerator: accelerator.into(), incoming, mark };
    match client.sync(request).await {
        Ok(domain) => {
            let domain = domain.into_inner();
            let outcome = Outcome::from_answer(Ok(&domain));
            (Some(domain), outcome)
        }
        Err(status) => (None, Outcome::from_answer(Err(&status))),
    }
}
