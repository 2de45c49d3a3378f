//! Addresses of networks.

use std::net::{Ipv4Addr, Ipv6Addr};

/// An IPv4 address as Go read it before it refused leading zeros, which Kubernetes still does.
pub(super) fn ipv4(text: &str) -> bool {
    sloppy_ipv4(text).is_some() || (text.contains('.') && text.parse::<Ipv6Addr>().is_ok())
}

pub(super) fn ipv6(text: &str) -> bool {
    text.contains(':') && text.parse::<Ipv6Addr>().is_ok()
}

pub(super) fn cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let widest = if sloppy_ipv4(address).is_some() {
        32
    } else if ipv6(address) {
        128
    } else {
        return false;
    };
    length.bytes().all(|byte| byte.is_ascii_digit()) && length.parse::<u8>().is_ok_and(|length| length <= widest)
}

/// 6, 8 or 20 bytes in pairs with colons or dashes, or in fours with dots.
pub(super) fn mac(text: &str) -> bool {
    let (separator, width) = match text.find([':', '-', '.']) {
        Some(2) if !text[2..].starts_with('.') => (&text[2..3], 2),
        Some(4) if text[4..].starts_with('.') => (".", 4),
        _ => return false,
    };
    let groups: Vec<&str> = text.split(separator).collect();
    let whole = groups.iter().all(|group| group.len() == width && group.bytes().all(|byte| byte.is_ascii_hexdigit()));
    whole && matches!(groups.len() * width / 2, 6 | 8 | 20)
}

fn sloppy_ipv4(text: &str) -> Option<Ipv4Addr> {
    let parts: Vec<u8> = text
        .split('.')
        .map(|part| part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok()).flatten())
        .collect::<Option<_>>()?;
    let parts: [u8; 4] = parts.try_into().ok()?;
    Some(parts.into())
}
