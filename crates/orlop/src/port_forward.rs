//! `orlop port-forward`: connects ports of this machine to ports of a guest, through the API. Needs no route to the guest.

mod datagrams;

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures_util::FutureExt as _;
use kube::Client;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UdpSocket};

use crate::subresource::{self, End, Of, Open, Refusal};
use crate::target::{Target, machine};
use crate::terminal::note;

/// What is carried at once in each direction.
const PIECE: usize = 64 << 10;

/// Connect ports of this machine to ports of a VM.
#[derive(clap::Args)]
#[group(id = "port-forward")]
pub(crate) struct Arguments {
    /// The VM, or the instance.
    vm: String,
    /// Ports: 22 for the same port on both sides, 2222:22 for port 2222 here and port 22 there, :22 for any free port here,
    /// udp/53 for a UDP port.
    #[arg(required = true, value_name = "[PROTOCOL/][LOCAL:]REMOTE")]
    ports: Vec<Ports>,
    /// Address of this machine to listen on.
    #[arg(long, default_value = "127.0.0.1", env = "ORLOP_PORT_FORWARD_ADDRESS")]
    address: IpAddr,
    /// Connect standard input and output to the port instead of listening, as ssh's ProxyCommand needs it. Takes one port.
    #[arg(long, conflicts_with = "address")]
    stdio: bool,
    #[command(flatten)]
    target: Target,
}

/// What a port carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Tcp,
    Udp,
}

/// A port here and a port of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    protocol: Protocol,
    local: u16,
    remote: u16,
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not a valid pair of ports; use one such as 22, 2222:22 or :22");
        // virtctl's users write the protocol in front.
        let (protocol, ports) = match text.split_once('/') {
            Some(("tcp", ports)) => (Protocol::Tcp, ports),
            Some(("udp", ports)) => (Protocol::Udp, ports),
            Some((other, _)) => return Err(format!("the protocol {other:?} is not supported; use tcp or udp")),
            None => (Protocol::Tcp, text),
        };
        let (local, remote) = ports.split_once(':').unwrap_or((ports, ports));
        let remote = remote.parse().ok().filter(|port| *port != 0).ok_or_else(bad)?;
        let local = if local.is_empty() { 0 } else { local.parse().map_err(|_| bad())? };
        Ok(Self { protocol, local, remote })
    }
}

pub(crate) fn run(arguments: &Arguments, out: &mut impl Write) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    let result = runtime.block_on(forward(arguments, out));
    // A read of standard input cannot be cancelled; nobody waits for it.
    runtime.shutdown_background();
    result
}

async fn forward(arguments: &Arguments, out: &mut impl Write) -> anyhow::Result<()> {
    let Arguments { vm: name, ports, address, stdio, target } = arguments;
    let client = target.client().await?;
    machine(&client, name).await?;
    if *stdio {
        let [Ports { protocol: Protocol::Tcp, remote, .. }] = ports.as_slice() else {
            bail!("--stdio connects one TCP port; give one");
        };
        let guest = open(&client, name, *remote).await?;
        return carry(guest, tokio::io::join(tokio::io::stdin(), tokio::io::stdout())).await;
    }
    let mut listeners = Vec::new();
    for Ports { protocol, local, remote } in ports {
        let at = SocketAddr::new(*address, *local);
        let failed = || format!("listen on {at}");
        let (client, name) = (client.clone(), name.clone());
        let (at, what, served) = match protocol {
            Protocol::Tcp => {
                let listener = TcpListener::bind(at).await.with_context(failed)?;
                let at = listener.local_addr().context("find the local port")?;
                (at, "port", accept(listener, client, name.clone(), *remote).boxed())
            }
            Protocol::Udp => {
                let socket = UdpSocket::bind(at).await.with_context(failed)?;
                let at = socket.local_addr().context("find the local port")?;
                (at, "UDP port", datagrams::serve(socket, client, name.clone(), *remote).boxed())
            }
        };
        writeln!(out, "forwarding {at} to {what} {remote} of {name}; Ctrl-C ends it")
            .context("write to standard output")?;
        listeners.push(served);
    }
    out.flush().context("write to standard output")?;
    futures_util::future::join_all(listeners).await;
    Ok(())
}

/// Between an attempt to take a connection that failed and the next one.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Serves one port, a task for each connection, until the program ends.
async fn accept(listener: TcpListener, client: Client, name: String, port: u16) {
    loop {
        let (connection, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                note(&format!("cannot accept a connection for port {port}: {error}"));
                // Out of descriptors, say: it would fail again at once.
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        let (client, name) = (client.clone(), name.clone());
        tokio::spawn(async move {
            let carried = match open(&client, &name, port).await {
                Ok(guest) => carry(guest, connection).await,
                Err(error) => Err(error),
            };
            if let Err(error) = carried {
                note(&format!("connection from {peer} to port {port} of {name}: {error:#}"));
            }
        });
    }
}

/// Dials a port of a guest.
pub(crate) async fn open(client: &Client, name: &str, port: u16) -> anyhow::Result<Open> {
    let opened = subresource::open(client, (Of::Instance, name), &format!("portforward/{port}/tcp")).await;
    unwrapped(opened)
}

/// For whom both refusals are the same.
fn unwrapped<T>(opened: Result<T, Refusal>) -> anyhow::Result<T> {
    opened.map_err(|refusal| match refusal {
        Refusal::Answered(error) | Refusal::Unreachable(error) => error,
    })
}

/// Carries bytes between the guest and somebody here until both sides have ended.
async fn carry(guest: Open, mut here: impl AsyncRead + AsyncWrite + Unpin) -> anyhow::Result<()> {
    let Open { mut bytes, end } = guest;
    // A side that breaks off is an end like another: what came of the stream is told by the server.
    let _ = tokio::io::copy_bidirectional_with_sizes(&mut bytes, &mut here, PIECE, PIECE).await;
    drop(bytes);
    match end.await {
        Ok(End::Told(reason)) => bail!(reason),
        Ok(End::Guest | End::Lost) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_as_people_write_them() {
        let ports = |text: &str| text.parse::<Ports>();
        let tcp = |local, remote| Ok(Ports { protocol: Protocol::Tcp, local, remote });
        assert_eq!(ports("22"), tcp(22, 22));
        assert_eq!(ports("2222:22"), tcp(2222, 22));
        assert_eq!(ports(":22"), tcp(0, 22));
        assert_eq!(ports("tcp/2222:22"), tcp(2222, 22));
        assert_eq!(ports("udp/53"), Ok(Ports { protocol: Protocol::Udp, local: 53, remote: 53 }));
        for bad in ["", ":", "0", "22:", "22:0", "x", "1:2:3", "65536", "-1:22"] {
            assert!(ports(bad).is_err_and(|error| error.contains("is not a valid pair of ports")), "{bad}");
        }
        assert_eq!(ports("sctp/53").unwrap_err(), "the protocol \"sctp\" is not supported; use tcp or udp");
    }
}
