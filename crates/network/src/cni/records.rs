//! The records of pods' networks, on disk and in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::addresses::AddressHistory;
use super::{HostPort, Network};
use crate::files;
use crate::mac::Mac;
use crate::namespace::Namespace;

/// Which addresses identities have.
const ADDRESSES: &str = "addresses.json";
const FORMER: &str = "former.json";
const REACH: &str = "reach.json";

/// One pod's network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) id: String,
    pub(super) netns: PathBuf,
    pub(super) namespace: Namespace,
    /// Which pod it is, for who reads the file.
    pub(super) pod: String,
    /// Its addresses; none if another pod of its identity has claimed them.
    pub(super) addresses: Vec<IpAddr>,
    /// Whose addresses it may claim.
    #[serde(default)]
    pub(super) identity: Option<String>,
    pub(super) host_ports: Vec<HostPort>,
    /// The node that it is of, where several share the network.
    #[serde(default)]
    pub(super) node: Option<String>,
    pub(super) progress: Progress,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Progress {
    /// Plugins may have made anything.
    Adding,
    Added {
        host_link: Option<String>,
        /// Of the pod's own end; pods of an earlier version have none on record.
        #[serde(default)]
        mac: Option<Mac>,
    },
}

impl Record {
    /// The namespace's path, while it leads to the namespace.
    pub(super) fn living_netns(&self) -> Option<&Path> {
        Namespace::at(&self.netns).is_ok_and(|now| now == self.namespace).then_some(self.netns.as_path())
    }
}

/// How the machine was before, and what was made then.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Former {
    /// What is to be removed at the end, whatever the settings are by then.
    #[serde(default)]
    pub(super) network: Option<Network>,
    /// Kernel settings, in the order in which they were changed.
    pub(super) sysctls: Vec<(String, String)>,
    /// Families that had a table `nat` before the first port of the machine was mapped; none: no port ever was.
    pub(super) nat_tables: Option<BTreeSet<String>>,
}

/// All of it. Changes are on disk before they are in memory.
#[derive(Debug)]
pub(super) struct Records {
    folder: PathBuf,
    pub(super) pods: BTreeMap<String, Record>,
    pub(super) memory: AddressHistory,
    pub(super) former: Option<Former>,
    /// Whether this process has made the bridge and its rules.
    pub(super) is_made: bool,
}

impl Records {
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        files::create_folder(&folder.join("pods"))?;
        let mut pods = BTreeMap::new();
        for entry in std::fs::read_dir(folder.join("pods"))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "json")
                && let Some(record) = files::read_json::<Record>(&path)?
            {
                pods.insert(record.id.clone(), record);
            }
        }
        let memory = files::read_json(&folder.join(ADDRESSES))?.unwrap_or_default();
        let former = Self::read_former(folder)?;
        Ok(Self { folder: folder.to_owned(), pods, memory, former, is_made: false })
    }

    /// Reads what other processes have changed.
    pub(super) fn reload(&mut self) -> io::Result<()> {
        let now = Self::open(&self.folder)?;
        // Whoever removed the network took its rules along.
        let is_made = self.is_made && now.former.is_some();
        *self = Self { is_made, ..now };
        Ok(())
    }

    /// What pods may reach, as another process was asked to allow it.
    pub(super) fn read_reach<T: DeserializeOwned>(&self) -> io::Result<Option<T>> {
        files::read_json(&self.folder.join(REACH))
    }

    pub(super) fn write_reach(&self, reach: &impl Serialize) -> io::Result<()> {
        files::create_folder(&self.folder)?;
        files::write_json(&self.folder.join(REACH), reach)
    }

    pub(super) fn read_former(folder: &Path) -> io::Result<Option<Former>> {
        files::read_json(&folder.join(FORMER))
    }

    pub(super) fn put(&mut self, record: Record) -> io::Result<()> {
        // After `forget` there is no directory.
        files::create_folder(&self.folder.join("pods"))?;
        files::write_json(&self.path(&record.id), &record)?;
        self.pods.insert(record.id.clone(), record);
        Ok(())
    }

    pub(super) fn remove(&mut self, id: &str) -> io::Result<()> {
        files::remove(&self.path(id))?;
        self.pods.remove(id);
        Ok(())
    }

    pub(super) fn remember(&mut self, memory: AddressHistory) -> io::Result<()> {
        if memory != self.memory {
            files::create_folder(&self.folder)?;
            files::write_json(&self.folder.join(ADDRESSES), &memory)?;
            self.memory = memory;
        }
        Ok(())
    }

    pub(super) fn set_former(&mut self, former: Former) -> io::Result<()> {
        if self.former.as_ref() != Some(&former) {
            files::create_folder(&self.folder)?;
            files::write_json(&self.folder.join(FORMER), &former)?;
            self.former = Some(former);
        }
        Ok(())
    }

    /// Removes the whole directory, but for what identities come back to.
    pub(super) fn forget(&mut self) -> io::Result<()> {
        match std::fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.pods.clear();
        self.former = None;
        self.is_made = false;
        match std::mem::take(&mut self.memory) {
            memory if memory.is_empty() => Ok(()),
            memory => self.remember(memory),
        }
    }

    pub(super) fn used(&self) -> BTreeSet<IpAddr> {
        self.pods.values().flat_map(|record| &record.addresses).copied().collect()
    }

    fn path(&self, id: &str) -> PathBuf {
        self.folder.join("pods").join(format!("{id}.json"))
    }
}
