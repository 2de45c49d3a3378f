//! The flags of the pods' network.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use anyhow::Context as _;
use network::cni::{self, Cni};

use super::{paths, preflight};

/// The pods' network.
#[derive(clap::Args)]
#[group(id = "up_network")]
pub(super) struct NetworkArguments {
    /// Name of the bridge that connects the pods.
    #[arg(long, value_name = "NAME", default_value = "orlop0", env = "ORLOP_BRIDGE")]
    bridge: String,
    /// IPv4 subnet of the pods.
    #[arg(long, value_name = "CIDR", default_value = "10.219.0.0/16", value_parser = subnet::<Ipv4Addr>, env = "ORLOP_POD_CIDR")]
    pod_cidr: (Ipv4Addr, u8),
    /// IPv6 subnet of the pods; "none" disables IPv6.
    #[arg(long, value_name = "CIDR", default_value = "fd21:9a5c::/64", value_parser = optional_subnet, env = "ORLOP_POD_CIDR6")]
    pub(super) pod_cidr6: Subnet6,
}

/// A subnet, or none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Subnet6(pub(super) Option<(Ipv6Addr, u8)>);

impl NetworkArguments {
    /// The network that they describe, in the folder of `orlop up`.
    pub(super) fn cni(self, data: &Path, node: Option<String>) -> anyhow::Result<Cni> {
        let Self { bridge, pod_cidr: subnet4, pod_cidr6: Subnet6(subnet6) } = self;
        let subnet6 = subnet6.filter(|_| has_ipv6());
        let network = cni::Network { bridge, subnet4, subnet6, mtu: None };
        let settings = cni::Settings { network, plugins: preflight::plugins(), state: paths::network(data), node };
        Cni::new(settings).context("prepare the pods' network")
    }
}

/// Whether links of this machine get IPv6 addresses.
pub(super) fn has_ipv6() -> bool {
    let off = std::fs::read_to_string("/proc/sys/net/ipv6/conf/default/disable_ipv6");
    off.is_ok_and(|off| off.trim() == "0")
}

fn subnet<A: std::str::FromStr>(text: &str) -> Result<(A, u8), String> {
    let wrong = || format!("{text:?} is not a valid subnet; use one such as 10.219.0.0/16");
    let (address, prefix) = text.split_once('/').ok_or_else(wrong)?;
    Ok((address.parse().map_err(|_| wrong())?, prefix.parse().map_err(|_| wrong())?))
}

fn optional_subnet(text: &str) -> Result<Subnet6, String> {
    if text == "none" { Ok(Subnet6(None)) } else { subnet(text).map(Some).map(Subnet6) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnets_are_read_and_mistakes_are_told() {
        assert_eq!(subnet::<Ipv4Addr>("10.1.0.0/24"), Ok((Ipv4Addr::new(10, 1, 0, 0), 24)));
        assert_eq!(optional_subnet("none"), Ok(Subnet6(None)));
        for text in ["10.1.0.0", "10.1.0/24", "fd00::/x", ""] {
            assert!(subnet::<Ipv4Addr>(text).is_err() && optional_subnet(text).is_err(), "{text:?}");
        }
    }
}
