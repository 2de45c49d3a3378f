//! The guest's name, and who it asks for others'.

use std::net::IpAddr;

use api::vmi::{DnsPolicy, VirtualMachineInstanceSpec};
use virt_rules::names::{is_dns_label, is_dns_subdomain};

use super::word;
use crate::denial::Problems;

/// What the resolver in a pod takes.
const MOST_SERVERS: usize = 3;
const MOST_SEARCHES: usize = 32;
const MOST_SEARCH_BYTES: usize = 2048;

pub(super) fn check(spec: &VirtualMachineInstanceSpec, problems: &mut Problems) {
    let hostname = spec.hostname.as_deref().unwrap_or_default();
    if !hostname.is_empty() && !is_dns_label(hostname) {
        let message = "must have at most 63 lower-case letters, digits and -";
        problems.invalid("spec.hostname", format!("{hostname:?} {message}"));
    }
    let subdomain = spec.subdomain.as_deref().unwrap_or_default();
    if !subdomain.is_empty() && !is_dns_subdomain(subdomain) {
        let message = "must have at most 253 lower-case letters, digits, . and -";
        problems.invalid("spec.subdomain", format!("{subdomain:?} {message}"));
    }
    let policy = spec.dns_policy.as_ref();
    word(policy.map(DnsPolicy::as_str), DnsPolicy::KNOWN, "spec.dnsPolicy", problems);
    let config = spec.dns_config.as_ref();
    let servers = config.and_then(|config| config.nameservers.as_deref()).unwrap_or_default();
    if policy == Some(&DnsPolicy::None) && servers.is_empty() {
        problems.required("spec.dnsConfig.nameservers", "spec.dnsPolicy None needs at least one name server; add one");
    }
    if servers.len() > MOST_SERVERS {
        problems.invalid("spec.dnsConfig.nameservers", format!("has more than {MOST_SERVERS}; remove some"));
    }
    for (index, server) in servers.iter().enumerate() {
        if server.parse::<IpAddr>().is_err() {
            let message = format!("{server:?} is not a valid IP address; use one such as 10.96.0.10");
            problems.invalid(format!("spec.dnsConfig.nameservers[{index}]"), message);
        }
    }
    let searches = config.and_then(|config| config.searches.as_deref()).unwrap_or_default();
    let bytes: usize = searches.iter().map(|search| search.len() + 1).sum();
    if searches.len() > MOST_SEARCHES || bytes > MOST_SEARCH_BYTES + 1 {
        let message = format!("has more than {MOST_SEARCHES} entries or {MOST_SEARCH_BYTES} characters; remove some");
        problems.invalid("spec.dnsConfig.searches", message);
    }
    for (index, search) in searches.iter().enumerate() {
        if !is_dns_subdomain(search.strip_suffix('.').unwrap_or(search)) {
            let field = format!("spec.dnsConfig.searches[{index}]");
            problems.invalid(field, format!("{search:?} is not a valid domain; use one such as example.com"));
        }
    }
    let options = config.and_then(|config| config.options.as_deref()).unwrap_or_default();
    for (index, option) in options.iter().enumerate() {
        if option.name.as_deref().unwrap_or_default().is_empty() {
            problems.required(format!("spec.dnsConfig.options[{index}].name"), "is empty; name the option");
        }
    }
}
