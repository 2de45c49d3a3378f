//! A DHCPv6 server for one guest (RFC 8415): what to answer to a request, if anything.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use dhcproto::v6::{DhcpOption, DhcpOptions, IAAddr, IANA, Message, MessageType, Status, StatusCode};
use dhcproto::{Encodable, Encoder};

use super::{Settings, names};
use crate::attached::AttachedInterface;
use crate::guest_network::BRIDGE_MAC;

const CLIENT_ID: u16 = 1;
const SERVER_ID: u16 = 2;
const ASSOCIATION: u16 = 3;
const ADDRESS: u16 = 5;
const RAPID_COMMIT: u16 = 14;

/// The answer, and that it goes to who asked.
pub(super) fn answer(
    request: &[u8],
    from: SocketAddr,
    interface: &AttachedInterface,
    settings: &Settings,
) -> Option<(Vec<u8>, SocketAddr)> {
    let reply = Asked::read(request)?.reply(interface.guest6?, settings)?;
    let mut bytes = Vec::new();
    reply.encode(&mut Encoder::new(&mut bytes)).ok()?;
    Some((bytes, from))
}

/// What is of interest in a request. Read by hand, two levels deep: a general decoder follows options into options for
/// as long as a guest makes it.
struct Asked {
    kind: MessageType,
    xid: [u8; 3],
    client: Option<Vec<u8>>,
    server: Option<Vec<u8>>,
    is_rapid: bool,
    associations: Vec<Association>,
}

/// A set of addresses that a client asks for or has.
struct Association {
    id: u32,
    addresses: Vec<Ipv6Addr>,
}

impl Asked {
    fn read(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (xid, rest) = rest.split_first_chunk::<3>()?;
        let kind = MessageType::from(*kind);
        let mut asked = Self { kind, xid: *xid, client: None, server: None, is_rapid: false, associations: Vec::new() };
        for (code, data) in Options(rest) {
            match code {
                CLIENT_ID => asked.client = Some(data.to_vec()),
                SERVER_ID => asked.server = Some(data.to_vec()),
                RAPID_COMMIT => asked.is_rapid = true,
                ASSOCIATION => asked.associations.extend(Association::read(data)),
                _ => {}
            }
        }
        Some(asked)
    }

    fn reply(&self, guest: Ipv6Addr, settings: &Settings) -> Option<Message> {
        let is_ours = self.server.as_ref().is_some_and(|server| *server == server_id());
        let is_any = self.server.is_none();
        // Which messages must name a server, and which must not, is section 16 of the standard.
        let kind = match self.kind {
            MessageType::Solicit if is_any && !self.is_rapid => MessageType::Advertise,
            MessageType::Solicit | MessageType::Rebind | MessageType::Confirm if is_any => MessageType::Reply,
            MessageType::Request | MessageType::Renew | MessageType::Release | MessageType::Decline if is_ours => {
                MessageType::Reply
            }
            MessageType::InformationRequest if is_any || is_ours => MessageType::Reply,
            _ => return None,
        };
        if self.client.is_none() && self.kind != MessageType::InformationRequest {
            return None;
        }
        let mut options = vec![DhcpOption::ServerId(server_id())];
        options.extend(self.client.clone().map(DhcpOption::ClientId));
        match self.kind {
            MessageType::Confirm => options.push(status(self.confirmed(guest)?)),
            MessageType::Release | MessageType::Decline => options.push(status(Status::Success)),
            MessageType::InformationRequest => options.extend(hints(settings)),
            asked => {
                let is_rapid = asked == MessageType::Solicit && self.is_rapid;
                options.extend(is_rapid.then_some(DhcpOption::RapidCommit));
                let associations = self.associations.iter().enumerate();
                options.extend(associations.map(|(index, association)| association.lease(guest, index == 0)));
                options.extend(hints(settings));
            }
        }
        let mut reply = Message::new_with_id(kind, self.xid);
        options.into_iter().for_each(|option| reply.opts_mut().insert(option));
        Some(reply)
    }

    /// Whether the addresses that the guest has belong here. Without any there is nothing to answer.
    fn confirmed(&self, guest: Ipv6Addr) -> Option<Status> {
        let mut had = self.associations.iter().flat_map(|association| &association.addresses).peekable();
        had.peek()?;
        Some(if had.all(|address| *address == guest) { Status::Success } else { Status::NotOnLink })
    }
}

