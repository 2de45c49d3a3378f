//! What a pod may send: frames in its own name, looked at where they enter the pods' bridge. Containers may make frames of any
//! kind by default (`NET_RAW`), and the bridge would carry them to other pods and to the machine.
//!
//! | frame | passes |
//! |---|---|
//! | any | from the pod's own Ethernet address, and of the kinds below |
//! | ARP | about that address and its IPv4 address, or none yet |
//! | IPv4 | from its address |
//! | IPv6 | from its address, from that of its link, or from none while it looks for itself |
//! | neighbour advertisement | about one of these addresses |
//! | router advertisement, redirect | never: the machine is the router |
//!
//! Rules are text here, as `nft` has it for verdict maps: a pod's link leads to its chain, so that a frame meets the rules of
//! one pod, however many there are. A link that is in no map is being made, and nothing of its pod runs yet.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr};

use super::records::{Progress, Record};
use super::{Cni, CniError, NftError, host, leftovers, records_error};
use crate::mac::Mac;
use crate::nft;

/// A link in the bridge, and who may send by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Port<'a> {
    link: &'a str,
    /// Pods of an earlier version are known by their addresses alone.
    mac: Option<Mac>,
    addresses: &'a [IpAddr],
}

impl<'a> Port<'a> {
    /// The port of a pod that is connected.
    pub(super) fn of(record: &'a Record) -> Option<Self> {
        match &record.progress {
            Progress::Added { host_link: Some(link), mac } if is_plain(link) => {
                Some(Self { link, mac: *mac, addresses: &record.addresses })
            }
            _ => None,
        }
    }
}

impl Cni {
    /// Why a pod can send in the name of others: the machine has no such rules. None: it cannot.
    pub fn forgeable(&self) -> Option<String> {
        self.reach().lacks.guard.as_ref().map(ToString::to_string)
    }

    /// Sees to it that a pod that was attached sends in its own name alone, and writes down that all is done. Nobody makes
    /// all rules anew in between, from records that do not have it.
    pub(super) async fn complete(&self, record: Record) -> Result<Vec<IpAddr>, CniError> {
        let mut records = self.records().await?;
        if self.forgeable().is_none()
            && let Some(port) = Port::of(&record)
        {
            add(&host::table(&self.settings.network.bridge), &port).await?;
        }
        let addresses = record.addresses.clone();
        records.put(record).map_err(records_error("write"))?;
        Ok(addresses)
    }
}

