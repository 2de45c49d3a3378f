//! The machine's side: bridge, forwarding, masquerading, and what pods reach.

use std::io;

use nftables::schema::NfObject;
use nftables::types::{NfFamily, NfHook};

use super::addresses::Pool;
use super::reach::{self, Service};
use super::{CniError, Network, NftError, guard};
use crate::links::Links;
use crate::mac::Mac;
use crate::nft::{self, TableOf};
use crate::sysctl;

const FORWARD4: &str = "net/ipv4/ip_forward";
const FORWARD6: &str = "net/ipv6/conf/all/forwarding";

/// Makes the bridge and its rules, or makes sure of them. Pods have no use for a machine without the rules that translate
/// addresses; without those that keep pods from the machine, or from sending in others' names, it works, and the answer
/// says why they are not there.
pub(super) async fn make(
    network: &Network,
    pools: &[Pool],
    services: &[Service],
    ports: &[guard::Port<'_>],
) -> Result<Lacks, CniError> {
    let name = &network.bridge;
    let links = Links::open()?;
    check_room(&links, name, pools).await?;
    // An address of its own: the bridge would else change it whenever a pod comes or goes.
    let bridge = links.bridge(name, Mac::stable("bridge", name), network.mtu).await?;
    if network.subnet6.is_some() {
        set(&format!("net/ipv6/conf/{name}/disable_ipv6"), "0")?;
        set(&format!("net/ipv6/conf/{name}/accept_dad"), "0")?;
        set(&format!("net/ipv6/conf/{name}/accept_ra"), "0")?;
    } else {
        // Pods would else reach the machine at an address of the link, past the rules for IPv4.
        match sysctl::set(&format!("net/ipv6/conf/{name}/disable_ipv6"), "1") {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "the pods' bridge has IPv6");
            }
            _ => {}
        }
    }
    links.up(&bridge).await?;
    for pool in pools {
        links.address(&bridge, pool.gateway(), pool.prefix).await?;
    }
    let firewall = match nft::apply(rules(name, pools, Some(services))).await {
        Err(why @ NftError::Refused(_)) => {
            nft::apply(rules(name, pools, None)).await?;
            Some(why)
        }
        made => made.map(|()| None)?,
    };
    let guard = match guard::replace(&table(name), ports).await {
        Err(why @ NftError::Refused(_)) => Some(why),
        made => made.map(|()| None)?,
    };
    Ok(Lacks { firewall, guard })
}

/// What a machine's kernel cannot do, and why.
#[derive(Debug, Default)]
pub(super) struct Lacks {
    /// Keep pods from what listens on the machine.
    pub(super) firewall: Option<NftError>,
    /// Keep pods from sending in others' names.
    pub(super) guard: Option<NftError>,
}

/// Makes sure that the pods' addresses are not those of another link's network.
async fn check_room(links: &Links, bridge: &str, pools: &[Pool]) -> Result<(), CniError> {
    let named = links.list().await?;
    for (index, address, prefix) in links.networks().await? {
        let link = named.iter().find(|link| link.index == index).map_or("", |link| &link.name);
        if let Some(pool) = pools.iter().find(|pool| link != bridge && pool.covers(address, prefix)) {
            let (network, link) = (format!("{}/{}", pool.network(), pool.prefix), link.to_owned());
            return Err(CniError::Taken { network, link, address: format!("{address}/{prefix}") });
        }
    }
    Ok(())
}

/// Removes what [`make`] made.
pub(super) async fn unmake(network: &Network) -> Result<(), CniError> {
    Links::open()?.remove(&network.bridge).await?;
    let mut removal = nft::removal(NfFamily::IP, &table(&network.bridge));
    if network.subnet6.is_some() {
        removal.extend(nft::removal(NfFamily::IP6, &table(&network.bridge)));
    }
    nft::apply(removal).await?;
    match guard::remove_all(&table(&network.bridge)).await {
        // A kernel that has no such tables has none of ours.
        Ok(()) | Err(NftError::Refused(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What forwarding needs, with the values that are there now; to be set in this order.
pub(super) fn forwarding(network: &Network) -> Result<Vec<(String, String)>, CniError> {
    let mut names = vec![FORWARD4.to_owned()];
    if network.subnet6.is_some() {
        // A machine that forwards heeds router advertisements no more, unless it is told to: it would lose its own way.
        names.extend(links_that_heed_routers().map_err(failed("net/ipv6/conf/*/accept_ra"))?);
        names.push(FORWARD6.to_owned());
    }
    names.into_iter().map(|name| sysctl::get(&name).map_err(failed(&name)).map(|value| (name, value))).collect()
}

/// Sets what [`forwarding`] named.
pub(super) fn forward(former: &[(String, String)]) -> Result<(), CniError> {
    former.iter().try_for_each(|(name, _)| set(name, if name.ends_with("accept_ra") { "2" } else { "1" }))
}

/// Sets it back, in reverse.
pub(super) fn restore(former: &[(String, String)]) -> Result<(), CniError> {
    former.iter().rev().try_for_each(|(name, value)| match sysctl::set(name, value) {
        // The link is gone, and its setting with it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.map_err(failed(name)),
    })
}

fn links_that_heed_routers() -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir("/proc/sys/net/ipv6/conf")? {
        let link = entry?.file_name().to_string_lossy().into_owned();
        let name = format!("net/ipv6/conf/{link}/accept_ra");
        let is_link = !matches!(link.as_str(), "all" | "default" | "lo");
        // A link may go while one looks.
        if is_link && sysctl::get(&name).is_ok_and(|value| value == "1") {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Pods' packets that leave the machine do so in its name; those that do not go to any of these services do not reach it.
fn rules(bridge: &str, pools: &[Pool], services: Option<&[Service]>) -> Vec<NfObject<'static>> {
    let one = |pool: &Pool| {
        let (family, header) = if pool.network().is_ipv6() { (NfFamily::IP6, "ip6") } else { (NfFamily::IP, "ip") };
        let mut table = TableOf::new(family, &table(bridge));
        table.nat_chain("postrouting", NfHook::Postrouting, 100);
        let from_pods = nft::field_is(header, "saddr", nft::prefix(&pool.network(), pool.prefix));
        table.rule("postrouting", vec![from_pods, nft::does_not_go_by(bridge), nft::masquerade()]);
        if let Some(services) = services {
            reach::rules(&mut table, bridge, pool.network().is_ipv6(), services);
        }
        table.into_objects()
    };
    pools.iter().flat_map(one).collect()
}

/// The name of all tables of a bridge.
pub(super) fn table(bridge: &str) -> String {
    format!("orlop-{bridge}")
}

fn set(name: &str, value: &str) -> Result<(), CniError> {
    sysctl::set(name, value).map_err(failed(name))
}

fn failed(name: &str) -> impl FnOnce(io::Error) -> CniError {
    let name = name.to_owned();
    move |source| CniError::Sysctl { name, source }
}