impl Association {
    fn read(data: &[u8]) -> Option<Self> {
        let (id, rest) = data.split_first_chunk::<4>()?;
        let inner = Options(rest.get(8..)?);
        let addresses = inner.filter(|(code, _)| *code == ADDRESS).filter_map(|(_, data)| data.first_chunk::<16>());
        Some(Self { id: u32::from_be_bytes(*id), addresses: addresses.copied().map(Ipv6Addr::from).collect() })
    }

    /// The guest's address for the first association, none for others; what is not the guest's is taken from it.
    fn lease(&self, guest: Ipv6Addr, is_first: bool) -> DhcpOption {
        let mut opts = DhcpOptions::new();
        opts.insert(if is_first { lease(guest, u32::MAX) } else { status(Status::NoAddrsAvail) });
        let wrong = self.addresses.iter().filter(|address| **address != guest);
        wrong.for_each(|address| opts.insert(lease(*address, 0)));
        DhcpOption::IANA(IANA { id: self.id, t1: u32::MAX, t2: u32::MAX, opts })
    }
}

/// Code and data of each option, up to the first that is not whole.
struct Options<'a>(&'a [u8]);

impl<'a> Iterator for Options<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (code, rest) = self.0.split_first_chunk::<2>()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let (data, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
        self.0 = rest;
        Some((u16::from_be_bytes(*code), data))
    }
}

/// The bridge's Ethernet address, which is the same on every node that the guest may move to.
fn server_id() -> Vec<u8> {
    [0, 3, 0, 1].into_iter().chain(BRIDGE_MAC.octets()).collect()
}

fn status(status: Status) -> DhcpOption {
    DhcpOption::StatusCode(StatusCode { status, msg: String::new() })
}

fn lease(addr: Ipv6Addr, life: u32) -> DhcpOption {
    DhcpOption::IAAddr(IAAddr { addr, preferred_life: life, valid_life: life, opts: DhcpOptions::new() })
}

/// What else the guest may want to know.
fn hints(settings: &Settings) -> Vec<DhcpOption> {
    let servers = settings.dns.iter().filter_map(|server| match server {
        IpAddr::V6(server) => Some(*server),
        IpAddr::V4(_) => None,
    });
    let servers: Vec<Ipv6Addr> = servers.collect();
    let search = names(&settings.search);
    let mut options = Vec::new();
    options.extend((!servers.is_empty()).then_some(DhcpOption::DomainNameServers(servers)));
    options.extend((!search.is_empty()).then_some(DhcpOption::DomainSearchList(search)));
    options
}

#[cfg(test)]
mod tests {
    use dhcproto::v6::OptionCode;
    use dhcproto::{Decodable, Decoder};
    use proptest::prelude::*;

    use super::super::testing::{interface, settings};
    use super::*;

    fn request(kind: MessageType, options: Vec<DhcpOption>) -> Message {
        let mut request = Message::new_with_id(kind, [1, 2, 3]);
        options.into_iter().for_each(|option| request.opts_mut().insert(option));
        request
    }

    fn client() -> DhcpOption {
        DhcpOption::ClientId(vec![0, 1, 2, 3])
    }

    fn association(id: u32, addresses: &[Ipv6Addr]) -> DhcpOption {
        let mut opts = DhcpOptions::new();
        addresses.iter().for_each(|address| opts.insert(lease(*address, 0)));
        DhcpOption::IANA(IANA { id, t1: 0, t2: 0, opts })
    }

    fn ours() -> DhcpOption {
        DhcpOption::ServerId(server_id())
    }

    fn guest() -> Ipv6Addr {
        interface().guest6.unwrap()
    }

    fn ask(request: &Message) -> Option<Message> {
        let mut bytes = Vec::new();
        request.encode(&mut Encoder::new(&mut bytes)).unwrap();
        let from = "[fe80::1%3]:546".parse().unwrap();
        let (reply, to) = answer(&bytes, from, &interface(), &settings())?;
        assert_eq!(to, from);
        Some(Message::decode(&mut Decoder::new(&reply)).unwrap())
    }

    fn given(reply: &Message) -> Vec<(u32, Vec<Ipv6Addr>)> {
        let living = |options: &DhcpOptions| {
            let addresses = options.iter().filter_map(|option| match option {
                DhcpOption::IAAddr(address) if address.valid_life > 0 => Some(address.addr),
                _ => None,
            });
            addresses.collect()
        };
        let associations = reply.opts().iter().filter_map(|option| match option {
            DhcpOption::IANA(association) => Some((association.id, living(&association.opts))),
            _ => None,
        });
        associations.collect()
    }

