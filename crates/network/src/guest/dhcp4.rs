//! A DHCP server for one guest (RFC 2131): what to answer to a request, if anything.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use dhcproto::v4::borrowed::Message as Request;
use dhcproto::v4::{DhcpOption, Flags, HType, Message, MessageType, Opcode, OptionCode, UnknownOption};
use dhcproto::{Encodable, Encoder};

use super::{Settings, names};
use crate::attached::AttachedInterface;

const CLIENT_PORT: u16 = 68;

/// What stands between the fields of a message and its options.
pub(super) const MAGIC: [u8; 4] = [99, 130, 83, 99];

/// The answer and where to send it.
pub(super) fn answer(
    request: &[u8],
    interface: &AttachedInterface,
    settings: &Settings,
) -> Option<(Vec<u8>, SocketAddr)> {
    let asked = Asked::read(request, interface)?;
    let reply = match asked.kind {
        MessageType::Discover => asked.lease(MessageType::Offer, interface, settings),
        MessageType::Request if asked.wanted? == interface.guest4 => asked.lease(MessageType::Ack, interface, settings),
        MessageType::Request => asked.refuse(interface),
        MessageType::Inform => asked.inform(interface, settings),
        // The address is the guest's for ever, whether it lets go of it or not.
        _ => return None,
    };
    let is_refusal = reply.opts().has_msg_type(MessageType::Nak);
    // Who has an address hears what is sent to it, and nothing else.
    let to = if asked.ciaddr.is_unspecified() || is_refusal { Ipv4Addr::BROADCAST } else { asked.ciaddr };
    let mut bytes = Vec::new();
    reply.encode(&mut Encoder::new(&mut bytes)).ok()?;
    Some((bytes, SocketAddr::from((to, CLIENT_PORT))))
}

/// What is of interest in a request that is for this server.
struct Asked {
    kind: MessageType,
    xid: u32,
    flags: Flags,
    chaddr: [u8; 6],
    ciaddr: Ipv4Addr,
    wanted: Option<Ipv4Addr>,
    client: Option<Vec<u8>>,
}

impl Asked {
    fn read(bytes: &[u8], interface: &AttachedInterface) -> Option<Self> {
        let request = Request::new(bytes).ok()?;
        let is_ethernet =
            request.opcode() == Opcode::BootRequest && request.htype() == HType::Eth && request.hlen() == 6;
        let chaddr = interface.mac.octets();
        if !is_ethernet || bytes.get(236..240)? != MAGIC || request.chaddr() != chaddr {
            return None;
        }
        let ciaddr = request.ciaddr();
        let (xid, flags) = (request.xid(), request.flags());
        let (mut kind, mut requested, mut server, mut client) = (None, None, None, None);
        for option in request.opts() {
            match option.code() {
                OptionCode::MessageType => kind = option.data().first().map(|kind| MessageType::from(*kind)),
                OptionCode::RequestedIpAddress => requested = Some(address(option.data())?),
                OptionCode::ServerIdentifier => server = Some(address(option.data())?),
                OptionCode::ClientIdentifier => client = Some(option.data().to_vec()),
                _ => {}
            }
        }
        // It chose another server; there is none on this bridge, but that is the guest's business.
        if server.is_some_and(|server| server != interface.gateway4) {
            return None;
        }
        let wanted = requested.or_else(|| Some(ciaddr).filter(|ciaddr| !ciaddr.is_unspecified()));
        Some(Self { kind: kind?, xid, flags, chaddr, ciaddr, wanted, client })
    }

    /// The address, and all that comes with it.
    fn lease(&self, kind: MessageType, interface: &AttachedInterface, settings: &Settings) -> Message {
        let mut reply = self.inform(interface, settings);
        reply.set_yiaddr(interface.guest4);
        let options = reply.opts_mut();
        options.insert(DhcpOption::MessageType(kind));
        options.insert(DhcpOption::AddressLeaseTime(u32::MAX));
        options.insert(DhcpOption::Renewal(u32::MAX));
        options.insert(DhcpOption::Rebinding(u32::MAX));
        reply
    }

    fn refuse(&self, interface: &AttachedInterface) -> Message {
        let mut reply = self.reply(MessageType::Nak, interface);
        reply.set_ciaddr(Ipv4Addr::UNSPECIFIED);
        reply.opts_mut().insert(DhcpOption::Message(format!("the address is {}", interface.guest4)));
        reply
    }