/// A plugin chose the name; no other text becomes a rule.
fn is_plain(link: &str) -> bool {
    link.len() <= crate::kernel::MAX_NAME
        && link.starts_with(|first: char| first.is_ascii_alphabetic())
        && link.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

/// Puts the rules of all ports in place of those that are there.
pub(super) async fn replace(table: &str, ports: &[Port<'_>]) -> Result<(), NftError> {
    let mut script = removal(table);
    let _infallible = write!(
        script,
        "table bridge {table} {{\n\
         map pods {{ type ifname : verdict; }}\n\
         chain prerouting {{ type filter hook prerouting priority -300; policy accept; iifname vmap @pods; }}\n\
         chain input {{ type filter hook input priority -300; policy accept; \
         ether daddr & ff:ff:ff:ff:ff:f0 == 01:80:c2:00:00:00 iifname vmap @pods; }}\n\
         }}\n"
    );
    ports.iter().for_each(|port| add_port(&mut script, table, port));
    run(&script).await
}

/// Adds the rules of one more, or renews them.
pub(super) async fn add(table: &str, port: &Port<'_>) -> Result<(), NftError> {
    renew(table, std::slice::from_ref(port)).await
}

/// Puts the rules of these ports in place of those that they have, all at the same moment.
pub(super) async fn renew(table: &str, ports: &[Port<'_>]) -> Result<(), NftError> {
    let mut script = String::new();
    for port in ports {
        remove_port(&mut script, table, port.link);
        add_port(&mut script, table, port);
    }
    run(&script).await
}

/// Removes the rules of links that are not among these.
pub(super) async fn retain(table: &str, known: &BTreeSet<&str>) -> Result<(), NftError> {
    let listed = match nft::run(&["-j", "list", "map", "bridge", table, "pods"], &[]).await {
        // There are none at all.
        Err(NftError::Refused(_)) => return Ok(()),
        listed => listed?,
    };
    let maps = leftovers::objects(&listed, "map");
    let elements = maps.iter().flat_map(|map| map["elem"].as_array().into_iter().flatten());
    let gone =
        elements.filter_map(|element| element[0].as_str()).filter(|link| !known.contains(link) && is_plain(link));
    let mut script = String::new();
    gone.for_each(|link| remove_port(&mut script, table, link));
    if script.is_empty() { Ok(()) } else { run(&script).await }
}

/// Removes all.
pub(super) async fn remove_all(table: &str) -> Result<(), NftError> {
    run(&removal(table)).await
}

async fn run(script: &str) -> Result<(), NftError> {
    nft::run(&["-f", "-"], script.as_bytes()).await.map(drop)
}

/// What removes a table that may not exist.
fn removal(table: &str) -> String {
    format!("add table bridge {table}\ndelete table bridge {table}\n")
}

/// An addition changes nothing of what is there, and what is there can be removed.
fn remove_port(script: &mut String, table: &str, link: &str) {
    let _infallible = write!(
        script,
        "add chain bridge {table} from-{link}\n\
         add element bridge {table} pods {{ \"{link}\" : jump from-{link} }}\n\
         delete element bridge {table} pods {{ \"{link}\" }}\n\
         delete chain bridge {table} from-{link}\n"
    );
}

fn add_port(script: &mut String, table: &str, port: &Port<'_>) {
    let link = port.link;
    let mut line = |text: &str| {
        let _infallible = writeln!(script, "{text}");
    };
    line(&format!("add chain bridge {table} from-{link}"));
    rules(port).iter().for_each(|rule| line(&format!("add rule bridge {table} from-{link} {rule}")));
    line(&format!("add element bridge {table} pods {{ \"{link}\" : jump from-{link} }}"));
}

/// The rules of one pod, in order.
fn rules(Port { mac, addresses, .. }: &Port<'_>) -> Vec<String> {
    let mut rules = Vec::new();
    let mut about_itself = String::new();
    if let Some(mac) = mac {
        rules.push(format!("ether saddr != {mac} drop"));
        about_itself = format!("arp saddr ether {mac} ");
    }
    for address in *addresses {
        match address {
            IpAddr::V4(own) => {
                rules.push(format!("{about_itself}arp saddr ip {{ {own}, 0.0.0.0 }} accept"));
                rules.push(format!("ip saddr {own} accept"));
            }
            IpAddr::V6(own) => of_six(&mut rules, *own, *mac),
        }
    }
    rules.push("drop".to_owned());
    rules
}

fn of_six(rules: &mut Vec<String>, own: Ipv6Addr, mac: Option<Mac>) {
    // What a neighbour's message is about follows its first eight bytes; older versions of `nft` have no name for that.
    let (local, about_local) = match mac.map(local) {
        Some(local) => (local.to_string(), format!("@th,64,128 != {:#034x}", u128::from(local))),
        None => ("fe80::/64".to_owned(), "@th,64,64 != 0xfe80000000000000".to_owned()),
    };
    let about_another = format!("@th,64,128 != {:#034x} {about_local}", u128::from(own));
    rules.push("icmpv6 type { nd-router-advert, nd-redirect } drop".to_owned());
    rules.push(format!("icmpv6 type nd-neighbor-advert {about_another} drop"));
    rules.push(format!("ip6 saddr :: icmpv6 type nd-neighbor-solicit {about_another} drop"));
    let joining = "nd-neighbor-solicit, nd-router-solicit, mld-listener-report, mld2-listener-report";
    rules.push(format!("ip6 saddr :: icmpv6 type {{ {joining} }} accept"));
    rules.push(format!("ip6 saddr {{ {own}, {local} }} accept"));
}

/// The address that the kernel gives a link by its Ethernet address.
pub(super) fn local(mac: Mac) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.octets();
    let words = [[a ^ 2, b], [c, 0xff], [0xfe, d], [e, f]].map(u16::from_be_bytes);
    Ipv6Addr::new(0xfe80, 0, 0, 0, words[0], words[1], words[2], words[3])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_the_address_that_follows_from_its_ethernet_address() {
        let mac: Mac = "02:42:ac:11:00:02".parse().unwrap();
        assert_eq!(local(mac).to_string(), "fe80::42:acff:fe11:2");
    }

    #[test]
    fn only_names_of_links_become_rules() {
        assert!(is_plain("veth1a2b3c4d") && is_plain("a-b_c"));
        for name in ["", "1a", "a\"", "a b", "a;b", "a}", "a\n", "veth123456789012"] {
            assert!(!is_plain(name), "{name:?}");
        }
    }
}
