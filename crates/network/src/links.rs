//! Links and their addresses, by rtnetlink, in the namespace that the calling thread was in when this was opened.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures_util::TryStreamExt;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use rtnetlink::packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use rtnetlink::{Handle, LinkBridge, LinkUnspec, RouteMessageBuilder};
use tokio::task::JoinHandle;

use crate::mac::Mac;

/// Why a link is not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// There is no talking to the kernel.
    #[error("cannot open a netlink socket")]
    Open(#[source] io::Error),
    /// The kernel said no.
    #[error("cannot {action} the link {name}")]
    Failed {
        /// What was asked for.
        action: &'static str,
        name: String,
        /// Its answer.
        source: Box<rtnetlink::Error>,
    },
    /// Something of that name is there, and it is something else.
    #[error("the link {name} already exists and is not a {expected}")]
    OtherKind {
        /// The link.
        name: String,
        /// What it should be.
        expected: &'static str,
    },
}

/// A connection to the kernel.
pub(crate) struct Links {
    handle: Handle,
    connection: JoinHandle<()>,
}

/// What is asked of links here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(crate) mtu: u32,
    pub(crate) is_bridge: bool,
    pub(crate) is_up: bool,
    /// The bridge that it is in.
    pub(crate) controller: Option<u32>,
}

impl Drop for Links {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Links {
    pub(crate) fn open() -> Result<Self, LinkError> {
        let (connection, handle, _) = rtnetlink::new_connection().map_err(LinkError::Open)?;
        Ok(Self { handle, connection: tokio::spawn(connection) })
    }

    pub(crate) async fn find(&self, name: &str) -> Result<Option<Link>, LinkError> {
        let mut found = std::pin::pin!(self.handle.link().get().match_name(name).execute());
        match found.try_next().await {
            Ok(message) => Ok(message.map(read)),
            Err(error) if code(&error) == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(failed("find", name)(error)),
        }
    }

    /// All links, in the kernel's order.
    pub(crate) async fn list(&self) -> Result<Vec<Link>, LinkError> {
        let links = self.handle.link().get().execute().map_ok(read);
        links.try_collect().await.map_err(failed("list", "*"))
    }

    /// Makes a bridge unless it is there.
    pub(crate) async fn bridge(&self, name: &str, mac: Mac, mtu: Option<u32>) -> Result<Link, LinkError> {
        let message = LinkBridge::new(name).down().address(mac.octets().to_vec()).build();
        match self.handle.link().add(message).execute().await {
            Err(error) if code(&error) != Some(libc::EEXIST) => return Err(failed("create", name)(error)),
            _ => {}
        }
        let link = self.find(name).await?.filter(|link| link.is_bridge);
        let link = link.ok_or(LinkError::OtherKind { name: name.to_owned(), expected: "bridge" })?;
        if let Some(mtu) = mtu {
            self.set(&link, "set the MTU of", LinkUnspec::new_with_index(link.index).mtu(mtu).build()).await?;
        }
        Ok(link)
    }

    pub(crate) async fn up(&self, link: &Link) -> Result<(), LinkError> {
        self.set(link, "bring up", LinkUnspec::new_with_index(link.index).up().build()).await
    }

    pub(crate) async fn down(&self, link: &Link) -> Result<(), LinkError> {
        self.set(link, "take down", LinkUnspec::new_with_index(link.index).down().build()).await
    }

    /// Gives a link its Ethernet address, also while it is up. The kernel announces its addresses then, if it was told to.
    pub(crate) async fn set_mac(&self, link: &Link, mac: Mac) -> Result<(), LinkError> {
        let message = LinkUnspec::new_with_index(link.index).address(mac.octets().to_vec()).build();
        self.set(link, "set the Ethernet address of", message).await
    }

    /// Puts a link into a bridge and brings it up.
    pub(crate) async fn join(&self, link: &Link, bridge: &Link, mtu: u32) -> Result<(), LinkError> {
        let message = LinkUnspec::new_with_index(link.index).mtu(mtu).controller(bridge.index).up().build();
        self.set(link, "put into its bridge", message).await
    }

    /// Removes a link that may be gone already.
    pub(crate) async fn remove(&self, name: &str) -> Result<(), LinkError> {
        let Some(link) = self.find(name).await? else { return Ok(()) };
        match self.handle.link().del(link.index).execute().await {
            Err(error) if code(&error) != Some(libc::ENODEV) => Err(failed("remove", name)(error)),
            _ => Ok(()),
        }
    }

    /// Gives a link an address unless it has it.
    pub(crate) async fn address(&self, link: &Link, address: IpAddr, prefix: u8) -> Result<(), LinkError> {
        match self.handle.address().add(link.index, address, prefix).execute().await {
            Err(error) if code(&error) != Some(libc::EEXIST) => Err(failed("address", &link.name)(error)),
            _ => Ok(()),
        }
    }

