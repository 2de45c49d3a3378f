//! Chooses the addresses of a pod; a pure function.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// Identities that are remembered; the one that was not seen for the longest time is forgotten first.
const MAX_REMEMBERED: usize = 4096;

/// A range of addresses. The first is the gateway's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pool {
    base: u128,
    /// How many addresses there are, the network's own included.
    size: u128,
    is_six: bool,
    pub(crate) prefix: u8,
}

impl Pool {
    pub(crate) fn four((network, prefix): (Ipv4Addr, u8)) -> Option<Self> {
        let size = 1u128 << (32 - u32::from((8..=29).contains(&prefix).then_some(prefix)?));
        let base = u128::from(network.to_bits()) / size * size;
        Some(Self { base, size, is_six: false, prefix })
    }

    pub(crate) fn six((network, prefix): (Ipv6Addr, u8)) -> Option<Self> {
        let size = 1u128 << (128 - u32::from((8..=125).contains(&prefix).then_some(prefix)?));
        Some(Self { base: network.to_bits() / size * size, size, is_six: true, prefix })
    }

    pub(crate) fn network(self) -> IpAddr {
        self.at(0)
    }

    pub(crate) fn gateway(self) -> IpAddr {
        self.at(1)
    }

    /// Whether a network is this one or a part of it: then packets for it would go astray.
    pub(crate) fn covers(self, address: IpAddr, prefix: u8) -> bool {
        prefix >= self.prefix && self.place(address).is_some()
    }

    fn at(self, offset: u128) -> IpAddr {
        let bits = self.base + offset;
        // What is not six has 32 bits.
        let four = u32::try_from(bits).map(Ipv4Addr::from_bits).map(IpAddr::V4);
        if self.is_six { IpAddr::V6(Ipv6Addr::from_bits(bits)) } else { four.unwrap_or(Ipv4Addr::UNSPECIFIED.into()) }
    }

    /// The place of an address that a pod may have.
    fn offset(self, address: IpAddr) -> Option<u128> {
        self.place(address).filter(|offset| (2..=self.last()).contains(offset))
    }

    /// The place of an address in this network.
    fn place(self, address: IpAddr) -> Option<u128> {
        let bits = match address {
            IpAddr::V4(address) if !self.is_six => u128::from(address.to_bits()),
            IpAddr::V6(address) if self.is_six => address.to_bits(),
            _ => return None,
        };
        bits.checked_sub(self.base).filter(|offset| *offset < self.size)
    }

    /// The last place of a pod: before the broadcast address, where there is one.
    fn last(self) -> u128 {
        if self.is_six { self.size - 1 } else { self.size - 2 }
    }
}

/// What is known of addresses besides who has them now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AddressHistory {
    /// Identities and their addresses, the one that was seen last at the end.
    remembered: Vec<(String, Vec<IpAddr>)>,
    /// The addresses that were given last: the next ones come after them, so that one is not soon used again.
    last: Vec<IpAddr>,
}

/// No address is left.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("all addresses of {network}/{prefix} are in use")]
pub struct Exhausted {
    network: IpAddr,
    prefix: u8,
}

impl AddressHistory {
    /// Whether nobody comes back to an address.
    pub(crate) fn is_empty(&self) -> bool {
        self.remembered.is_empty()
    }

    /// One address of each pool that nobody has, and remembers them. An identity gets its own if they are free; what
    /// other identities had is left to them as long as there are others. An identity whose addresses are all in use is in another
    /// pod still: those stay its own, and this one gets others for the meantime.
    pub(crate) fn choose(
        &mut self,
        pools: &[Pool],
        used: &BTreeSet<IpAddr>,
        identity: Option<&str>,
    ) -> Result<Vec<IpAddr>, Exhausted> {
        let mine: Vec<IpAddr> = identity.map(|identity| self.of(identity)).unwrap_or_default();
        let is_elsewhere = !mine.is_empty() && mine.iter().all(|address| used.contains(address));
        let identity = identity.filter(|_| !is_elsewhere);
        let chosen: Result<Vec<IpAddr>, Exhausted> = pools.iter().map(|pool| self.one(*pool, used, &mine)).collect();
        let chosen = chosen?;
        for address in &chosen {
            if !mine.contains(address) {
                self.last.retain(|last| last.is_ipv6() != address.is_ipv6());
                self.last.push(*address);
            }
        }
        // Whoever had one of them has lost it, or is its owner.
        self.remembered.retain(|(owner, addresses)| {
            Some(owner.as_str()) != identity && !addresses.iter().any(|address| chosen.contains(address))
        });
        self.remembered.extend(identity.map(|identity| (identity.to_owned(), chosen.clone())));
        let mut excess = self.remembered.len().saturating_sub(MAX_REMEMBERED);
        // Whoever has its addresses is not forgotten, however long ago it got them.
        self.remembered.retain(|(_, addresses)| {
            let is_kept = excess == 0 || addresses.iter().any(|one| used.contains(one) || chosen.contains(one));
            excess -= usize::from(!is_kept);
            is_kept
        });
        Ok(chosen)
    }

    /// The addresses of an identity.
    pub(crate) fn of(&self, identity: &str) -> Vec<IpAddr> {
        let found = self.remembered.iter().find(|(owner, _)| owner == identity);
        found.map(|(_, addresses)| addresses.clone()).unwrap_or_default()
    }

