//! The rules of a pod: what comes in goes to the guest, what the guest sends as itself goes out in the pod's name.

use nftables::schema::NfObject;
use nftables::stmt::Statement;
use nftables::types::{NfFamily, NfHook};

use super::layout::Layout;
use super::{Interface, Port, guard};
use crate::nft::{self, TableOf};

/// The table of ours, one per family.
const TABLE: &str = "orlop";

/// All rules of a plan, in place of those that were there.
pub(super) fn rules(interfaces: &[(&Interface, &Layout, bool)]) -> Vec<NfObject<'static>> {
    let mut four = table(NfFamily::IP);
    let mut six = table(NfFamily::IP6);
    let mut has_six = false;
    for (interface, layout, with_six) in interfaces {
        let of4 = Of {
            guest: layout.guest4.to_string(),
            gateway: layout.gateway4.to_string(),
            header: "ip",
            loopback: Some("127.0.0.1"),
        };
        one(&mut four, interface, layout, &of4);
        if *with_six {
            let of6 = Of {
                guest: layout.guest6.to_string(),
                gateway: layout.gateway6.to_string(),
                header: "ip6",
                loopback: None,
            };
            one(&mut six, interface, layout, &of6);
            has_six = true;
        }
    }
    let mut objects = four.into_objects();
    if has_six {
        objects.extend(six.into_objects());
    }
    objects.extend(guard::rules(TABLE, interfaces));
    objects
}

/// What differs between the families.
struct Of {
    guest: String,
    gateway: String,
    header: &'static str,
    /// The kernel lets packets from `::1` leave by no other link, so there is no such way for IPv6.
    loopback: Option<&'static str>,
}

fn table(family: NfFamily) -> TableOf {
    let mut table = TableOf::new(family, TABLE);
    table.nat_chain("prerouting", NfHook::Prerouting, -100);
    table.nat_chain("output", NfHook::Output, -100);
    table.nat_chain("postrouting", NfHook::Postrouting, 100);
    table
}

fn one(table: &mut TableOf, interface: &Interface, layout: &Layout, of: &Of) {
    for port in through(&interface.ports) {
        let with_port = |statements: [Statement<'static>; 2]| port.iter().cloned().chain(statements).collect();
        table.rule("prerouting", with_port([nft::comes_by(&interface.pod_link), nft::to_destination(&of.guest)]));
        // The pod's own programs, probes among them, reach the guest as if it were one of them.
        if let Some(loopback) = of.loopback {
            let own = nft::field_is(of.header, "daddr", nft::text(loopback));
            table.rule("output", with_port([own, nft::to_destination(&of.guest)]));
        }
    }
    if let Some(loopback) = of.loopback {
        let own = nft::field_is(of.header, "saddr", nft::text(loopback));
        table.rule("postrouting", vec![nft::goes_by(&layout.bridge), own, nft::from_source(&of.gateway)]);
    }
    let from_guest = nft::field_is(of.header, "saddr", nft::text(&of.guest));
    table.rule("postrouting", vec![from_guest, nft::does_not_go_by(&layout.bridge), nft::masquerade()]);
}

/// What a rule must match for a packet to go through: once nothing, or once for each port.
fn through(ports: &[Port]) -> Vec<Option<Statement<'static>>> {
    if ports.is_empty() {
        return vec![None];
    }
    ports.iter().map(|port| Some(nft::is_for(port.protocol, port.port))).collect()
}