    /// All but the address.
    fn inform(&self, interface: &AttachedInterface, settings: &Settings) -> Message {
        let mut reply = self.reply(MessageType::Ack, interface);
        for option in network(interface, settings).into_iter().chain(hints(settings)) {
            reply.opts_mut().insert(option);
        }
        // What boots from the network looks here; the options came later.
        if let Some(server) = settings.tftp_server.as_ref().and_then(|server| server.parse::<Ipv4Addr>().ok()) {
            reply.set_siaddr(server);
        }
        // With room for the final zero.
        if let Some(file) = settings.boot_file.as_ref().filter(|file| file.len() < 128) {
            reply.set_fname(file.as_bytes());
        }
        reply
    }

    fn reply(&self, kind: MessageType, interface: &AttachedInterface) -> Message {
        let none = Ipv4Addr::UNSPECIFIED;
        let mut reply = Message::new_with_id(self.xid, self.ciaddr, none, none, none, &self.chaddr);
        reply.set_opcode(Opcode::BootReply).set_flags(self.flags);
        let options = reply.opts_mut();
        options.insert(DhcpOption::MessageType(kind));
        options.insert(DhcpOption::ServerIdentifier(interface.gateway4));
        if let Some(client) = &self.client {
            options.insert(DhcpOption::ClientIdentifier(client.clone()));
        }
        reply
    }
}

fn address(data: &[u8]) -> Option<Ipv4Addr> {
    <[u8; 4]>::try_from(data).ok().map(Ipv4Addr::from)
}

/// What the network is like.
fn network(interface: &AttachedInterface, settings: &Settings) -> Vec<DhcpOption> {
    let mask = u32::MAX.checked_shl(32 - u32::from(interface.prefix4.min(32))).unwrap_or(0);
    let mut options = vec![
        DhcpOption::SubnetMask(Ipv4Addr::from_bits(mask)),
        DhcpOption::BroadcastAddr(Ipv4Addr::from_bits(interface.guest4.to_bits() | !mask)),
        DhcpOption::Router(vec![interface.gateway4]),
    ];
    options.extend(u16::try_from(interface.mtu).ok().map(DhcpOption::InterfaceMtu));
    if !settings.routes.is_empty() {
        // Who reads this option does not look at the router.
        let mut routes: Vec<u8> = settings
            .routes
            .iter()
            .filter(|route| route.prefix <= 32)
            .flat_map(|route| classless(route.network, route.prefix, route.gateway))
            .collect();
        routes.extend(classless(Ipv4Addr::UNSPECIFIED, 0, interface.gateway4));
        options.push(unknown(OptionCode::ClasslessStaticRoute, routes));
    }
    options
}

/// A route of RFC 3442: only the bytes of the network that its prefix covers.
fn classless(network: Ipv4Addr, prefix: u8, gateway: Ipv4Addr) -> Vec<u8> {
    let mut bytes = vec![prefix];
    bytes.extend(network.octets().iter().take(usize::from(prefix.div_ceil(8))));
    bytes.extend(gateway.octets());
    bytes
}

/// What else the guest may want to know.
fn hints(settings: &Settings) -> Vec<DhcpOption> {
    let servers = settings.dns.iter().filter_map(|server| match server {
        IpAddr::V4(server) => Some(*server),
        IpAddr::V6(_) => None,
    });
    let servers: Vec<Ipv4Addr> = servers.collect();
    let search = names(&settings.search);
    let mut options = Vec::new();
    options.extend((!servers.is_empty()).then_some(DhcpOption::DomainNameServer(servers)));
    options.extend((!search.is_empty()).then_some(DhcpOption::DomainSearch(search)));
    options.extend((!settings.ntp.is_empty()).then(|| DhcpOption::NtpServers(settings.ntp.clone())));
    options.extend((!settings.hostname.is_empty()).then(|| DhcpOption::Hostname(settings.hostname.clone())));
    options.extend(settings.domain.clone().map(DhcpOption::DomainName));
    options.extend(settings.tftp_server.clone().map(|server| DhcpOption::TFTPServerName(server.into_bytes())));
    options.extend(settings.boot_file.clone().map(|file| DhcpOption::BootfileName(file.into_bytes())));
    // The others are not private, and could say anything.
    let private = settings.private.iter().filter(|(code, _)| (224..=254).contains(*code));
    options.extend(private.map(|(code, text)| unknown(OptionCode::from(*code), text.clone().into_bytes())));
    options
}

