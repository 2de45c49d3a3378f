//! The health of everything, as `orlop status`, `/readyz?verbose` and systemd report it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use api::quantity::Amount;
use apiserver::{ApiServer, Check, StoreSize};
use hypervisor::accelerator::Finding;
use manager::serving::Pages;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::agents::Agents;
use super::nodes::Nodes;
use super::storage::{Opened, StorageReport};
use super::vhost;

/// The health of everything at one moment.
/// The program that asks may be newer than the one that answers: what the answer lacks has its default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Report {
    /// The process.
    pub(crate) pid: u32,
    /// Where the API is.
    pub(crate) server: String,
    /// What is wrong with each component; nothing if it is healthy. VMs may not run until it is fixed. Earlier releases call
    /// it `parts`.
    #[serde(alias = "parts")]
    pub(crate) components: BTreeMap<String, Option<String>>,
    /// What is degraded: it works, but with less than it could have.
    pub(crate) less: Vec<Less>,
    /// Facts about the machine, in the order of their names.
    pub(crate) facts: BTreeMap<String, String>,
    /// Where volumes are; nothing where nodes only pretend.
    pub(crate) storage: Option<StorageReport>,
    /// The nodes, and what keeps them from taking further VMs.
    pub(crate) nodes: Nodes,
}

/// Something that VMs have to do without.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Less {
    /// What is missing.
    pub(crate) what: String,
    /// What follows from that, and why it is so.
    pub(crate) why: String,
    /// What would change it.
    pub(crate) remedy: String,
}

/// Makes reports.
#[derive(Clone)]
pub(crate) struct Reporter {
    pub(super) address: SocketAddr,
    /// Whose store is told of; nothing where the server asks, which tells of it by itself.
    pub(super) server: Option<ApiServer>,
    pub(super) pages: BTreeMap<&'static str, Pages>,
    pub(super) facts: BTreeMap<String, String>,
    /// What was found to be missing at the start.
    pub(super) less: Vec<Less>,
    /// What guests run with; nothing where they only pretend.
    pub(super) findings: Option<watch::Receiver<Option<Finding>>>,
    /// The machine's volumes, where this process keeps them.
    pub(super) storage: Option<Opened>,
    pub(super) nodes: watch::Receiver<Nodes>,
    /// The agents of nodes, where those are processes of their own.
    pub(super) agents: Agents,
}

impl Reporter {
    /// How everything is now.
    pub(crate) fn report(&self) -> Report {
        let Self { address, server, pages, facts, less: known, findings, storage, nodes, agents } = self;
        let troubles = pages.iter().map(|(name, pages)| {
            let told: Vec<String> =
                pages.troubles().into_iter().map(|(check, why)| format!("{check}: {why}")).collect();
            ((*name).to_owned(), (!told.is_empty()).then(|| told.join("; ")))
        });
        let components = troubles.chain([("apiserver".to_owned(), None)]).collect();
        let finding = findings.as_ref().and_then(|findings| findings.borrow().clone());
        let mut facts = facts.clone();
        facts.extend(finding.as_ref().map(|finding| ("accelerator".to_owned(), finding.to_string())));
        let size = server.as_ref().map(ApiServer::store_size);
        facts.extend(size.map(|size| ("store".to_owned(), fact(size))));
        let found = finding.map(|finding| less(&finding, vhost::is_there())).unwrap_or_default();
        let (storage, full) = storage.as_ref().map(Opened::report).unzip();
        let full = size.and_then(nearly_full).into_iter().chain(full.flatten());
        let less = found.into_iter().chain(known.iter().cloned()).chain(full).collect();
        let mut nodes = nodes.borrow().clone();
        agents.add_to(&mut nodes);
        let server = format!("https://{address}");
        Report { pid: std::process::id(), server, components, less, facts, storage, nodes }
    }
}

impl Report {
    /// As `/readyz` reports it.
    pub(crate) fn checks(&self) -> Vec<Check> {
        let components = self
            .components
            .iter()
            .filter(|(name, _)| *name != "apiserver")
            .map(|(name, trouble)| Check { name: name.clone(), answer: trouble.clone().map_or(Ok(None), Err) });
        let less = self.less.iter().map(|less| Check {
            name: less.what.replace(' ', "-"),
            answer: Ok(Some(format!("{}; {}", less.why, less.remedy))),
        });
        let nodes = self.nodes.iter().map(|(name, trouble)| Check {
            name: format!("node-{name}"),
            answer: trouble
                .as_ref()
                .map_or(Ok(None), |trouble| Err(format!("{}; {}", trouble.why, trouble.remedies.join("; ")))),
        });
        let volumes =
            self.storage.iter().map(|told| Check { name: "volumes".to_owned(), answer: Ok(Some(told.line())) });
        components.chain(nodes).chain(volumes).chain(less).collect()
    }

    /// Whether nothing keeps VMs from running.
    pub(crate) fn is_healthy(&self) -> bool {
        self.components.values().all(Option::is_none) && self.nodes.values().all(Option::is_none)
    }

