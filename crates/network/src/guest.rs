//! What a guest is told of its network: DHCPv4, DHCPv6 and router advertisements on its bridge.
//!
//! Watches: the sockets that [`crate::guest_network`] opened. Emits: answers to the guest. There is one guest and one address
//! of each family, for ever, so there are no leases to keep and nothing to remember.

mod advertisement;
mod dhcp4;
mod dhcp6;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(any(test, feature = "fuzzing"))]
mod testing;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::os::fd::OwnedFd;
use std::time::Duration;

use dhcproto::Name;
use rustix::net::{RecvFlags, SendFlags, recvfrom, sendto};
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;
use tokio::net::UdpSocket;

use crate::attached::{AttachedInterface, Sockets};
use crate::kernel;

/// More than any client sends. Bounded also because options nest: what is longer is not looked at.
const MAX_MESSAGE: usize = 2048;

/// Unasked advertisements come this often; their lifetime is thrice as long.
const INTERVAL: Duration = Duration::from_secs(600);

/// After an error of a socket, such as a bridge that is down for a moment.
const PAUSE: Duration = Duration::from_millis(200);

/// What the guest is told besides its addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The guest's name; empty: none.
    pub hostname: String,
    /// The guest's domain.
    pub domain: Option<String>,
    /// What short names are completed with.
    pub search: Vec<String>,
    /// Who answers names, of both families.
    pub dns: Vec<IpAddr>,
    /// Time servers.
    pub ntp: Vec<Ipv4Addr>,
    /// What to boot from the network.
    pub boot_file: Option<String>,
    /// Where that is.
    pub tftp_server: Option<String>,
    /// Private options, 224 to 254.
    pub private: BTreeMap<u8, String>,
    /// Networks that other routers than the bridge lead to.
    pub routes: Vec<Route>,
}

/// A way to a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Its address.
    pub network: Ipv4Addr,
    /// Length of its prefix.
    pub prefix: u8,
    /// Who leads there.
    pub gateway: Ipv4Addr,
}

/// Why a guest cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("cannot watch the guest's sockets")]
pub struct GuestError(#[from] io::Error);

/// Serves one interface until it is dropped.
///
/// # Errors
/// When the sockets cannot be watched at all. Errors of single packets are logged.
pub async fn serve(
    interface: &AttachedInterface,
    sockets: Sockets,
    settings: &Settings,
) -> Result<Infallible, GuestError> {
    let Sockets { dhcp4, dhcp6, ra } = sockets;
    let four = udp(dhcp4)?;
    let six = dhcp6.map(udp).transpose()?;
    let ra = ra.map(kernel::watched).transpose()?;
    let serve_six = async {
        match &six {
            Some(socket) => answer(socket, |request, from| dhcp6::answer(request, from, interface, settings)).await,
            None => std::future::pending().await,
        }
    };
    let advertise = async {
        match &ra {
            Some(socket) => advertise(socket, &advertisement::encode(interface, settings)).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        never = answer(&four, |request, _| dhcp4::answer(request, interface, settings)) => match never {},
        never = serve_six => match never {},
        never = advertise => match never {},
    }
}

/// Names that can be told; others are left out.
fn names<'a>(names: impl IntoIterator<Item = &'a String>) -> Vec<Name> {
    let absolute = |name: &String| Name::from_ascii(name).ok().filter(|name| !name.is_root());
    names
        .into_iter()
        .filter_map(absolute)
        .map(|mut name| {
            name.set_fqdn(true);
            name
        })
        .collect()
}

fn udp(socket: OwnedFd) -> io::Result<UdpSocket> {
    UdpSocket::from_std(socket.into())
}

/// Answers requests for ever.
async fn answer(socket: &UdpSocket, answer: impl Fn(&[u8], SocketAddr) -> Option<(Vec<u8>, SocketAddr)>) -> Infallible {
    // One byte more shows what is too long.
    let mut buffer = vec![0; MAX_MESSAGE + 1];
    loop {
        let received = socket.recv_from(&mut buffer).await;
        let answered = match received {
            Ok((length, _)) if length > MAX_MESSAGE => Ok(0),
            Ok((length, from)) => match answer(buffer.get(..length).unwrap_or_default(), from) {
                Some((bytes, to)) => socket.send_to(&bytes, to).await,
                None => Ok(0),
            },
            Err(error) => Err(error),
        };
        if let Err(error) = answered {
            tracing::debug!(%error, "cannot answer a request of the guest");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Advertises when asked, and from time to time.
async fn advertise(socket: &AsyncFd<OwnedFd>, advertisement: &[u8]) -> Infallible {
    let mut ticks = tokio::time::interval(INTERVAL);
    loop {
        let to = tokio::select! {
            biased;
            _ = ticks.tick() => Ok(advertisement::ALL_NODES),
            from = solicitation(socket) => from,
        };
        let sent = match to {
            // The socket is bound to its bridge and fills in the checksum.
            Ok(to) => sendto(socket.get_ref(), advertisement, SendFlags::DONTWAIT, &to).map_err(io::Error::from),
            Err(error) => Err(error),
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "cannot send a router advertisement");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Whom to answer.
async fn solicitation(socket: &AsyncFd<OwnedFd>) -> io::Result<SocketAddrV6> {
    let mut buffer = [0; 64];
    loop {
        let mut guard = socket.readable().await?;
        let received = guard.try_io(|socket| {
            let (_, _, from) = recvfrom(socket.get_ref(), buffer.as_mut_slice(), RecvFlags::DONTWAIT)?;
            Ok(from.and_then(|from| SocketAddrV6::try_from(from).ok()))
        });
        if let Ok(from) = received {
            return Ok(advertisement::recipient(from?));
        }
    }
}
