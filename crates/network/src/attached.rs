//! What was attached to a guest: names and addresses, and the sockets that serve it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use serde::{Deserialize, Serialize};

use crate::mac::Mac;

/// All interfaces of a guest, and as many sets of sockets, in the same order.
#[derive(Debug)]
pub struct Attached {
    /// What each interface is.
    pub interfaces: Vec<AttachedInterface>,
    /// What serves each interface.
    pub sockets: Vec<Sockets>,
}

/// One interface of a guest, as it was set up in the pod's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedInterface {
    /// The interface's name in the instance.
    pub name: String,
    /// The pod's link that its traffic goes through.
    pub pod_link: String,
    /// The tap to give to the hypervisor.
    pub tap: String,
    /// The bridge that the tap is in.
    pub bridge: String,
    /// The guest's Ethernet address.
    pub mac: Mac,
    /// The largest packet, as on the pod's link.
    pub mtu: u32,
    /// Queues of the tap; more than one makes it a multi-queue tap.
    pub queues: u16,
    /// The guest's address.
    pub guest4: Ipv4Addr,
    /// The bridge's address, which is the guest's router.
    pub gateway4: Ipv4Addr,
    /// Length of the prefix that both share.
    pub prefix4: u8,
    /// The guest's address, if the pod has one of this family.
    pub guest6: Option<Ipv6Addr>,
    /// The bridge's address.
    pub gateway6: Option<Ipv6Addr>,
    /// Length of the prefix that both share.
    pub prefix6: Option<u8>,
    /// The addresses of the pod's link: those that others reach the guest by.
    pub pod_addresses: Vec<IpAddr>,
}

/// The sockets of one interface, bound to its bridge.
#[derive(Debug)]
pub struct Sockets {
    /// UDP port 67.
    pub dhcp4: OwnedFd,
    /// UDP port 547, a member of all DHCP servers and relays; with [`AttachedInterface::guest6`] only.
    pub dhcp6: Option<OwnedFd>,
    /// Raw ICMPv6, a member of all routers, receives solicitations; with [`AttachedInterface::guest6`] only.
    pub ra: Option<OwnedFd>,
}

/// The sockets do not fit the interfaces.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("got {got} sockets for interfaces that need {needed}")]
pub struct SocketsError {
    needed: usize,
    got: usize,
}

impl Attached {
    /// All sockets in the order of [`Attached::join`].
    pub(crate) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let sockets = self.sockets.iter();
        let in_order = sockets.flat_map(|Sockets { dhcp4, dhcp6, ra }| [Some(dhcp4), dhcp6.as_ref(), ra.as_ref()]);
        in_order.flatten().map(AsFd::as_fd).collect()
    }

    /// Interfaces and their sockets, which came separately.
    pub(crate) fn join(interfaces: Vec<AttachedInterface>, sockets: Vec<OwnedFd>) -> Result<Self, SocketsError> {
        let needed = interfaces.iter().map(|interface| if interface.guest6.is_some() { 3 } else { 1 }).sum();
        let error = SocketsError { needed, got: sockets.len() };
        if needed != sockets.len() {
            return Err(error);
        }
        let mut rest = sockets.into_iter();
        let mut sets = Vec::new();
        for interface in &interfaces {
            let Some(dhcp4) = rest.next() else { return Err(error) };
            let (dhcp6, ra) = if interface.guest6.is_some() { (rest.next(), rest.next()) } else { (None, None) };
            sets.push(Sockets { dhcp4, dhcp6, ra });
        }
        Ok(Self { interfaces, sockets: sets })
    }
}