    #[test]
    fn a_guest_gets_its_address_by_each_way_of_asking() {
        let cases = [
            (MessageType::Solicit, vec![], MessageType::Advertise),
            (MessageType::Solicit, vec![DhcpOption::RapidCommit], MessageType::Reply),
            (MessageType::Request, vec![ours()], MessageType::Reply),
            (MessageType::Renew, vec![ours()], MessageType::Reply),
            (MessageType::Rebind, vec![], MessageType::Reply),
        ];
        for (kind, mut options, expected) in cases {
            options.extend([client(), association(9, &[]), association(10, &["fd10::9".parse().unwrap()])]);
            let is_rapid = options.contains(&DhcpOption::RapidCommit);
            let reply = ask(&request(kind, options)).unwrap();
            assert_eq!((reply.msg_type(), reply.xid()), (expected, [1, 2, 3]), "{kind:?}");
            let mut given = given(&reply);
            given.sort_by_key(|(_, addresses)| addresses.len());
            let [(one, nothing), (other, something)] = given.as_slice() else { panic!("{given:?}") };
            assert_eq!(
                (one + other, nothing.as_slice(), something.as_slice()),
                (19, [].as_slice(), [guest()].as_slice())
            );
            assert_eq!(reply.opts().get(OptionCode::RapidCommit).is_some(), is_rapid);
            assert_eq!(reply.opts().get(OptionCode::ClientId), Some(&client()));
            let dns = DhcpOption::DomainNameServers(vec!["fd00::10".parse().unwrap()]);
            assert_eq!(reply.opts().get(OptionCode::DomainNameServers), Some(&dns));
        }
    }

    #[test]
    fn what_a_guest_has_is_confirmed_or_not() {
        let other = "fd77::1".parse().unwrap();
        for (addresses, expected) in [(vec![guest()], Status::Success), (vec![guest(), other], Status::NotOnLink)] {
            let reply = ask(&request(MessageType::Confirm, vec![client(), association(1, &addresses)])).unwrap();
            assert_eq!(reply.opts().get(OptionCode::StatusCode), Some(&status(expected)));
        }
        assert!(ask(&request(MessageType::Confirm, vec![client()])).is_none());
    }

    #[test]
    fn settings_are_told_without_an_address() {
        let reply = ask(&request(MessageType::InformationRequest, vec![])).unwrap();
        assert!(given(&reply).is_empty());
        assert!(reply.opts().get(OptionCode::DomainSearchList).is_some());
    }

    #[test]
    fn what_is_for_another_server_or_from_nobody_is_not_answered() {
        let other = DhcpOption::ServerId(vec![9]);
        for kind in [MessageType::Request, MessageType::Renew, MessageType::Release, MessageType::InformationRequest] {
            assert!(ask(&request(kind, vec![client(), other.clone()])).is_none(), "{kind:?}");
        }
        assert!(ask(&request(MessageType::Request, vec![client()])).is_none(), "no server");
        assert!(ask(&request(MessageType::Solicit, vec![association(1, &[])])).is_none(), "no client");
        assert!(ask(&request(MessageType::Reply, vec![client()])).is_none());
        let released = ask(&request(MessageType::Release, vec![client(), ours()])).unwrap();
        assert_eq!(released.opts().get(OptionCode::StatusCode), Some(&status(Status::Success)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered_or_not(kind in 0u8..14, bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let whole: Vec<u8> = std::iter::once(kind).chain(bytes).collect();
            let from = "[fe80::1]:546".parse().unwrap();
            if let Some((reply, _)) = answer(&whole, from, &interface(), &settings()) {
                prop_assert!(Message::decode(&mut Decoder::new(&reply)).is_ok());
            }
        }
    }

    #[test]
    fn options_in_options_as_deep_as_they_fit_are_no_danger() {
        let mut options: Vec<u8> = Vec::new();
        // Temporary associations are the shortest that others fit into.
        while options.len() + 8 + 4 <= super::super::MAX_MESSAGE {
            let length = u16::try_from(options.len() + 4).unwrap().to_be_bytes();
            options.splice(0..0, [0, 4, length[0], length[1], 0, 0, 0, 1]);
        }
        let whole: Vec<u8> = [1, 0, 0, 1].into_iter().chain(options).collect();
        assert!(answer(&whole, "[fe80::1]:546".parse().unwrap(), &interface(), &settings()).is_none());
    }
}
