//! Resolver settings as in `/etc/resolv.conf`.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// As many as resolvers look at, and more than fit a DHCP message with everything else.
const MAX_ENTRIES: usize = 32;

/// Who answers names, and what short names are completed with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dns {
    /// Servers, the first to be asked first.
    pub servers: Vec<IpAddr>,
    /// Domains, the first to be tried first.
    pub search: Vec<String>,
}

/// Reads what can be read; unknown lines, and addresses with a zone, which mean nothing elsewhere, are left out.
pub fn parse(text: &str) -> Dns {
    let mut dns = Dns::default();
    for line in text.lines() {
        let line = line.split(['#', ';']).next().unwrap_or_default();
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => dns.servers.extend(words.next().and_then(|word| word.parse::<IpAddr>().ok())),
            // The last one counts.
            Some("search" | "domain") => dns.search = words.map(domain).filter(|it| !it.is_empty()).collect(),
            _ => {}
        }
    }
    dns.servers.truncate(MAX_ENTRIES);
    dns.search.truncate(MAX_ENTRIES);
    dns
}

fn domain(word: &str) -> String {
    word.trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn servers_and_domains_are_read_in_order() {
        let text = "# made by hand\ndomain old.example\nsearch a.example. b.example ; c\nnameserver 10.0.0.10\n\
                    nameserver fd00::10 # second\nnameserver fe80::1%eth0\nnameserver nonsense\noptions ndots:5\n";
        let dns = parse(text);
        assert_eq!(dns.servers, ["10.0.0.10".parse::<IpAddr>().unwrap(), "fd00::10".parse().unwrap()]);
        assert_eq!(dns.search, ["a.example", "b.example"]);
    }

    proptest! {
        #[test]
        fn any_text_is_read_and_bounded(text in "(nameserver|search|domain| |\\n|[a-z0-9.:#]){0,200}") {
            let dns = parse(&text);
            prop_assert!(dns.servers.len() <= MAX_ENTRIES && dns.search.len() <= MAX_ENTRIES);
            prop_assert!(dns.search.iter().all(|domain| !domain.is_empty() && text.contains(domain.as_str())));
        }
    }
}
