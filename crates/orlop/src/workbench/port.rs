//! `-p 2222:22`: a port of this machine that is forwarded to the guest.

use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use hypervisor::wiring::Forward;

/// A text that is not a port forward.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is not a valid port forward; use HOST:GUEST or ADDRESS:HOST:GUEST, such as 2222:22 or 127.0.0.1:2222:22"
)]
pub(crate) struct PortError(String);

/// A forward as the command line has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port(pub(crate) Forward);

impl FromStr for Port {
    type Err = PortError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (rest, guest) = text.rsplit_once(':')?;
            let (address, host) = match rest.rsplit_once(':') {
                Some((address, host)) => (address.trim_matches(['[', ']']).parse::<IpAddr>().ok()?, host),
                None => (Ipv4Addr::LOCALHOST.into(), rest),
            };
            let (host, guest) = (host.parse().ok()?, guest.parse().ok()?);
            (host != 0 && guest != 0).then_some(Forward { address, host, guest })
        };
        parse().map(Self).ok_or_else(|| PortError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_forward_listens_on_loopback_unless_told() {
        let Port(forward) = "2222:22".parse().unwrap();
        assert_eq!((forward.address.is_loopback(), forward.host, forward.guest), (true, 2222, 22));
        let Port(forward) = "0.0.0.0:80:8080".parse().unwrap();
        assert_eq!((forward.address.to_string().as_str(), forward.host, forward.guest), ("0.0.0.0", 80, 8080));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "22", "a:b", "0:22", "22:0", "1:2:3:4", "70000:22", "host:1:2"] {
            assert!(text.parse::<Port>().is_err(), "{text:?} was taken");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "\\PC{0,20}") {
            let _ = text.parse::<Port>();
        }
    }
}
