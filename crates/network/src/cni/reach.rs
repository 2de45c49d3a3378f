//! What pods reach of their machine, and through it.
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

use super::records::{Former, Records};
use super::{Cni, CniError, NftError, host, records_error};
use crate::nft::{self, TableOf};
use crate::phase1::Protocol;

/// Where clouds tell machines about themselves: all that AWS, Google, OpenStack and others have on IPv4's link-local
/// addresses, Azure's, Alibaba's; and those of AWS and Google on IPv6.
const METADATA4: [(&str, u8); 3] = [("169.254.0.0", 16), ("168.63.129.16", 32), ("100.100.100.200", 32)];
const METADATA6: [(&str, u8); 2] = [("fd00:ec2::254", 128), ("fd20:ce::254", 128)];

/// A service that pods may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// At this address alone. Without one: at any of the machine's.
    pub address: Option<IpAddr>,
    /// Of which protocol.
    pub protocol: Protocol,
    /// At which port.
    pub port: u16,
}

/// What pods may reach, and whether anything keeps them from the rest.
#[derive(Debug, Default)]
pub(super) struct Reach {
    services: Vec<Service>,
    unguarded: Option<NftError>,
}

impl Cni {
    /// Lets pods reach these services, and no others that they could reach before.
    ///
    /// # Errors
    /// When the rules cannot be changed.
    pub async fn let_reach(&self, services: Vec<Service>) -> Result<(), CniError> {
        let mut records = self.records.lock().await;
        self.reach().services = services;
        self.make_host(&mut records).await
    }

    /// Why pods reach all of the machine: it has no such rules. None: they do not.
    pub fn unguarded(&self) -> Option<String> {
        self.reach().unguarded.as_ref().map(ToString::to_string)
    }

    fn reach(&self) -> MutexGuard<'_, Reach> {
        self.reach.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn make_host(&self, records: &mut Records) -> Result<(), CniError> {
        let network = &self.settings.network;
        let former = match records.former.clone() {
            Some(former) => former,
            None => Former { sysctls: host::forwarding(network)?, ..Former::default() },
        };
        let former = Former { network: Some(network.clone()), ..former };
        records.set_former(former.clone()).map_err(records_error("write"))?;
        let services = self.reach().services.clone();
        let unguarded = host::make(network, &self.pools, &services).await?;
        if let Some(why) = &unguarded {
            tracing::warn!(%why, "nothing keeps pods from what listens on this machine");
        }
        self.reach().unguarded = unguarded;
        host::forward(&former.sysctls)?;
        records.is_made = true;
        Ok(())
    }
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
