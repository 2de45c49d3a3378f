//! What a guest may send: frames in its own name, looked at where they enter its bridge, before anything else sees them.
//!
//! | frame | passes |
//! |---|---|
//! | any | from the guest's own Ethernet address, and of the kinds below |
//! | ARP | about that address and its IPv4 address, or none yet |
//! | IPv4 | from its address, and not to 127/8, which leads into the pod: the bridge routes it for the pod's own programs |
//! | IPv4 without an address | to a DHCP server |
//! | IPv6 | from its address, one of its link but the router's, or none yet; not to a loopback in any spelling |
//!
//! A pod without IPv6 has no such guest.

use std::net::Ipv4Addr;

use nftables::expr::Expression;
use nftables::schema::NfObject;
use nftables::types::{NfFamily, NfHook};

use super::Interface;
use super::layout::{BRIDGE_LOCAL, Layout};
use crate::nft::{self, TableOf};

/// Before all others.
const FIRST: i32 = -300;

/// The rules of a plan's taps.
pub(super) fn rules(table: &str, interfaces: &[(&Interface, &Layout, bool)]) -> Vec<NfObject<'static>> {
    let mut table = TableOf::new(NfFamily::Bridge, table);
    table.filter_chain("prerouting", NfHook::Prerouting, FIRST);
    table.filter_chain("input", NfHook::Input, FIRST);
    for (interface, layout, with_six) in interfaces {
        let chain = format!("from-{}", layout.tap);
        table.chain(&chain);
        table.rule("prerouting", vec![nft::comes_by(&layout.tap), nft::jump(&chain)]);
        // Frames to bridges themselves come by no other way, whatever is in them.
        let to_bridges = nft::field_is_masked("ether", "daddr", "ff:ff:ff:ff:ff:f0", "01:80:c2:00:00:00");
        table.rule("input", vec![nft::comes_by(&layout.tap), to_bridges, nft::drop()]);
        one(&mut table, &chain, interface, layout, *with_six);
    }
    table.into_objects()
}

fn one(table: &mut TableOf, chain: &str, interface: &Interface, layout: &Layout, with_six: bool) {
    let mac = || nft::text(&interface.mac.to_string());
    let guest4 = || nft::text(&layout.guest4.to_string());
    let nobody4 = || nft::text(&Ipv4Addr::UNSPECIFIED.to_string());
    table.rule(chain, vec![nft::field_is_not("ether", "saddr", mac()), nft::drop()]);

    let about_itself = nft::field_is("arp", "saddr ether", mac());
    let about_its_address = nft::field_is("arp", "saddr ip", nft::any([guest4(), nobody4()]));
    table.rule(chain, vec![about_itself, about_its_address, nft::accept()]);

    let from_itself = || nft::field_is("ip", "saddr", guest4());
    let to_the_pods_own = nft::field_is("ip", "daddr", nft::prefix(&Ipv4Addr::new(127, 0, 0, 0), 8));
    table.rule(chain, vec![from_itself(), to_the_pods_own, nft::drop()]);
    table.rule(chain, vec![from_itself(), nft::accept()]);
    let from_client = nft::field_is("udp", "sport", Expression::Number(68));
    let to_server = nft::field_is("udp", "dport", Expression::Number(67));
    table.rule(chain, vec![nft::field_is("ip", "saddr", nobody4()), from_client, to_server, nft::accept()]);

    if with_six {
        table.rule(chain, vec![nft::field_is("ip6", "saddr", nft::text(&BRIDGE_LOCAL.to_string())), nft::drop()]);
        // The kernel drops these by itself, or routes them away from the pod; that is nothing to rely on.
        let loopbacks = nft::any([nft::text("::1"), nft::prefix(&"::ffff:0:0", 96)]);
        table.rule(chain, vec![nft::field_is("ip6", "daddr", loopbacks), nft::drop()]);
        let own = nft::any([nft::text(&layout.guest6.to_string()), nft::prefix(&"fe80::", 64), nft::text("::")]);
        table.rule(chain, vec![nft::field_is("ip6", "saddr", own), nft::accept()]);
    }
    table.rule(chain, vec![nft::drop()]);
}
