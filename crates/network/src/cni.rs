//! Pods' networks on a machine, by the standard CNI plugins.
//!
//! Owns: one bridge with the gateways' addresses, one nftables table per family and one for the bridge, and the directory
//! of its records. Addresses are chosen here and asked of `host-local`, so that whoever comes back gets the address it had. A namespace's
//! loopback is its maker's: it is up before a pod comes here.
//!
//! # Guarantees
//! - A record is on disk before a plugin runs and until all is removed: what a crash leaves is found by it.
//! - A pod sends in its own name alone, from its addition on.
//! - Pods reach of the machine what they are allowed to, and through it no metadata of a cloud; see [`Cni::let_reach`].
//! - Pods are added at the same time and removed one by one, while none is added: whatever is in the bridge and in no record
//!   then belongs to nobody.
//! - Several processes may share a network, one for each node: see [`sharing`].
//! - Addresses go along with whom they belong to: see [`claims`].

mod addresses;
mod claims;
mod error;
mod guard;
mod host;
mod leftovers;
mod plugins;
mod reach;
mod records;
mod sharing;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{Mutex, RwLock, watch};

use crate::kernel::MAX_NAME;
use crate::links::Links;
use crate::namespace::Namespace;
use addresses::Pool;
pub use error::{CniError, Exhausted, LinkError, NftError, PluginError};
use plugins::{Action, Added};
pub use reach::Service;
use records::{Former, Progress, Record, Records};

/// The plugins that every pod needs.
const NEEDED: [&str; 2] = ["bridge", "host-local"];

/// What the machine's pod network is like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// The bridge's name.
    pub bridge: String,
    /// Pods' addresses; the first is the gateway's.
    pub subnet4: (Ipv4Addr, u8),
    /// Pods' other addresses.
    pub subnet6: Option<(Ipv6Addr, u8)>,
    /// The largest packet; the kernel's default without.
    pub mtu: Option<u32>,
}

/// A pod network, and what it takes to make it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What it is like.
    pub network: Network,
    /// Directories with plugins, the first to be looked into first.
    pub plugins: Vec<PathBuf>,
    /// The directory for records. Nobody else uses it, except the processes of other nodes that name themselves below.
    pub state: PathBuf,
    /// The node whose pods this process adds, where several processes share the network; empty for a process that adds none.
    /// Without it, this process has the network to itself.
    pub node: Option<String>,
}

/// A pod to be attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Unique on the machine: the pod's UID.
    pub id: String,
    /// Its network namespace.
    pub netns: PathBuf,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// Asks for the addresses that this identity had before, if they are free.
    pub identity: Option<String>,
    /// Ports of the machine that lead to the pod.
    pub host_ports: Vec<HostPort>,
}

/// A port of the machine that leads to a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPort {
    /// On this address of the machine only.
    pub host_ip: Option<IpAddr>,
    /// The machine's port.
    pub host_port: u16,
    /// The pod's port.
    pub container_port: u16,
    /// TCP, UDP or SCTP.
    pub protocol: String,
}

/// A machine's pod network.
#[derive(Debug)]
pub struct Cni {
    settings: Settings,
    pools: Vec<Pool>,
    /// Held by who has plugins running: additions share it, a removal has it alone. Taken before the records.
    plugins: RwLock<()>,
    records: Mutex<Records>,
    reach: std::sync::Mutex<reach::Reach>,
    /// What pods of this process have claimed.
    claimed: watch::Sender<BTreeMap<String, Vec<IpAddr>>>,
}

