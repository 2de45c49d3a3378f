//! Names and addresses that follow from a plan.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::Interface;
use crate::kernel::MAX_NAME;
use crate::mac::Mac;

/// The bridge's address. The same everywhere, so that a guest that moved finds its router where it was.
pub(crate) const BRIDGE_MAC: Mac = Mac::new([2, 0, 0, 0, 0, 0]);
/// The bridge's address on its link, which the kernel makes from [`BRIDGE_MAC`]; its guest's router is known by it.
pub(super) const BRIDGE_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, 0);

const NETWORK4: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 0, 2, 0), 24);
const NETWORK6: (Ipv6Addr, u8) = (Ipv6Addr::new(0xfd10, 0, 2, 0, 0, 0, 0, 0), 120);

/// What one interface will be called and have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) bridge: String,
    pub(super) tap: String,
    pub(super) gateway4: Ipv4Addr,
    pub(super) guest4: Ipv4Addr,
    pub(super) prefix4: u8,
    pub(super) gateway6: Ipv6Addr,
    pub(super) guest6: Ipv6Addr,
    pub(super) prefix6: u8,
}

/// A plan that cannot be carried out.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PlanError {
    /// The kernel has no such names.
    #[error("the link name {0:?} is empty or too long")]
    Name(String),
    /// Router and guest do not fit.
    #[error("the network {0} is too small for a router and a guest")]
    Network(String),
    /// A tap has one queue at least, and the kernel's limit at most.
    #[error("a tap cannot have {0} queues")]
    Queues(u16),
}

impl Layout {
    pub(super) fn of(interface: &Interface, index: usize) -> Result<Self, PlanError> {
        if interface.pod_link.is_empty() || interface.pod_link.len() > MAX_NAME || interface.pod_link.contains('/') {
            return Err(PlanError::Name(interface.pod_link.clone()));
        }
        if !(1..=256).contains(&interface.queues) {
            return Err(PlanError::Queues(interface.queues));
        }
        let (network4, prefix4) = interface.cidr4.unwrap_or(NETWORK4);
        let (network6, prefix6) = interface.cidr6.unwrap_or(NETWORK6);
        // Two addresses besides the network's own and the broadcast one.
        if !(1..=30).contains(&prefix4) {
            return Err(PlanError::Network(format!("{network4}/{prefix4}")));
        }
        if !(1..=126).contains(&prefix6) {
            return Err(PlanError::Network(format!("{network6}/{prefix6}")));
        }
        let base4 = network4.to_bits() & (u32::MAX << (32 - u32::from(prefix4)));
        let base6 = network6.to_bits() & (u128::MAX << (128 - u32::from(prefix6)));
        Ok(Self {
            bridge: bridge_name(&interface.pod_link),
            tap: format!("tap{index}"),
            gateway4: Ipv4Addr::from_bits(base4 + 1),
            guest4: Ipv4Addr::from_bits(base4 + 2),
            prefix4,
            gateway6: Ipv6Addr::from_bits(base6 + 1),
            guest6: Ipv6Addr::from_bits(base6 + 2),
            prefix6,
        })
    }
}

/// As KubeVirt names it; of a long name, the end tells links apart.
fn bridge_name(pod_link: &str) -> String {
    let room = MAX_NAME - "k6t-".len();
    let start = pod_link.char_indices().map(|(at, _)| at).find(|at| pod_link.len() - at <= room);
    format!("k6t-{}", start.map_or("", |at| &pod_link[at..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Owner, Plan};
    use super::*;

    pub(crate) fn interface() -> Interface {
        Interface {
            name: "default".to_owned(),
            pod_link: "eth0".to_owned(),
            mac: Mac::stable("uid", "default"),
            ports: Vec::new(),
            owner: Owner { uid: 0, gid: 0 },
            cidr4: None,
            cidr6: None,
            queues: 1,
        }
    }

    #[test]
    fn names_and_addresses_are_those_of_kubevirt() {
        let layout = Layout::of(&interface(), 0).unwrap();
        assert_eq!((layout.bridge.as_str(), layout.tap.as_str()), ("k6t-eth0", "tap0"));
        assert_eq!((layout.gateway4.to_string(), layout.guest4.to_string()), ("10.0.2.1".into(), "10.0.2.2".into()));
        assert_eq!(
            (layout.gateway6.to_string(), layout.guest6.to_string()),
            ("fd10:0:2::1".into(), "fd10:0:2::2".into())
        );
        assert_eq!((layout.prefix4, layout.prefix6), (24, 120));
    }

    #[test]
    fn a_network_without_room_is_refused() {
        let narrow = Interface { cidr4: Some((Ipv4Addr::new(10, 1, 1, 0), 31)), ..interface() };
        assert_eq!(Layout::of(&narrow, 0), Err(PlanError::Network("10.1.1.0/31".to_owned())));
    }

    proptest! {
        #[test]
        fn whatever_the_plan_the_layout_is_sound(link in "\\PC{0,20}", network: u32, prefix: u8, queues: u16) {
            let cidr4 = Some((Ipv4Addr::from_bits(network), prefix));
            let interface = Interface { pod_link: link, cidr4, queues, ..interface() };
            let plan = Plan { interfaces: vec![interface.clone()] };
            prop_assert_eq!(serde_json::from_slice::<Plan>(&serde_json::to_vec(&plan).unwrap()).unwrap(), plan);
            if let Ok(layout) = Layout::of(&interface, 7) {
                prop_assert!(layout.bridge.len() <= MAX_NAME && layout.tap.len() <= MAX_NAME);
                prop_assert!(layout.guest4 != layout.gateway4);
                prop_assert_eq!(layout.guest4.to_bits() >> 2, layout.gateway4.to_bits() >> 2);
            }
        }
    }
}