    /// In one line: for systemd, and for whoever starts it.
    pub(crate) fn line(&self) -> String {
        let ill: Vec<String> = self
            .components
            .iter()
            .map(|(name, trouble)| (name, trouble.as_ref()))
            .chain(self.nodes.iter().map(|(name, trouble)| (name, trouble.as_ref().map(|trouble| &trouble.why))))
            .filter_map(|(name, trouble)| trouble.map(|trouble| format!("{name}: {trouble}")))
            .collect();
        let less: Vec<&str> = self.less.iter().map(|less| less.what.as_str()).collect();
        match (ill.is_empty(), less.is_empty()) {
            (false, _) => format!("unhealthy: {}", ill.join("; ")),
            (true, false) => format!("{}, degraded: {}", self.server, less.join(", ")),
            (true, true) => self.server.clone(),
        }
    }
}

fn less(finding: &Finding, has_vhost_net: bool) -> Vec<Less> {
    let mut all = Vec::new();
    if let Some(remedy) = finding.remedy() {
        let why = format!("guests are emulated, which is slow: {}", finding.reason);
        all.push(Less { what: "no KVM".to_owned(), why, remedy: remedy.to_owned() });
    }
    // Emulated guests do not use it.
    if !has_vhost_net && !finding.is_emulated() {
        let why = "QEMU carries the guests' packets, which costs CPU time: there is no /dev/vhost-net".to_owned();
        let remedy = "use a kernel with the module vhost_net; `orlop up` loads it".to_owned();
        all.push(Less { what: "no vhost-net".to_owned(), why, remedy });
    }
    all
}

/// As `orlop status` shows it, in whole MiB.
fn fact(size: StoreSize) -> String {
    let whole = |bytes: u64| Amount::bytes(bytes.next_multiple_of(1 << 20));
    let of = size.quota.map(|quota| format!(" of {}", whole(quota))).unwrap_or_default();
    format!("{}{of}", whole(size.bytes))
}

fn nearly_full(size: StoreSize) -> Option<Less> {
    size.is_nearly_full().then(|| Less {
        what: "store nearly full".to_owned(),
        why: format!("{size}; at the quota, requests that would make it larger are refused"),
        remedy: "delete unneeded objects, or start `orlop up` with a larger --store-quota".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use hypervisor::accelerator::{Accelerator, Reason};

    use super::super::nodes::Trouble;
    use super::*;

    #[test]
    fn what_guests_do_without_is_told_with_its_remedy() {
        let found = |accelerator, reason| Finding { accelerator, reason };
        assert_eq!(less(&found(Accelerator::Kvm, Reason::Works), true), []);
        assert_eq!(less(&found(Accelerator::Tcg, Reason::Chosen), false), []);
        let told = less(&found(Accelerator::Tcg, Reason::NoDevice), false);
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].why, "guests are emulated, which is slow: there is no /dev/kvm");
        assert!(told[0].remedy.contains("modprobe"), "{told:?}");
        let told = less(&found(Accelerator::Kvm, Reason::Works), false);
        assert_eq!(told[0].what, "no vhost-net");
    }

    #[test]
    fn a_store_that_is_nearly_full_is_told_in_time() {
        let size = |bytes| StoreSize { bytes, quota: Some(2 << 30) };
        assert_eq!(fact(size(1)), "1Mi of 2Gi");
        assert_eq!(nearly_full(size(1 << 30)), None);
        let told = nearly_full(size(2_000_000_000)).unwrap();
        assert!(told.why.starts_with("its objects have 2000000000 bytes, and its quota is 2147483648;"), "{told:?}");
    }

    #[test]
    fn an_older_process_is_understood() {
        let said = r#"{ "pid": 7, "server": "https://s", "parts": { "node": null } }"#;
        let report: Report = serde_json::from_str(said).unwrap();
        assert!((report.pid, report.is_healthy()) == (7, true) && report.less.is_empty());
    }

    #[test]
    fn one_line_says_the_worst() {
        let mut report = Report { server: "https://s".to_owned(), ..Report::default() };
        assert_eq!(report.line(), "https://s");
        report.less = vec![Less { what: "no KVM".to_owned(), why: String::new(), remedy: String::new() }];
        assert_eq!(report.line(), "https://s, degraded: no KVM");
        report.components = BTreeMap::from([("node".to_owned(), Some("late".to_owned()))]);
        assert_eq!(report.line(), "unhealthy: node: late");
        let full = Trouble { why: "DiskPressure".to_owned(), remedies: vec!["free some space".to_owned()] };
        report.components = BTreeMap::new();
        report.nodes = BTreeMap::from([("here".to_owned(), Some(full)), ("there".to_owned(), None)]);
        assert_eq!(report.line(), "unhealthy: here: DiskPressure");
        assert!(!report.is_healthy());
        let told = report.checks().into_iter().map(|check| (check.name, check.answer.is_ok()));
        let told: Vec<_> = told.collect();
        assert_eq!(told[..2], [("node-here".to_owned(), false), ("node-there".to_owned(), true)]);
    }
}