impl Cni {
    /// Reads the records; makes nothing yet.
    ///
    /// # Errors
    /// When the settings are of no use, a plugin is missing, or the records cannot be read.
    pub fn new(settings: Settings) -> Result<Self, CniError> {
        let name = &settings.network.bridge;
        if name.is_empty()
            || name.len() > MAX_NAME
            || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        {
            return Err(CniError::Bridge(name.clone()));
        }
        for plugin in NEEDED {
            plugins::find(&settings.plugins, plugin)?;
        }
        let pools = pools(&settings.network)?;
        let records = Records::open(&settings.state).map_err(records_error("read"))?;
        let (plugins, reach) = Default::default();
        let claimed = watch::Sender::new(claims::of(&records, &settings));
        Ok(Self { settings, pools, plugins, records: Mutex::new(records), reach, claimed })
    }

    /// The network that was made with these records, whatever the settings are by now; none if there is none.
    ///
    /// # Errors
    /// As [`Cni::new`].
    pub fn on_record(state: PathBuf, plugins: Vec<PathBuf>) -> Result<Option<Self>, CniError> {
        let former = Records::read_former(&state).map_err(records_error("read"))?;
        let Some(network) = former.and_then(|former| former.network) else { return Ok(None) };
        Self::new(Settings { network, plugins, state, node: None }).map(Some)
    }

    /// The bridge's addresses, which are the pods' gateways.
    pub fn gateways(&self) -> Vec<IpAddr> {
        self.pools.iter().map(|pool| pool.gateway()).collect()
    }

    /// Makes the bridge with the gateways' addresses and lets the machine forward. May be called again. A network that was
    /// made with other settings goes first. Of the machine itself pods reach nothing until [`Cni::let_reach`] says what.
    ///
    /// # Errors
    /// When the kernel refuses something, or pods are still in that other network.
    pub async fn prepare(&self) -> Result<(), CniError> {
        let mut records = self.records().await?;
        let former = Self::on_record(self.settings.state.clone(), self.settings.plugins.clone())?;
        if let Some(former) = former.filter(|former| former.settings.network != self.settings.network) {
            former.remove_unused().await?;
            *records = Records::open(&self.settings.state).map_err(records_error("read"))?;
        }
        self.make_host(&mut records).await
    }

    /// Attaches a pod. Asked again for the same id, answers what is on record; not twice at the same time for one.
    ///
    /// # Errors
    /// When a plugin fails; then nothing is left of the attempt.
    pub async fn add(&self, pod: &Attachment) -> Result<Vec<IpAddr>, CniError> {
        check_id(&pod.id)?;
        if !pod.host_ports.is_empty() {
            plugins::find(&self.settings.plugins, "portmap")?;
        }
        let namespace =
            Namespace::at(&pod.netns).map_err(|source| CniError::Namespace { path: pod.netns.clone(), source })?;
        let known = self.records().await?.pods.get(&pod.id).cloned();
        if let Some(known) = known {
            if known.namespace == namespace && self.is_attached(&known).await? {
                return Ok(known.addresses);
            }
            // Cut off, or of a namespace that is no more.
            self.remove(&pod.id).await?;
        }
        let adding = self.adding().await?;
        let record = self.reserve(pod, namespace).await?;
        let attached = match self.attach(&record).await {
            Ok(progress) => self.complete(Record { progress, ..record }).await,
            Err(error) => Err(error),
        };
        match attached {
            Ok(addresses) => Ok(addresses),
            Err(error) => {
                drop(adding);
                if let Err(second) = self.remove(&pod.id).await {
                    tracing::warn!(id = pod.id, error = %second, "cannot remove a pod's network");
                }
                Err(error)
            }
        }
    }

    /// Chooses a pod's addresses, and writes down that it is being added.
    async fn reserve(&self, pod: &Attachment, namespace: Namespace) -> Result<Record, CniError> {
        let mut records = self.records().await?;
        if !records.is_made {
            self.make_host(&mut records).await?;
        }
        let mut memory = records.memory.clone();
        let addresses = memory.choose(&self.pools, &records.used(), pod.identity.as_deref())?;
        let record = Record {
            id: pod.id.clone(),
            netns: pod.netns.clone(),
            namespace,
            pod: format!("{}/{}", pod.namespace, pod.name),
            addresses,
            identity: pod.identity.clone(),
            host_ports: pod.host_ports.clone(),
            node: self.settings.node.clone(),
            progress: Progress::Adding,
        };
        records.put(record.clone()).map_err(records_error("write"))?;
        records.remember(memory).map_err(records_error("write"))?;
        Ok(record)
    }

