//! Functions of addresses, networks and URLs.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

use super::super::eval::{Failure, error};
use super::super::ops::text_map;
use super::super::value::Val;
use super::{text, truth};

/// An address in plain notation: no zone, and no IPv4 inside IPv6.
pub(super) fn parse_ip<'a>(text: &str) -> Result<Val<'a>, Failure> {
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            Err(error(format!("IPv4-mapped IPv6 address {} is not allowed", crate::go::quote(text))))
        }
        Ok(address) => Ok(Val::Ip(address)),
        Err(_) => {
            let shown = crate::go::quote(text);
            Err(error(format!(
                "IP Address {shown} parse error during conversion from string: ParseAddr({shown}): unable to parse IP"
            )))
        }
    }
}

pub(super) fn parse_cidr<'a>(text: &str) -> Result<Val<'a>, Failure> {
    let parsed = text.split_once('/').and_then(|(address, length)| {
        let address: IpAddr = address.parse().ok()?;
        let length: u8 = length.parse().ok().filter(|number: &u8| number.to_string() == length)?;
        (length <= width(address)).then_some(Val::Cidr(address, length))
    });
    parsed.ok_or_else(|| error(format!("network address parse error during conversion from string: {text}")))
}

pub(super) fn is_canonical<'a>(text: &str) -> Result<Val<'a>, Failure> {
    match parse_ip(text)? {
        Val::Ip(address) => Ok(Val::Bool(address.to_string() == text)),
        _ => Ok(Val::Bool(false)),
    }
}

pub(super) fn call<'a>(this: &Val<'a>, name: &str, rest: &[Val<'a>]) -> Option<Result<Val<'a>, Failure>> {
    match (this, name, rest) {
        (Val::Ip(address), _, []) => ip_part(*address, name),
        (Val::Cidr(address, _), "ip", []) => Some(Ok(Val::Ip(*address))),
        (Val::Cidr(_, length), "prefixLength", []) => Some(Ok(Val::Int(i64::from(*length)))),
        (Val::Cidr(address, length), "masked", []) => Some(Ok(Val::Cidr(masked(*address, *length), *length))),
        (Val::Cidr(network, length), "containsIP", [other]) => {
            let address = match other {
                Val::Ip(address) => Ok(Val::Ip(*address)),
                Val::String(text) => parse_ip(text.as_str()),
                _ => return None,
            };
            Some(address.map(|address| match address {
                Val::Ip(address) => Val::Bool(contains(*network, *length, address)),
                _ => Val::Bool(false),
            }))
        }
        (Val::Cidr(network, length), "containsCIDR", [other]) => {
            let inner = match other {
                Val::Cidr(..) => Ok(other.clone()),
                Val::String(text) => parse_cidr(text.as_str()),
                _ => return None,
            };
            Some(inner.map(|inner| match inner {
                Val::Cidr(address, inner) => Val::Bool(inner >= *length && contains(*network, *length, address)),
                _ => Val::Bool(false),
            }))
        }
        _ => None,
    }
}

fn ip_part<'a>(address: IpAddr, name: &str) -> Option<Result<Val<'a>, Failure>> {
    match name {
        "family" => Some(Ok(Val::Int(if address.is_ipv4() { 4 } else { 6 }))),
        "isUnspecified" => truth(address.is_unspecified()),
        "isLoopback" => truth(address.is_loopback()),
        "isLinkLocalMulticast" => truth(match address {
            IpAddr::V4(address) => address.octets()[..3] == [224, 0, 0],
            IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
        }),
        "isLinkLocalUnicast" => truth(match address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        }),
        "isGlobalUnicast" => {
            let local = match address {
                IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
                IpAddr::V6(address) => address.is_unicast_link_local(),
            };
            truth(!local && !address.is_unspecified() && !address.is_loopback() && !address.is_multicast())
        }
        _ => None,
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn masked(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            IpAddr::V4((u32::from(address) & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            IpAddr::V6((u128::from(address) & mask).into())
        }
    }
}

fn contains(network: IpAddr, length: u8, address: IpAddr) -> bool {
    network.is_ipv4() == address.is_ipv4() && masked(network, length) == masked(address, length)
}

pub(super) fn url_part<'a>(this: &str, name: &str, rest: &[Val<'a>]) -> Option<Result<Val<'a>, Failure>> {
    if !rest.is_empty() {
        return None;
    }
    let (scheme, after) = this.split_once(':').filter(|(scheme, _)| !scheme.contains('/')).unwrap_or(("", this));
    let (authority, tail) = match after.strip_prefix("//") {
        Some(after) => after.split_at(after.find(['/', '?']).unwrap_or(after.len())),
        None => ("", after),
    };
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (name_part, port) = match host.rfind(':').filter(|colon| !host[*colon..].contains(']')) {
        Some(colon) => (&host[..colon], &host[colon + 1..]),
        None => (host, ""),
    };
    let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
    match name {
        "getScheme" => text(scheme),
        "getHost" => text(host),
        "getHostname" => text(name_part.trim_start_matches('[').trim_end_matches(']')),
        "getPort" => text(port),
        "getEscapedPath" => text(path),
        "getQuery" => {
            let mut map: BTreeMap<Rc<str>, Vec<Val<'a>>> = BTreeMap::new();
            for pair in query.split('&').filter(|pair| !pair.is_empty()) {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                map.entry(key.into()).or_default().push(Val::text(value));
            }
            Some(Ok(text_map(map.into_iter().map(|(key, values)| (key, Val::list(values))).collect())))
        }
        _ => None,
    }
}
