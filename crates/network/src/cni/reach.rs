//! The firewall: what pods can reach on their machine and through it.
//!
//! | from a pod, and so from a guest | passes |
//! |---|---|
//! | to the machine | answers to what the machine has begun, ICMP, and services that are allowed |
//! | through the machine | all but metadata of clouds, where a machine's own credentials are; name servers there are allowed |
//! | to another pod | all: that is the bridge's, not the machine's |
//!
//! What does not pass is refused, not lost: a program that tries it is told at once.

use std::net::IpAddr;
use std::sync::{MutexGuard, PoisonError};

use nftables::expr::Expression;
use nftables::types::NfHook;
use serde::{Deserialize, Serialize};

use super::records::{Former, Records};
use super::{Cni, CniError, guard, host, records_error};
use crate::guest_network::Protocol;
use crate::nft::{self, TableOf};

/// Where clouds tell machines about themselves: all that AWS, Google, OpenStack and others have on IPv4's link-local
/// addresses, Azure's, Alibaba's; and those of AWS and Google on IPv6.
const METADATA4: [(&str, u8); 3] = [("169.254.0.0", 16), ("168.63.129.16", 32), ("100.100.100.200", 32)];
const METADATA6: [(&str, u8); 2] = [("fd00:ec2::254", 128), ("fd20:ce::254", 128)];

const DNS: u16 = 53;
/// A machine that goes from network to network is told of new ones for ever.
const MOST_NAME_SERVERS: usize = 16;

/// A service that pods may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// At this address alone. Without one: at any of the machine's.
    pub address: Option<IpAddr>,
    pub protocol: Protocol,
    /// At which port.
    pub port: u16,
}

/// What pods may reach, and whether anything keeps them from the rest.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Reach {
    services: Vec<Service>,
    /// Those that pods were told of since, the newest last.
    name_servers: Vec<IpAddr>,
    #[serde(skip)]
    pub(super) lacks: host::Lacks,
}

impl Cni {
    /// Lets pods reach these services, and no others that they could reach before.
    ///
    /// # Errors
    /// When the rules cannot be changed.
    pub async fn let_reach(&self, services: Vec<Service>) -> Result<(), CniError> {
        let mut records = self.records().await?;
        self.reach().services = services;
        self.keep_reach(&records)?;
        self.make_host(&mut records).await
    }

    /// Lets pods ask these name servers, too, which they are about to be told of. Those that others were told of before stay
    /// open to all.
    ///
    /// # Errors
    /// When the rules cannot be changed.
    pub async fn let_ask(&self, servers: &[IpAddr]) -> Result<(), CniError> {
        let mut records = self.records().await?;
        let before = self.reach().name_servers.clone();
        if !self.reach().learn(servers) {
            return Ok(());
        }
        let made = self.make_host(&mut records).await;
        if made.is_err() {
            // So that it is tried again.
            self.reach().name_servers = before;
        } else {
            self.keep_reach(&records)?;
        }
        made
    }

    /// Why pods reach all of the machine: it has no such rules. None: they do not.
    pub fn unguarded(&self) -> Option<String> {
        self.reach().lacks.firewall.as_ref().map(ToString::to_string)
    }

    pub(super) fn reach(&self) -> MutexGuard<'_, Reach> {
        self.reach.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Other processes make the same rules, whenever they make them.
    fn keep_reach(&self, records: &Records) -> Result<(), CniError> {
        match &self.settings.node {
            Some(_) => records.write_reach(&*self.reach()).map_err(records_error("write")),
            None => Ok(()),
        }
    }

    pub(super) async fn make_host(&self, records: &mut Records) -> Result<(), CniError> {
        let network = &self.settings.network;
        let former = match records.former.clone() {
            Some(former) => former,
            None => Former { sysctls: host::forwarding(network)?, ..Former::default() },
        };
        let former = Former { network: Some(network.clone()), ..former };
        records.set_former(former.clone()).map_err(records_error("write"))?;
        let services = self.reach().all();
        let ports: Vec<guard::Port<'_>> = records.pods.values().filter_map(guard::Port::of).collect();
        let lacks = host::make(network, &self.pools, &services, &ports).await?;
        if let Some(why) = &lacks.firewall {
            tracing::warn!(%why, "no firewall protects this machine's services from pods");
        }
        if let Some(why) = &lacks.guard {
            tracing::warn!(%why, "nothing keeps containers from spoofing the addresses of other pods");
        }
        self.reach().lacks = lacks;
        host::forward(&former.sysctls)?;
        records.is_made = true;
        Ok(())
    }
}

impl Reach {
    /// Takes over what another process was asked to allow.
    pub(super) fn reload(&mut self, records: &Records) -> Result<(), CniError> {
        let now = records.read_reach::<Self>().map_err(records_error("read"))?;
        if let Some(Self { services, name_servers, .. }) = now {
            self.services = services;
            self.name_servers = name_servers;
        }
        Ok(())
    }

    /// Takes in name servers; whether there was a new one among them.
    fn learn(&mut self, servers: &[IpAddr]) -> bool {
        let known = self.all();
        let is_known = |server: &IpAddr| asking(*server).iter().all(|service| known.contains(service));
        let new: Vec<IpAddr> = servers.iter().filter(|server| !is_known(server)).copied().collect();
        self.name_servers.extend(&new);
        let excess = self.name_servers.len().saturating_sub(MOST_NAME_SERVERS);
        self.name_servers.drain(..excess);
        !new.is_empty()
    }

    fn all(&self) -> Vec<Service> {
        let asked = self.name_servers.iter().flat_map(|server| asking(*server));
        self.services.iter().copied().chain(asked).collect()
    }
}

fn asking(server: IpAddr) -> [Service; 2] {
    [Protocol::Udp, Protocol::Tcp].map(|protocol| Service { address: Some(server), protocol, port: DNS })
}

/// The rules of one family, in its table.
pub(super) fn rules(table: &mut TableOf, bridge: &str, is_six: bool, services: &[Service]) {
    let (header, icmp, metadata) =
        if is_six { ("ip6", "ipv6-icmp", METADATA6.as_slice()) } else { ("ip", "icmp", METADATA4.as_slice()) };
    let to = |value: Expression<'static>| nft::field_is(header, "daddr", value);
    let from_pods = || nft::comes_by(bridge);
    table.filter_chain("input", NfHook::Input, 0);
    table.filter_chain("forward", NfHook::Forward, 0);
    table.rule("input", vec![from_pods(), nft::is_answer(), nft::accept()]);
    // Also how neighbours are found in IPv6.
    table.rule("input", vec![from_pods(), nft::carries(icmp), nft::accept()]);
    for Service { address, protocol, port } in services {
        let port = nft::is_for(*protocol, *port);
        match address {
            None => table.rule("input", vec![from_pods(), port, nft::accept()]),
            Some(address) if address.is_ipv6() == is_six => {
                let address = || to(nft::text(&address.to_string()));
                table.rule("input", vec![from_pods(), address(), port.clone(), nft::accept()]);
                table.rule("forward", vec![from_pods(), address(), port, nft::accept()]);
            }
            Some(_) => {}
        }
    }
    table.rule("input", vec![from_pods(), nft::refuse()]);
    let metadata = nft::any(metadata.iter().map(|(address, length)| nft::prefix(address, *length)));
    table.rule("forward", vec![from_pods(), to(metadata), nft::refuse()]);
}
