//! Where an import may go. A pod's network shuts off most of what is refused here; this is what says so by name, and what holds
//! where a network does not.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::ImportError;

/// Where clouds answer for what machines are, in IPv6; in IPv4 they use a link-local address.
const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254);

/// Which addresses may be reached: all but the machine's own and those of its cloud.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    allowed: Vec<IpAddr>,
}

impl Reach {
    /// Allows an address that would be refused.
    #[must_use]
    pub fn and(mut self, address: IpAddr) -> Self {
        self.allowed.push(address);
        self
    }

    /// Whether an address may be reached.
    #[must_use]
    pub fn includes(&self, address: IpAddr) -> bool {
        self.allowed.contains(&address) || !is_own(address)
    }

    /// Checks the host of an address if it is given in numbers; names are checked when they are resolved.
    pub(crate) fn check(&self, url: &Url) -> Result<(), ImportError> {
        let host = url.host_str().unwrap_or_default();
        let literal: Option<IpAddr> = host.trim_start_matches('[').trim_end_matches(']').parse().ok();
        match literal {
            Some(address) if !self.includes(address) => Err(ImportError::Forbidden { host: host.to_owned(), address }),
            _ => Ok(()),
        }
    }

    /// Names, resolved to what may be reached; what may not is noted.
    pub(crate) fn resolver(&self, refused: Refused) -> Arc<dyn Resolve> {
        Arc::new(Resolver { reach: self.clone(), refused })
    }
}

/// A name that was not resolved, and where it would have led. The client's own error hides it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refused(Arc<Mutex<Option<(String, IpAddr)>>>);

impl Refused {
    fn note(&self, host: &str, address: IpAddr) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((host.to_owned(), address));
    }

    /// The error, if a name was refused.
    pub(crate) fn error(&self) -> Option<ImportError> {
        let noted = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        noted.map(|(host, address)| ImportError::Forbidden { host, address })
    }
}

struct Resolver {
    reach: Reach,
    refused: Refused,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (reach, noted) = (self.reach.clone(), self.refused.clone());
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            let refused = found.iter().map(SocketAddr::ip).find(|address| !reach.includes(*address));
            let usable: Vec<SocketAddr> = found.into_iter().filter(|one| reach.includes(one.ip())).collect();
            match (usable.is_empty(), refused) {
                (true, Some(address)) => {
                    noted.note(&host, address);
                    Err(Box::new(ImportError::Forbidden { host, address }).into())
                }
                _ => Ok(Box::new(usable.into_iter()) as Addrs),
            }
        })
    }
}

fn is_own(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => is_own4(four),
        IpAddr::V6(six) => {
            let embedded = six.to_ipv4_mapped().or_else(|| translated(six)).or_else(|| six.to_ipv4());
            six.is_loopback()
                || six.is_unspecified()
                || six.is_multicast()
                || six.is_unicast_link_local()
                || six == METADATA
                || embedded.is_some_and(is_own4)
        }
    }
}

fn is_own4(four: Ipv4Addr) -> bool {
    four.is_loopback()
        || four.is_link_local()
        || four.is_multicast()
        || four.is_broadcast()
        // All of 0.0.0.0/8 is this machine.
        || four.octets()[0] == 0
}

/// What a gateway would turn an address of the well-known prefix 64:ff9b::/96 into.
fn translated(six: Ipv6Addr) -> Option<Ipv4Addr> {
    let [0x64, 0xff9b, 0, 0, 0, 0, high, low] = six.segments() else { return None };
    let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
    Some(Ipv4Addr::new(a, b, c, d))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_goes_anywhere_but_to_the_machine_and_its_cloud() {
        let reach = Reach::default();
        let refused = [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "ff02::1",
            "fd00:ec2::254",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "::127.0.0.1",
        ];
        for address in refused {
            assert!(!reach.includes(address.parse().unwrap()), "{address}");
        }
        for address in ["10.0.0.1", "192.168.1.1", "8.8.8.8", "fd99::1", "2001:db8::1", "64:ff9b::808:808"] {
            assert!(reach.includes(address.parse().unwrap()), "{address}");
        }
        let reach = reach.and("127.0.0.1".parse().unwrap());
        assert!(reach.includes("127.0.0.1".parse().unwrap()));
        assert!(!reach.includes("127.0.0.2".parse().unwrap()));
    }

    /// However they are written.
    #[test]
    fn addresses_in_numbers_are_checked_before_anybody_is_asked() {
        let reach = Reach::default();
        for url in [
            "http://127.0.0.1/",
            "http://2130706433/",
            "http://0x7f.1/",
            "https://[::1]:8443/a",
            "http://[::ffff:7f00:1]/",
        ] {
            let refused = reach.check(&Url::parse(url).unwrap());
            assert!(matches!(refused, Err(ImportError::Forbidden { .. })), "{url}: {refused:?}");
        }
        assert!(reach.check(&Url::parse("http://example.org/").unwrap()).is_ok());
    }

    #[tokio::test]
    async fn a_name_of_the_machine_is_not_resolved() {
        let resolver = Reach::default().resolver(Refused::default());
        let refused = resolver.resolve("localhost".parse().unwrap()).await.err().unwrap();
        assert!(refused.to_string().contains("localhost is at"), "{refused}");
    }
}