    /// Detaches a pod, whether its namespace is there or not.
    ///
    /// # Errors
    /// When something could not be removed; the record stays until it is.
    pub async fn remove(&self, id: &str) -> Result<(), CniError> {
        let _alone = self.alone().await?;
        let mut records = self.records().await?;
        match records.pods.get(id).cloned() {
            Some(record) => self.detach(&mut records, &record).await,
            None => Ok(()),
        }
    }

    /// Removes everything of this node's ids that do not live any more, and what nobody owns.
    ///
    /// # Errors
    /// As [`Cni::remove`], of the first that failed.
    pub async fn retain(&self, living: &BTreeSet<String>) -> Result<(), CniError> {
        let _alone = self.alone().await?;
        let mut records = self.records().await?;
        let is_ours = |record: &Record| record.node == self.settings.node;
        let gone = |record: &Record| is_ours(record) && !living.contains(&record.id);
        self.remove_those(&mut records, gone).await
    }

    /// Removes all: pods' links, bridge, masquerading, records; and sets the machine back as it was. Only which addresses
    /// identities have is remembered.
    ///
    /// # Errors
    /// When something could not be removed; it may be called again.
    pub async fn remove_all(&self) -> Result<(), CniError> {
        let _alone = self.alone().await?;
        let mut records = self.records().await?;
        self.remove_with(&mut records).await
    }

    /// Removes all, unless pods are in it.
    async fn remove_unused(&self) -> Result<(), CniError> {
        let _alone = self.alone().await?;
        let mut records = self.records().await?;
        let living = records.pods.values().filter(|record| record.living_netns().is_some()).count();
        if living > 0 {
            return Err(CniError::InUse { bridge: self.settings.network.bridge.clone(), pods: living });
        }
        self.remove_with(&mut records).await
    }

    async fn remove_with(&self, records: &mut Records) -> Result<(), CniError> {
        self.remove_those(records, |_| true).await?;
        records.is_made = false;
        host::unmake(&self.settings.network).await?;
        if let Some(former) = &records.former {
            host::restore(&former.sysctls)?;
        }
        records.forget().map_err(records_error("remove"))
    }

    async fn remove_those(&self, records: &mut Records, gone: impl Fn(&Record) -> bool) -> Result<(), CniError> {
        let gone: Vec<Record> = records.pods.values().filter(|record| gone(record)).cloned().collect();
        for record in gone {
            self.detach(records, &record).await?;
        }
        self.remove_leftovers(records, None).await
    }

    /// Whether all was done, and the link is there still: a new namespace may have an old one's number.
    async fn is_attached(&self, record: &Record) -> Result<bool, CniError> {
        match &record.progress {
            Progress::Added { host_link: Some(link), .. } => Ok(Links::open()?.find(link).await?.is_some()),
            Progress::Added { host_link: None, .. } | Progress::Adding => Ok(false),
        }
    }

    /// Runs the plugins; what came of it.
    async fn attach(&self, record: &Record) -> Result<Progress, CniError> {
        let action = Action::Add(&record.netns);
        let bridge = plugins::bridge(&self.settings, &self.pools, &record.addresses);
        let answer = self.run("bridge", record, action, &bridge).await?;
        let failed = |source| PluginError::Answer { name: "bridge", source };
        let added: Added = serde_json::from_slice(&answer).map_err(failed)?;
        let got = added.addresses();
        if got != record.addresses {
            return Err(CniError::OtherAddresses { wanted: record.addresses.clone(), got });
        }
        if !record.host_ports.is_empty() {
            self.remember_tables().await?;
            let answer: Value = serde_json::from_slice(&answer).map_err(failed)?;
            let portmap = plugins::portmap(&self.settings, &record.host_ports, Some(&answer));
            self.run("portmap", record, action, &portmap).await?;
        }
        Ok(Progress::Added { host_link: added.host_link(&self.settings.network.bridge), mac: added.mac() })
    }