fn unknown(code: OptionCode, data: Vec<u8>) -> DhcpOption {
    DhcpOption::Unknown(UnknownOption::new(code, data))
}

#[cfg(test)]
mod tests {
    use dhcproto::{Decodable, Decoder};
    use proptest::prelude::*;

    use super::super::Route;
    use super::super::testing::{interface, settings};
    use super::*;

    fn request(kind: MessageType, options: Vec<DhcpOption>) -> Message {
        let none = Ipv4Addr::UNSPECIFIED;
        let mut request = Message::new_with_id(7, none, none, none, none, &interface().mac.octets());
        request.opts_mut().insert(DhcpOption::MessageType(kind));
        options.into_iter().for_each(|option| drop(request.opts_mut().insert(option)));
        request
    }

    fn bytes(message: &Message) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.encode(&mut Encoder::new(&mut bytes)).unwrap();
        bytes
    }

    fn ask(request: &Message, settings: &Settings) -> Option<(Message, SocketAddr)> {
        let (reply, to) = answer(&bytes(request), &interface(), settings)?;
        Some((Message::decode(&mut Decoder::new(&reply)).unwrap(), to))
    }

    #[test]
    fn a_guest_is_offered_its_address_and_gets_it() {
        let client = DhcpOption::ClientIdentifier(vec![1, 2, 3]);
        let (offer, to) = ask(&request(MessageType::Discover, vec![client.clone()]), &settings()).unwrap();
        assert_eq!(to, "255.255.255.255:68".parse().unwrap());
        assert_eq!(
            (offer.opts().msg_type(), offer.xid(), offer.opcode()),
            (Some(MessageType::Offer), 7, Opcode::BootReply)
        );
        assert_eq!(offer.yiaddr(), interface().guest4);
        let option = |code| offer.opts().get(code).cloned();
        assert_eq!(option(OptionCode::ServerIdentifier), Some(DhcpOption::ServerIdentifier(interface().gateway4)));
        assert_eq!(option(OptionCode::SubnetMask), Some(DhcpOption::SubnetMask(Ipv4Addr::new(255, 255, 255, 0))));
        assert_eq!(option(OptionCode::Router), Some(DhcpOption::Router(vec![interface().gateway4])));
        assert_eq!(option(OptionCode::AddressLeaseTime), Some(DhcpOption::AddressLeaseTime(u32::MAX)));
        assert_eq!(option(OptionCode::InterfaceMtu), Some(DhcpOption::InterfaceMtu(1440)));
        assert_eq!(option(OptionCode::Hostname), Some(DhcpOption::Hostname("vm".to_owned())));
        assert_eq!(option(OptionCode::ClientIdentifier), Some(client));
        let dns = DhcpOption::DomainNameServer(vec![Ipv4Addr::new(10, 96, 0, 10)]);
        assert_eq!(option(OptionCode::DomainNameServer), Some(dns));
        let search = names(&["a.example".to_owned(), "example".to_owned()]);
        assert_eq!(option(OptionCode::DomainSearch), Some(DhcpOption::DomainSearch(search)));
        let wanted = DhcpOption::RequestedIpAddress(interface().guest4);
        let chosen = DhcpOption::ServerIdentifier(interface().gateway4);
        let (ack, _) = ask(&request(MessageType::Request, vec![wanted, chosen]), &settings()).unwrap();
        assert_eq!((ack.opts().msg_type(), ack.yiaddr()), (Some(MessageType::Ack), interface().guest4));
    }

    #[test]
    fn another_address_is_refused_to_all_who_hear() {
        let wanted = DhcpOption::RequestedIpAddress(Ipv4Addr::new(192, 168, 0, 7));
        let (nak, to) = ask(&request(MessageType::Request, vec![wanted]), &settings()).unwrap();
        assert_eq!((nak.opts().msg_type(), nak.yiaddr()), (Some(MessageType::Nak), Ipv4Addr::UNSPECIFIED));
        assert_eq!(to, "255.255.255.255:68".parse().unwrap());
    }

    #[test]
    fn who_renews_or_informs_itself_is_answered_at_its_address() {
        for (kind, has_lease) in [(MessageType::Request, true), (MessageType::Inform, false)] {
            let mut renewal = request(kind, Vec::new());
            renewal.set_ciaddr(interface().guest4);
            let (ack, to) = ask(&renewal, &settings()).unwrap();
            assert_eq!(ack.opts().msg_type(), Some(MessageType::Ack));
            assert_eq!(to, SocketAddr::from((interface().guest4, 68)));
            assert_eq!(ack.opts().contains(OptionCode::AddressLeaseTime), has_lease);
            assert_eq!(ack.yiaddr() == interface().guest4, has_lease);
        }
    }

    #[test]
    fn others_and_what_needs_no_answer_get_none() {
        for kind in [MessageType::Release, MessageType::Decline, MessageType::Offer, MessageType::Request] {
            assert!(ask(&request(kind, Vec::new()), &settings()).is_none(), "{kind:?}");
        }
        let elsewhere = DhcpOption::ServerIdentifier(Ipv4Addr::new(10, 0, 2, 9));
        assert!(ask(&request(MessageType::Request, vec![elsewhere]), &settings()).is_none());
        let mut other = request(MessageType::Discover, Vec::new());
        other.set_chaddr(&[2, 0, 0, 0, 0, 9]);
        assert!(ask(&other, &settings()).is_none());
    }

    #[test]
    fn options_of_the_interface_are_told() {
        let settings = Settings {
            boot_file: Some("pxelinux.0".to_owned()),
            tftp_server: Some("10.1.2.3".to_owned()),
            ntp: vec![Ipv4Addr::new(10, 9, 9, 9)],
            private: [(240, "secret".to_owned()), (53, "nonsense".to_owned())].into(),
            routes: vec![Route {
                network: Ipv4Addr::new(10, 17, 0, 0),
                prefix: 16,
                gateway: Ipv4Addr::new(10, 0, 2, 9),
            }],
            ..settings()
        };
        let (offer, _) = ask(&request(MessageType::Discover, Vec::new()), &settings).unwrap();
        assert_eq!(offer.opts().msg_type(), Some(MessageType::Offer));
        assert_eq!(offer.siaddr(), Ipv4Addr::new(10, 1, 2, 3));
        assert_eq!(offer.fname().map(|name| name.strip_suffix(&[0]).unwrap_or(name)), Some(b"pxelinux.0".as_slice()));
        let option = |code: u8| offer.opts().get(OptionCode::from(code)).cloned();
        assert_eq!(option(67), Some(DhcpOption::BootfileName(b"pxelinux.0".to_vec())));
        assert_eq!(option(240), Some(unknown(OptionCode::from(240), b"secret".to_vec())));
        let routes = format!("{:?}", option(121).unwrap());
        assert!(routes.contains("10.17.0.0/16") && routes.contains("0.0.0.0/0"), "{routes}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            prop_assert!(answer(&bytes, &interface(), &settings()).is_none());
        }

        #[test]
        fn any_options_are_answered_or_not(options in proptest::collection::vec(any::<u8>(), 0..300), kind in 0u8..10) {
            let mut whole = bytes(&request(MessageType::from(kind), Vec::new()));
            whole.pop();
            whole.extend(options);
            if let Some((reply, _)) = answer(&whole, &interface(), &settings()) {
                let reply = Message::decode(&mut Decoder::new(&reply)).unwrap();
                prop_assert!(reply.yiaddr() == interface().guest4 || reply.yiaddr().is_unspecified());
            }
        }

        #[test]
        fn any_settings_can_be_told(
            texts in proptest::collection::vec("\\PC{0,300}", 5),
            code: u8,
            search in proptest::collection::vec("[a-zA-Z0-9._ -]{0,300}", 0..40),
        ) {
            let text = |index: usize| texts[index].clone();
            let settings = Settings {
                hostname: text(0), domain: Some(text(1)), boot_file: Some(text(2)), tftp_server: Some(text(3)),
                private: [(code, text(4))].into(), search, ..settings()
            };
            prop_assert!(answer(&bytes(&request(MessageType::Discover, Vec::new())), &interface(), &settings).is_some());
        }
    }
}
