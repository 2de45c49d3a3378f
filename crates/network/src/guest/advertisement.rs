//! Router advertisements (RFC 4861, RFC 8106).

use std::net::{IpAddr, Ipv6Addr, SocketAddrV6};

use super::{INTERVAL, Settings};
use crate::attached::AttachedInterface;
use crate::guest_network::BRIDGE_MAC;

/// All nodes of the link.
pub(super) const ALL_NODES: SocketAddrV6 = SocketAddrV6::new(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), 0, 0, 0);

const FOR_EVER: [u8; 4] = u32::MAX.to_be_bytes();

/// Who gets the answer to a solicitation: who asked, if it has an address.
pub(super) fn recipient(from: Option<SocketAddrV6>) -> SocketAddrV6 {
    from.filter(|from| from.ip().is_unicast_link_local()).map_or(ALL_NODES, |mut from| {
        from.set_port(0);
        from
    })
}

/// The message, its checksum left to the kernel.
pub(super) fn encode(interface: &AttachedInterface, settings: &Settings) -> Vec<u8> {
    // 16 bits for seconds, at most 9000.
    let lifetime = u16::try_from(INTERVAL.as_secs() * 3).unwrap_or(9000).to_be_bytes();
    // Type, code, checksum; hop limit; addresses and the rest by DHCP; lifetime; and two timers that are not set.
    let mut bytes = vec![134, 0, 0, 0, 64, 0xc0];
    bytes.extend(lifetime);
    bytes.extend([0; 8]);
    // The router's Ethernet address.
    bytes.extend([1, 1]);
    bytes.extend(BRIDGE_MAC.octets());
    // The MTU.
    bytes.extend([5, 1, 0, 0]);
    bytes.extend(interface.mtu.to_be_bytes());
    if let (Some(gateway), Some(prefix)) = (interface.gateway6, interface.prefix6) {
        bytes.extend(prefix_option(gateway, prefix));
    }
    bytes.extend(servers_option(&settings.dns));
    bytes
}

/// The network is on this link; addresses are not made up from it.
fn prefix_option(gateway: Ipv6Addr, prefix: u8) -> Vec<u8> {
    let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
    let mut bytes = vec![3, 4, prefix, 0x80];
    bytes.extend(FOR_EVER);
    bytes.extend(FOR_EVER);
    bytes.extend([0; 4]);
    bytes.extend((gateway.to_bits() & mask).to_be_bytes());
    bytes
}

/// Name servers, as many as the option's length can count.
fn servers_option(servers: &[IpAddr]) -> Vec<u8> {
    let servers = servers.iter().filter_map(|server| match server {
        IpAddr::V6(server) => Some(server.octets()),
        IpAddr::V4(_) => None,
    });
    let servers: Vec<[u8; 16]> = servers.take(16).collect();
    let Ok(length @ 1..) = u8::try_from(servers.len()) else { return Vec::new() };
    let mut bytes = vec![25, 1 + 2 * length, 0, 0];
    bytes.extend(FOR_EVER);
    bytes.extend(servers.concat());
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::testing::{interface, settings};
    use super::*;

    #[test]
    fn an_advertisement_is_as_the_standard_lays_it_out() {
        let bytes = encode(&interface(), &settings());
        let expected = "8600000040c007080000000000000000\
                        0101020000000000\
                        05010000000005a0\
                        03047880ffffffffffffffff00000000fd100000000200000000000000000000\
                        19030000fffffffffd000000000000000000000000000010";
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected.replace(' ', ""));
    }

    #[test]
    fn options_fill_whole_units() {
        for count in 0..40 {
            let dns = vec![IpAddr::V6(Ipv6Addr::LOCALHOST); count];
            let bytes = encode(&interface(), &Settings { dns, ..settings() });
            let mut options = &bytes[16..];
            while let [_, length, ..] = options {
                assert_ne!(*length, 0);
                options = &options[usize::from(*length) * 8..];
            }
            assert!(options.is_empty());
        }
    }

    #[test]
    fn who_has_no_address_yet_is_answered_with_all_others() {
        assert_eq!(recipient(None), ALL_NODES);
        assert_eq!(recipient(Some("[::]:0".parse().unwrap())), ALL_NODES);
        let asks: SocketAddrV6 = "[fe80::1%3]:0".parse().unwrap();
        assert_eq!(recipient(Some(asks)), asks);
    }
}
