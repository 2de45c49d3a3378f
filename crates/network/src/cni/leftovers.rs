//! Removes what CNI plugins leave behind.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use serde_json::Value;

use super::records::Former;
use super::{Cni, CniError, records_error};
use crate::links::Links;
use crate::nft::{self, NftError};

const FAMILIES: [&str; 2] = ["ip", "ip6"];

/// The chains that `portmap` makes once, and its chains per pod.
const PORTMAP_CHAINS: &str = "CNI-HOSTPORT-";
const PORTMAP_PODS: &str = "CNI-DN-";

/// Chains that `iptables` makes with a table.
const IPTABLES_CHAINS: [&str; 4] = ["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"];

impl Cni {
    /// Before the first port is mapped: which tables are not of this doing.
    pub(super) async fn remember_tables(&self) -> Result<(), CniError> {
        let mut records = self.records().await?;
        let former = records.former.clone().unwrap_or_default();
        if former.nat_tables.is_none() {
            let former = Former { nat_tables: Some(nat_tables().await?), ..former };
            records.set_former(former).map_err(records_error("write"))?;
        }
        Ok(())
    }
}

/// Removes links in the bridge that belong to no pod.
pub(super) async fn remove_links(bridge: &str, known: &BTreeSet<&str>) -> Result<(), CniError> {
    let links = Links::open()?;
    let Some(bridge) = links.find(bridge).await? else { return Ok(()) };
    for link in links.list().await? {
        if link.controller == Some(bridge.index) && !known.contains(link.name.as_str()) {
            links.remove(&link.name).await?;
        }
    }
    Ok(())
}

/// Removes the files of `host-local` for addresses that no pod has.
pub(super) fn remove_addresses(folder: &Path, used: &BTreeSet<IpAddr>) -> io::Result<()> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let address = entry.file_name().to_str().and_then(|name| name.parse::<IpAddr>().ok());
        if address.is_some_and(|address| !used.contains(&address)) {
            crate::files::remove(&entry.path())?;
        }
    }
    Ok(())
}

/// The families that have a table `nat`.
pub(super) async fn nat_tables() -> Result<BTreeSet<String>, NftError> {
    let listed = nft::run(&["-j", "list", "tables"], &[]).await?;
    let listed = objects(&listed, "table");
    let nat = listed.iter().filter(|table| text(table, "name") == "nat").map(|table| text(table, "family").to_owned());
    Ok(nat.collect())
}

/// Removes what `portmap` shares between pods, if there is no pod of anybody any more that needs it, and the tables
/// that were not there before.
pub(super) async fn remove_portmap(former: &BTreeSet<String>) -> Result<(), NftError> {
    let present = nat_tables().await?;
    for family in FAMILIES.into_iter().filter(|family| present.contains(*family)) {
        let listed = nft::run(&["-j", "list", "table", family, "nat"], &[]).await?;
        let commands = removal(family, &listed, former.contains(family));
        if !commands.is_empty() {
            nft::run(&["-f", "-"], commands.as_bytes()).await?;
        }
    }
    Ok(())
}

/// What removes it, in the language of `nft`.
fn removal(family: &str, listed: &[u8], was_there: bool) -> String {
    let chains = objects(listed, "chain");
    let rules = objects(listed, "rule");
    let names: Vec<&str> = chains.iter().map(|chain| text(chain, "name")).collect();
    if names.iter().any(|name| name.starts_with(PORTMAP_PODS)) {
        return String::new();
    }
    let is_ours = |chain: &str| chain.starts_with(PORTMAP_CHAINS);
    let leads_to_ours = |rule: &&Value| {
        rule["expr"].as_array().is_some_and(|expr| {
            expr.iter().any(|statement| is_ours(statement["jump"]["target"].as_str().unwrap_or_default()))
        })
    };
    let (going, staying): (Vec<&Value>, Vec<&Value>) =
        rules.iter().partition(|rule| is_ours(text(rule, "chain")) || leads_to_ours(rule));
    let only_iptables = names.iter().all(|name| is_ours(name) || IPTABLES_CHAINS.contains(name));
    if !was_there && staying.is_empty() && only_iptables {
        return format!("delete table {family} nat\n");
    }
    let rules = going
        .iter()
        .map(|rule| format!("delete rule {family} nat {} handle {}\n", text(rule, "chain"), rule["handle"]));
    let chains = names.iter().filter(|name| is_ours(name)).map(|name| format!("delete chain {family} nat {name}\n"));
    rules.chain(chains).collect()
}

pub(super) fn objects(listed: &[u8], kind: &str) -> Vec<Value> {
    let listed: Value = serde_json::from_slice(listed).unwrap_or_default();
    let all = listed["nftables"].as_array().cloned().unwrap_or_default();
    all.into_iter().map(|mut object| object[kind].take()).filter(|object| !object.is_null()).collect()
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn listed(chains: &[&str], rules: &[(&str, u32, &str)]) -> Vec<u8> {
        let chains = chains.iter().map(|name| json!({ "chain": { "family": "ip", "table": "nat", "name": name } }));
        let rules = rules.iter().map(|(chain, handle, target)| {
            json!({ "rule": { "chain": chain, "handle": handle, "expr": [{ "jump": { "target": target } }] } })
        });
        json!({ "nftables": chains.chain(rules).collect::<Vec<_>>() }).to_string().into_bytes()
    }

    #[test]
    fn a_table_that_only_portmap_made_goes() {
        let table = listed(&["PREROUTING", "CNI-HOSTPORT-DNAT"], &[("PREROUTING", 7, "CNI-HOSTPORT-DNAT")]);
        assert_eq!(removal("ip", &table, false), "delete table ip nat\n");
        let empty = listed(&[], &[]);
        assert_eq!(removal("ip6", &empty, false), "delete table ip6 nat\n");
    }

    #[test]
    fn of_a_table_of_others_only_portmaps_part_goes() {
        let rules = [("PREROUTING", 7, "CNI-HOSTPORT-DNAT"), ("PREROUTING", 8, "DOCKER")];
        let table = listed(&["PREROUTING", "CNI-HOSTPORT-DNAT", "DOCKER"], &rules);
        let expected = "delete rule ip nat PREROUTING handle 7\ndelete chain ip nat CNI-HOSTPORT-DNAT\n";
        assert_eq!(removal("ip", &table, true), expected);
        assert_eq!(removal("ip", &table, false), expected);
        assert_eq!(removal("ip", &listed(&["PREROUTING"], &[]), true), "");
    }

    #[test]
    fn while_pods_of_others_have_ports_nothing_goes() {
        let table = listed(&["PREROUTING", "CNI-HOSTPORT-DNAT", "CNI-DN-abc"], &[]);
        assert_eq!(removal("ip", &table, false), "");
    }
}