    fn one(&self, pool: Pool, used: &BTreeSet<IpAddr>, mine: &[IpAddr]) -> Result<IpAddr, Exhausted> {
        let is_free = |address: &IpAddr| pool.offset(*address).is_some() && !used.contains(address);
        if let Some(address) = mine.iter().copied().find(is_free) {
            return Ok(address);
        }
        let remembered: Vec<IpAddr> = self.remembered.iter().flat_map(|(_, addresses)| addresses).copied().collect();
        let reserved: BTreeSet<IpAddr> = remembered.iter().copied().collect();
        let start = self.last.iter().find_map(|last| pool.offset(*last)).unwrap_or(1);
        let places = pool.last() - 1;
        // Of one more than are taken, one is free; there may be fewer places than that.
        let attempts = places.min((used.len() + reserved.len() + 1) as u128);
        let in_turn = (0..attempts).map(|step| pool.at(2 + (start - 1 + step) % places));
        let fresh = in_turn.into_iter().find(|address| is_free(address) && !reserved.contains(address));
        let exhausted = Exhausted { network: pool.network(), prefix: pool.prefix };
        fresh.or_else(|| remembered.iter().copied().find(is_free)).ok_or(exhausted)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn pools() -> Vec<Pool> {
        let four = Pool::four((Ipv4Addr::new(10, 7, 0, 9), 28)).unwrap();
        vec![four, Pool::six(("fd07::".parse().unwrap(), 64)).unwrap()]
    }

    #[test]
    fn the_first_address_is_the_gateways_and_the_next_ones_are_pods() {
        let mut memory = AddressHistory::default();
        let pools = pools();
        assert_eq!(pools.iter().map(|pool| pool.gateway().to_string()).collect::<Vec<_>>(), ["10.7.0.1", "fd07::1"]);
        let none = BTreeSet::new();
        let mut give =
            || memory.choose(&pools, &none, None).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(give(), ["10.7.0.2", "fd07::2"]);
        assert_eq!(give(), ["10.7.0.3", "fd07::3"], "an address is not given again at once");
    }

    #[test]
    fn an_identity_that_is_in_another_pod_gets_other_addresses_and_keeps_its_own() {
        let (mut memory, pools) = (AddressHistory::default(), pools());
        let own = memory.choose(&pools, &BTreeSet::new(), Some("vm")).unwrap();
        let used: BTreeSet<IpAddr> = own.iter().copied().collect();
        let second = memory.choose(&pools, &used, Some("vm")).unwrap();
        assert!(second.iter().all(|address| !own.contains(address)), "{second:?}");
        assert_eq!(memory.of("vm"), own);
    }

    #[test]
    fn pools_without_room_are_none() {
        assert_eq!(Pool::four((Ipv4Addr::LOCALHOST, 30)), None);
        assert_eq!(Pool::four((Ipv4Addr::LOCALHOST, 200)), None);
        assert_eq!(Pool::six((Ipv6Addr::LOCALHOST, 128)), None);
    }

    #[test]
    fn memory_is_bounded() {
        let mut memory = AddressHistory::default();
        let pools = [Pool::four((Ipv4Addr::new(10, 0, 0, 0), 8)).unwrap()];
        for identity in 0..MAX_REMEMBERED + 10 {
            memory.choose(&pools, &BTreeSet::new(), Some(&identity.to_string())).unwrap();
        }
        assert_eq!(memory.remembered.len(), MAX_REMEMBERED);
        assert!(memory.of("0").is_empty() && !memory.of("10").is_empty());
        // One that runs for long is not forgotten for others that come and go.
        let used: BTreeSet<IpAddr> = memory.of("10").into_iter().collect();
        memory.choose(&pools, &used, Some("another")).unwrap();
        assert!(!memory.of("10").is_empty() && memory.of("11").is_empty());
    }

    proptest! {
        /// Pods come and go in a pool of thirteen; some have one of twenty identities.
        #[test]
        fn addresses_are_never_shared_and_identities_keep_theirs(
            steps in proptest::collection::vec((any::<bool>(), 0u8..30, any::<prop::sample::Index>()), 1..200),
        ) {
            let pools = pools();
            let mut memory = AddressHistory::default();
            let mut living: Vec<(Option<String>, Vec<IpAddr>)> = Vec::new();
            let mut had: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
            for (is_end, who, which) in steps {
                if is_end && !living.is_empty() {
                    living.remove(which.index(living.len()));
                    continue;
                }
                let identity = (who < 20).then(|| who.to_string());
                if identity.is_some() && living.iter().any(|(other, _)| *other == identity) {
                    continue;
                }
                let used: BTreeSet<IpAddr> = living.iter().flat_map(|(_, addresses)| addresses).copied().collect();
                let before = memory.clone();
                let Ok(given) = memory.choose(&pools, &used, identity.as_deref()) else {
                    prop_assert_eq!(living.len(), 13, "only a full pool has no address");
                    prop_assert_eq!(&memory, &before);
                    continue;
                };
                prop_assert_eq!(given.len(), 2);
                prop_assert!(given.iter().zip(&pools).all(|(address, pool)| pool.offset(*address).is_some()));
                prop_assert!(given.iter().all(|address| !used.contains(address)));
                if let Some(mine) = identity.as_ref().and_then(|identity| had.get(identity)) {
                    prop_assert!(mine.iter().zip(&given).all(|(old, new)| old == new || used.contains(old)));
                }
                // Whose address was taken has none to come back to.
                had.retain(|_, addresses| !addresses.iter().any(|address| given.contains(address)));
                if let Some(identity) = &identity {
                    had.insert(identity.clone(), given.clone());
                }
                living.push((identity, given));
            }
        }
    }
}
