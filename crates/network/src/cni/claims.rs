//! Addresses that move: when a guest goes on in another pod, its IP addresses and the Ethernet address of its pod come along, so that
//! whoever speaks with it does not notice.
//!
//! An identity has its addresses in one pod at a time. A pod of the same identity that is added beside it gets others, until it claims
//! them.
//!
//! # Guarantees
//! - No two pods ever have the same address: the one that loses it has lost it before the other gets it, on record and in the kernel.
//! - Cut off anywhere and asked again, a claim is finished. In between, the identity's addresses may be nobody's.
//! - The pod that lost its addresses is cut off from the network until it claims them back, or goes.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use tokio::sync::watch;

use super::guard::{self, Port};
use super::plugins::LINK;
use super::records::{Progress, Record, Records};
use super::{Cni, CniError, Settings, check_id, host, records_error};
use crate::links::{LinkError, Links};
use crate::mac::Mac;
use crate::{namespace, sysctl};

impl Cni {
    /// The addresses of this process's pods as they were claimed, now and after every claim.
    #[must_use]
    pub fn claimed(&self) -> watch::Receiver<BTreeMap<String, Vec<IpAddr>>> {
        self.claimed.subscribe()
    }

    /// Gives a pod the addresses of its identity, and takes them from the pod that has them. Returns what it has then. A pod without an
    /// identity keeps its own.
    ///
    /// # Errors
    /// When the pod is not connected, the addresses are another's by now, or the kernel refuses. It may be asked again.
    pub async fn claim(&self, id: &str) -> Result<Vec<IpAddr>, CniError> {
        check_id(id)?;
        // Nothing is removed meanwhile.
        let _adding = self.adding().await?;
        let mut records = self.records().await?;
        let record = records.pods.get(id).cloned().ok_or_else(|| CniError::NotConnected(id.to_owned()))?;
        let Some(wanted) = wanted(&records, &record)? else { return Ok(record.addresses) };
        let Progress::Added { host_link, mac } = record.progress.clone() else {
            return Err(CniError::NotConnected(id.to_owned()));
        };
        // Those that have them, or had them when an earlier claim was cut off.
        let losers = records.pods.values().filter(|other| {
            other.id != id
                && other.identity == record.identity
                && (other.addresses.is_empty() || has_any(other, &wanted))
        });
        let mut ports: Vec<Record> = losers.cloned().collect();
        let mac = ports.iter().find_map(mac_of).or(mac);
        for loser in &mut ports {
            loser.addresses.clear();
            records.put(loser.clone()).map_err(records_error("write"))?;
            silence(loser).await?;
        }
        let progress = Progress::Added { host_link, mac };
        let winner = Record { addresses: wanted.clone(), progress, ..record };
        records.put(winner.clone()).map_err(records_error("write"))?;
        ports.push(winner.clone());
        if self.forgeable().is_none() {
            let ports: Vec<Port<'_>> = ports.iter().filter_map(Port::of).collect();
            guard::renew(&host::table(&self.settings.network.bridge), &ports).await?;
        }
        self.give(&winner).await?;
        self.claimed.send_modify(|claimed| drop(claimed.insert(id.to_owned(), wanted.clone())));
        Ok(wanted)
    }

    /// Makes a pod's link have what is on record, and tells its neighbours.
    async fn give(&self, winner: &Record) -> Result<(), CniError> {
        let mut given: Vec<(IpAddr, u8)> = Vec::new();
        for address in &winner.addresses {
            let pool = self.pools.iter().find(|pool| pool.network().is_ipv6() == address.is_ipv6());
            given.extend(pool.map(|pool| (*address, pool.prefix)));
        }
        let mac = mac_of(winner);
        let gateways = self.gateways();
        let of_link = mac.filter(|_| given.iter().any(|(address, _)| address.is_ipv6()));
        given.extend(of_link.map(|mac| (IpAddr::V6(guard::local(mac)), 64)));
        in_pod(winner, async move || {
            let links = Links::open()?;
            let Some(link) = links.find(LINK).await? else { return Ok(()) };
            // The kernel announces addresses when the Ethernet address is set: every neighbour and the bridge learn of it at once.
            for name in ["ipv4/conf/eth0/arp_notify", "ipv6/conf/eth0/ndisc_notify"] {
                if let Err(error) = sysctl::set(&format!("net/{name}"), "1") {
                    tracing::warn!(name, %error, "a pod's new addresses are not announced");
                }
            }
            links.up(&link).await?;
            let addresses: Vec<IpAddr> = given.iter().map(|(address, _)| *address).collect();
            links.take_other_addresses(&link, &addresses).await?;
            for (address, prefix) in given {
                links.address_at_once(&link, address, prefix).await?;
            }
            for gateway in gateways.into_iter().filter(|one| addresses.iter().any(|own| own.is_ipv6() == one.is_ipv6()))
            {
                links.default_route(&link, gateway).await?;
            }
            if let Some(mac) = mac {
                links.set_mac(&link, mac).await?;
            }
            Ok(())
        })
        .await
    }
}

/// What pods of this process have.
pub(super) fn of(records: &Records, settings: &Settings) -> BTreeMap<String, Vec<IpAddr>> {
    let own = records.pods.values().filter(|record| record.node == settings.node && record.identity.is_some());
    own.map(|record| (record.id.clone(), record.addresses.clone())).collect()
}

/// The addresses that a pod may claim; none if it has no identity, or one without addresses.
fn wanted(records: &Records, record: &Record) -> Result<Option<Vec<IpAddr>>, CniError> {
    let Some(identity) = &record.identity else { return Ok(None) };
    let addresses = records.memory.of(identity);
    let stranger = |other: &&Record| other.identity.as_ref() != Some(identity) && has_any(other, &addresses);
    match records.pods.values().find(stranger) {
        Some(other) => Err(CniError::NotItsOwn { addresses, pod: other.pod.clone() }),
        None => Ok(Some(addresses).filter(|addresses| !addresses.is_empty())),
    }
}

fn has_any(record: &Record, addresses: &[IpAddr]) -> bool {
    record.addresses.iter().any(|address| addresses.contains(address))
}

fn mac_of(record: &Record) -> Option<Mac> {
    match record.progress {
        Progress::Added { mac, .. } => mac,
        Progress::Adding => None,
    }
}

/// Takes the link of a pod that has no address any more.
async fn silence(loser: &Record) -> Result<(), CniError> {
    in_pod(loser, async || {
        let links = Links::open()?;
        let Some(link) = links.find(LINK).await? else { return Ok(()) };
        links.down(&link).await?;
        links.take_other_addresses(&link, &[]).await
    })
    .await
}

/// Does something in a pod's namespace, if that is there.
async fn in_pod(
    record: &Record,
    work: impl AsyncFnOnce() -> Result<(), LinkError> + Send + 'static,
) -> Result<(), CniError> {
    let Some(netns) = record.living_netns() else { return Ok(()) };
    let failed = |source: io::Error| CniError::Namespace { path: netns.to_owned(), source };
    namespace::inside(netns, work).await.map_err(failed)?.map_err(CniError::from)
}
