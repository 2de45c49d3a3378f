//! The sockets that serve a guest, opened where root is at hand.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use socket2::{Domain, Protocol, Socket, Type};

use super::Sockets;
use crate::kernel;

/// All DHCP servers and relays.
const DHCP_SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
/// All routers.
const ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
const ROUTER_SOLICITATION: u8 = 133;

/// Opens them for one bridge.
pub(super) fn open(bridge: &str, index: u32, with_six: bool) -> io::Result<Sockets> {
    let (dhcp6, ra) = if with_six { (Some(dhcp6(bridge, index)?), Some(ra(bridge, index)?)) } else { (None, None) };
    Ok(Sockets { dhcp4: dhcp4(bridge)?, dhcp6, ra })
}

fn dhcp4(bridge: &str) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    // The one of an earlier launcher may not be closed yet.
    socket.set_reuse_address(true)?;
    socket.set_broadcast(true)?;
    kernel::without_checksum(socket.as_fd())?;
    finish(socket, bridge, Some(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 67))))
}

fn dhcp6(bridge: &str, index: u32) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_only_v6(true)?;
    socket.set_reuse_address(true)?;
    socket.join_multicast_v6(&DHCP_SERVERS, index)?;
    finish(socket, bridge, Some(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 547))))
}

fn ra(bridge: &str, index: u32) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
    // Anything less, and hosts take an advertisement for one from another network.
    socket.set_unicast_hops_v6(255)?;
    socket.set_multicast_hops_v6(255)?;
    socket.set_multicast_if_v6(index)?;
    socket.set_multicast_loop_v6(false)?;
    kernel::receive_only(socket.as_fd(), ROUTER_SOLICITATION)?;
    socket.join_multicast_v6(&ROUTERS, index)?;
    finish(socket, bridge, None)
}

fn finish(socket: Socket, bridge: &str, address: Option<SocketAddr>) -> io::Result<OwnedFd> {
    socket.bind_device(Some(bridge.as_bytes()))?;
    if let Some(address) = address {
        socket.bind(&address.into())?;
    }
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}