    /// Runs the plugins the other way, and removes what they leave.
    async fn detach(&self, records: &mut Records, record: &Record) -> Result<(), CniError> {
        let action = Action::Remove(record.living_netns());
        if !record.host_ports.is_empty() {
            let portmap = plugins::portmap(&self.settings, &record.host_ports, None);
            self.run("portmap", record, action, &portmap).await?;
        }
        let bridge = plugins::bridge(&self.settings, &self.pools, &record.addresses);
        // All that it should remove is removed below in any case.
        if let Err(error) = self.run("bridge", record, action, &bridge).await {
            tracing::warn!(id = record.id, %error, "a CNI plugin did not remove a pod's link");
        }
        self.remove_leftovers(records, Some(&record.id)).await?;
        records.remove(&record.id).map_err(records_error("remove"))?;
        self.claimed.send_if_modified(|claimed| claimed.remove(&record.id).is_some());
        if records.pods.values().all(|record| record.host_ports.is_empty())
            && let Some(former) = &records.former
            && let Some(tables) = &former.nat_tables
        {
            leftovers::remove_portmap(tables).await?;
            let former = Former { nat_tables: None, ..former.clone() };
            records.set_former(former).map_err(records_error("write"))?;
        }
        Ok(())
    }

    /// Removes links, their rules and addresses of nobody; `gone` is nobody already.
    async fn remove_leftovers(&self, records: &Records, gone: Option<&str>) -> Result<(), CniError> {
        let living = || records.pods.values().filter(|record| Some(record.id.as_str()) != gone);
        let links = living().filter_map(|record| match &record.progress {
            Progress::Added { host_link, .. } => host_link.as_deref(),
            Progress::Adding => None,
        });
        let links = links.collect();
        leftovers::remove_links(&self.settings.network.bridge, &links).await?;
        guard::retain(&host::table(&self.settings.network.bridge), &links).await?;
        let used = living().flat_map(|record| &record.addresses).copied().collect();
        let folder = plugins::address_files(&self.settings).join(plugins::network(&self.settings));
        leftovers::remove_addresses(&folder, &used).map_err(records_error("remove"))
    }

    async fn run(
        &self,
        name: &'static str,
        record: &Record,
        action: Action<'_>,
        configuration: &Value,
    ) -> Result<Vec<u8>, PluginError> {
        plugins::run(&self.settings.plugins, name, &record.id, action, configuration).await
    }
}

fn pools(network: &Network) -> Result<Vec<Pool>, CniError> {
    let Network { subnet4: (four, prefix4), subnet6, .. } = network;
    let first = Pool::four((*four, *prefix4));
    let mut pools = vec![first.ok_or_else(|| CniError::Subnet(format!("{four}/{prefix4}")))?];
    if let Some((six, prefix6)) = subnet6 {
        let second = Pool::six((*six, *prefix6));
        pools.push(second.ok_or_else(|| CniError::Subnet(format!("{six}/{prefix6}")))?);
    }
    Ok(pools)
}

/// As the specification has it for containers; and nothing that leads out of a directory.
fn check_id(id: &str) -> Result<(), CniError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    let is_good =
        id.len() <= 128 && id.starts_with(|first: char| first.is_ascii_alphanumeric()) && id.bytes().all(is_plain);
    if is_good { Ok(()) } else { Err(CniError::Id(id.to_owned())) }
}

fn records_error(action: &'static str) -> impl FnOnce(io::Error) -> CniError {
    move |source| CniError::Records { action, source }
}