    /// As [`Links::address`], without asking first whether somebody else has it: whoever had it is known to have lost it.
    pub(crate) async fn address_at_once(&self, link: &Link, address: IpAddr, prefix: u8) -> Result<(), LinkError> {
        let mut request = self.handle.address().add(link.index, address, prefix);
        if address.is_ipv6() {
            request.message_mut().attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        match request.execute().await {
            Err(error) if code(&error) != Some(libc::EEXIST) => Err(failed("address", &link.name)(error)),
            _ => Ok(()),
        }
    }

    /// Takes all addresses of a link but these, and with the last of a family its routes.
    pub(crate) async fn take_other_addresses(&self, link: &Link, kept: &[IpAddr]) -> Result<(), LinkError> {
        let found = self.handle.address().get().set_link_index_filter(link.index).execute();
        let found: Vec<AddressMessage> = found.try_collect().await.map_err(failed("ask", &link.name))?;
        for message in found {
            if own(&message).is_some_and(|address| kept.contains(&address)) {
                continue;
            }
            match self.handle.address().del(message).execute().await {
                // It went with another one.
                Err(error) if code(&error) != Some(libc::EADDRNOTAVAIL) => {
                    return Err(failed("take an address of", &link.name)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Leads whatever has no other way to a gateway on this link.
    pub(crate) async fn default_route(&self, link: &Link, gateway: IpAddr) -> Result<(), LinkError> {
        let route = match gateway {
            IpAddr::V4(gateway) => {
                RouteMessageBuilder::<Ipv4Addr>::new().gateway(gateway).output_interface(link.index).build()
            }
            IpAddr::V6(gateway) => {
                RouteMessageBuilder::<Ipv6Addr>::new().gateway(gateway).output_interface(link.index).build()
            }
        };
        match self.handle.route().add(route).execute().await {
            Err(error) if code(&error) != Some(libc::EEXIST) => Err(failed("route by", &link.name)(error)),
            _ => Ok(()),
        }
    }

    /// The addresses of a link that others can reach, IPv4 first.
    pub(crate) async fn addresses(&self, link: &Link) -> Result<Vec<IpAddr>, LinkError> {
        let found = self.handle.address().get().set_link_index_filter(link.index).execute();
        let found: Vec<AddressMessage> = found.try_collect().await.map_err(failed("ask", &link.name))?;
        let mut addresses: Vec<IpAddr> = found.iter().filter_map(reachable).collect();
        addresses.sort_by_key(IpAddr::is_ipv6);
        Ok(addresses)
    }

    /// The networks of all links: a link's number, its address and how much of that is the network's.
    pub(crate) async fn networks(&self) -> Result<Vec<(u32, IpAddr, u8)>, LinkError> {
        let found = self.handle.address().get().execute();
        let found: Vec<AddressMessage> = found.try_collect().await.map_err(failed("ask", "*"))?;
        let network =
            |message: &AddressMessage| Some((message.header.index, reachable(message)?, message.header.prefix_len));
        Ok(found.iter().filter_map(network).collect())
    }

    async fn set(&self, link: &Link, action: &'static str, message: LinkMessage) -> Result<(), LinkError> {
        self.handle.link().set(message).execute().await.map_err(failed(action, &link.name))
    }
}

fn reachable(message: &AddressMessage) -> Option<IpAddr> {
    if message.header.scope != AddressScope::Universe {
        return None;
    }
    own(message)
}

/// The address that a message is about.
fn own(message: &AddressMessage) -> Option<IpAddr> {
    let is_v4 = message.header.family == AddressFamily::Inet;
    message.attributes.iter().find_map(|attribute| match attribute {
        // On a link between two, `Address` is the other's.
        AddressAttribute::Local(address) if is_v4 => Some(*address),
        AddressAttribute::Address(address) if !is_v4 => Some(*address),
        _ => None,
    })
}

fn read(message: LinkMessage) -> Link {
    let mut link = Link {
        name: String::new(),
        index: message.header.index,
        mtu: 0,
        is_bridge: false,
        is_up: message.header.flags.contains(LinkFlags::Up),
        controller: None,
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Mtu(mtu) => link.mtu = mtu,
            LinkAttribute::Controller(index) => link.controller = Some(index),
            LinkAttribute::LinkInfo(infos) => link.is_bridge = infos.contains(&LinkInfo::Kind(InfoKind::Bridge)),
            _ => {}
        }
    }
    link
}

/// The kernel's error number.
fn code(error: &rtnetlink::Error) -> Option<i32> {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.code.map(|code| code.get().abs()),
        _ => None,
    }
}

fn failed(action: &'static str, name: &str) -> impl FnOnce(rtnetlink::Error) -> LinkError {
    let name = name.to_owned();
    move |source| LinkError::Failed { action, name, source: Box::new(source) }
}
