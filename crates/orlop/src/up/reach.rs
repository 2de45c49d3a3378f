//! What pods and guests reach of this machine: the API at their gateway, the name servers that they are told of, and the ports
//! that whoever starts it allows. Everything else of the machine is closed to them, and a cloud's metadata, too.

use std::net::IpAddr;

use network::cni::Service;
use network::guest_network::Protocol;

const DNS: u16 = 53;

/// All that they reach.
pub(super) fn services(
    gateways: &[IpAddr],
    api_port: u16,
    name_servers: &[IpAddr],
    allowed: &[(u16, Protocol)],
) -> Vec<Service> {
    let at = |address: &IpAddr, protocol, port| Service { address: Some(*address), protocol, port };
    let api = gateways.iter().map(|gateway| at(gateway, Protocol::Tcp, api_port));
    let names = name_servers.iter().flat_map(|it| [Protocol::Udp, Protocol::Tcp].map(|protocol| at(it, protocol, DNS)));
    let more = allowed.iter().map(|(port, protocol)| Service { address: None, protocol: *protocol, port: *port });
    api.chain(names).chain(more).collect()
}

/// `5000`, `5000/tcp` or `53/udp`.
pub(super) fn port(text: &str) -> Result<(u16, Protocol), String> {
    let wrong = || format!("{text:?} is not a valid port; use one such as 5000 or 53/udp");
    let (port, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    let protocol = match protocol {
        "tcp" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        "sctp" => Protocol::Sctp,
        _ => return Err(wrong()),
    };
    let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?;
    Ok((port, protocol))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_and_mistakes_are_told() {
        assert_eq!(port("5000"), Ok((5000, Protocol::Tcp)));
        assert_eq!(port("53/udp"), Ok((53, Protocol::Udp)));
        for text in ["", "0", "65536", "80/icmp", "80/", "/tcp", "10.0.0.1:80"] {
            assert!(port(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_api_is_reached_at_the_gateway_and_nowhere_else() {
        let gateway: IpAddr = "10.1.0.1".parse().unwrap();
        let server: IpAddr = "192.0.2.53".parse().unwrap();
        let all = services(&[gateway], 6443, &[server], &[(5000, Protocol::Tcp)]);
        let told: Vec<_> = all.iter().map(|one| (one.address, one.protocol, one.port)).collect();
        let expected = [
            (Some(gateway), Protocol::Tcp, 6443),
            (Some(server), Protocol::Udp, 53),
            (Some(server), Protocol::Tcp, 53),
            (None, Protocol::Tcp, 5000),
        ];
        assert_eq!(told, expected);
    }
}
