//! Whatever reads packets of a guest, as functions of bytes: each returns, or panics where a promise is broken. The fuzzers of
//! `fuzz/` call them, and the property tests beside the servers.

use std::net::{Ipv6Addr, SocketAddr};

use dhcproto::v4::Message as Message4;
use dhcproto::v6::Message as Message6;
use dhcproto::{Decodable, Decoder};

use super::testing::{interface, settings};
use super::{dhcp4, dhcp6};

/// Where a DHCPv4 message has what makes it one for this server: the operation and the kind of address, that address, and the
/// mark before the options.
const HARDWARE: usize = 28;
const OPTIONS: usize = 236;

/// A DHCPv4 request: as it is, and once more as one from this guest.
pub fn dhcp4(bytes: &[u8]) {
    answered4(bytes);
    let mut ours = bytes.to_vec();
    if ours.len() >= OPTIONS + 4 {
        let mac = interface().mac.octets();
        ours[..3].copy_from_slice(&[1, 1, 6]);
        ours[HARDWARE..HARDWARE + 6].copy_from_slice(&mac);
        ours[OPTIONS..OPTIONS + 4].copy_from_slice(&dhcp4::MAGIC);
        answered4(&ours);
    }
}

fn answered4(bytes: &[u8]) {
    let Some((reply, _)) = dhcp4::answer(bytes, &interface(), &settings()) else { return };
    let reply = Message4::decode(&mut Decoder::new(&reply));
    let given = reply.map(|reply| reply.yiaddr());
    assert!(given.is_ok_and(|given| given.is_unspecified() || given == interface().guest4));
}

/// A DHCPv6 request.
pub fn dhcp6(bytes: &[u8]) {
    let from = SocketAddr::from((Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1), 546));
    let Some((reply, to)) = dhcp6::answer(bytes, from, &interface(), &settings()) else { return };
    assert_eq!(to, from);
    assert!(Message6::decode(&mut Decoder::new(&reply)).is_ok());
}

#[cfg(test)]
mod tests {
    use dhcproto::v4::{DhcpOption, MessageType, Opcode};
    use dhcproto::v6;
    use dhcproto::{Encodable, Encoder};
    use proptest::prelude::*;
    use testkit::edits::{Edit, edited};

    use super::*;

    fn bytes(message: &impl Encodable) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.encode(&mut Encoder::new(&mut bytes)).unwrap();
        bytes
    }

    fn request4() -> Vec<u8> {
        let none = std::net::Ipv4Addr::UNSPECIFIED;
        let mut request = Message4::new_with_id(7, none, none, none, none, &interface().mac.octets());
        request.set_opcode(Opcode::BootRequest);
        request.opts_mut().insert(DhcpOption::MessageType(MessageType::Request));
        request.opts_mut().insert(DhcpOption::RequestedIpAddress(interface().guest4));
        request.opts_mut().insert(DhcpOption::ClientIdentifier(vec![1, 2, 3]));
        bytes(&request)
    }

    fn request6() -> Vec<u8> {
        let mut request = Message6::new_with_id(v6::MessageType::Solicit, [1, 2, 3]);
        request.opts_mut().insert(v6::DhcpOption::ClientId(vec![0, 1, 2, 3]));
        let association = v6::IANA { id: 1, t1: 0, t2: 0, opts: v6::DhcpOptions::new() };
        request.opts_mut().insert(v6::DhcpOption::IANA(association));
        bytes(&request)
    }

    proptest! {
        #[test]
        fn requests_are_answered_or_not(edits in proptest::collection::vec(any::<Edit>(), 0..8)) {
            dhcp4(&edited(&request4(), &edits));
            dhcp6(&edited(&request6(), &edits));
        }
    }

    /// Without a change they are what they are meant to be: else nothing above would be tried.
    #[test]
    fn what_is_changed_is_right() {
        assert!(dhcp4::answer(&request4(), &interface(), &settings()).is_some());
        let from = "[fe80::1]:546".parse().unwrap();
        assert!(dhcp6::answer(&request6(), from, &interface(), &settings()).is_some());
    }
}
