//! What a pod finds in `/etc/hosts` and `/etc/resolv.conf`.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;

use k8s_openapi::api::core::v1::{Pod, PodSpec};

/// The kernel's limits on names and options are older than Kubernetes'; these are a kubelet's.
const MOST_SERVERS: usize = 3;
const MOST_DOMAINS: usize = 32;
/// Where systemd keeps the servers that its local resolver asks.
const BEHIND_LOCAL: &str = "/run/systemd/resolve/resolv.conf";

/// The servers that pods are told of, where they ask for no others themselves.
#[must_use]
pub fn name_servers(resolv_conf: &Path) -> Vec<IpAddr> {
    let resolver = Resolver::of_machine(resolv_conf, false);
    let servers = resolver.servers.iter().filter_map(|server| server.parse().ok());
    servers.filter(|server: &IpAddr| !server.is_loopback()).take(MOST_SERVERS).collect()
}

/// What `hostname` says in a pod.
pub(super) fn hostname(pod: &Pod, node: &str) -> String {
    let spec = pod.spec.as_ref();
    if spec.is_some_and(super::view::uses_host_network) {
        return node.to_owned();
    }
    let own = spec.and_then(|spec| spec.hostname.clone()).filter(|name| !name.is_empty());
    let name = own.or_else(|| pod.metadata.name.clone()).unwrap_or_default();
    // The kernel takes no longer ones; a kubelet cuts them the same way.
    let cut: String = name.chars().take(63).collect();
    cut.trim_end_matches(['-', '.']).to_owned()
}

/// The hosts file: the machine's own for those on its network, otherwise the pod's names.
pub(super) fn hosts(pod: &Pod, hostname: &str, addresses: &[IpAddr], of_machine: &str) -> String {
    let Some(spec) = &pod.spec else { return String::new() };
    let mut text = String::from("# Kubernetes-managed hosts file.\n");
    if super::view::uses_host_network(spec) {
        text.push_str(of_machine);
        if !text.ends_with('\n') {
            text.push('\n');
        }
    } else {
        text.push_str("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n");
        text.push_str("fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n");
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let subdomain = spec.subdomain.as_deref().filter(|name| !name.is_empty());
        let whole = subdomain.map(|name| format!("{hostname}.{name}.{namespace}.svc.cluster.local\t"));
        for address in addresses {
            let _infallible = writeln!(text, "{address}\t{}{hostname}", whole.as_deref().unwrap_or_default());
        }
    }
    let aliases = spec.host_aliases.as_deref().unwrap_or_default();
    if !aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
    }
    for alias in aliases {
        let names = alias.hostnames.as_deref().unwrap_or_default().join("\t");
        let _infallible = writeln!(text, "{}\t{names}", alias.ip);
    }
    text
}

/// A resolver's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Resolver {
    servers: Vec<String>,
    domains: Vec<String>,
    options: Vec<String>,
}

impl Resolver {
    /// The machine's own, from its `resolv.conf`, or the one behind it: a pod without the machine's network cannot ask at the
    /// machine's loopback.
    pub(super) fn of_machine(resolv_conf: &Path, is_on_host_network: bool) -> Self {
        // What is not there says nothing.
        let read = |path: &Path| Self::parse(&std::fs::read_to_string(path).unwrap_or_default());
        let resolver = read(resolv_conf);
        if resolver.is_local() && !is_on_host_network { read(BEHIND_LOCAL.as_ref()) } else { resolver }
    }

    /// Reads a `resolv.conf`; what is unknown is left out.
    fn parse(text: &str) -> Self {
        let mut resolver = Self::default();
        for line in text.lines() {
            let mut words = line.split_whitespace().map(str::to_owned);
            match words.next().as_deref() {
                Some("nameserver") => resolver.servers.extend(words.next()),
                // The last one counts, as resolvers have it.
                Some("search" | "domain") => resolver.domains = words.collect(),
                Some("options") => resolver.options.extend(words),
                _ => {}
            }
        }
        resolver
    }

    /// Whether all its servers are on this machine's own loopback, where a pod cannot ask them.
    fn is_local(&self) -> bool {
        let local = |server: &String| server.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        !self.servers.is_empty() && self.servers.iter().all(local)
    }

    /// As the pod wants it. There is no DNS of the cluster: where a pod asks for that first, the machine's answers.
    pub(super) fn of_pod(mut self, spec: &PodSpec) -> Self {
        if spec.dns_policy.as_deref() == Some("None") {
            self = Self::default();
        }
        if !super::view::uses_host_network(spec) {
            self.servers.retain(|server| !server.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()));
        }
        let Some(config) = &spec.dns_config else { return self };
        self.servers.extend(config.nameservers.iter().flatten().cloned());
        self.domains.extend(config.searches.iter().flatten().cloned());
        for option in config.options.iter().flatten() {
            let name = option.name.clone().unwrap_or_default();
            let of = |known: &str| known.split(':').next() == Some(name.as_str());
            self.options.retain(|known| !of(known));
            self.options.push(match &option.value {
                Some(value) => format!("{name}:{value}"),
                None => name,
            });
        }
        self
    }

    /// As a file.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |words: &[String], name: &str| {
            if !words.is_empty() {
                let _infallible = writeln!(text, "{name} {}", words.join(" "));
            }
        };
        self.servers.iter().take(MOST_SERVERS).for_each(|server| line(std::slice::from_ref(server), "nameserver"));
        line(self.domains.get(..MOST_DOMAINS).unwrap_or(&self.domains), "search");
        line(&self.options, "options");
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: &Value) -> Pod {
        serde_json::from_value(json!({ "metadata": { "name": "p", "namespace": "n" }, "spec": spec })).unwrap()
    }

    #[test]
    fn pods_find_themselves_and_their_aliases() {
        let spec = json!({ "containers": [], "subdomain": "s", "hostAliases": [{ "ip": "1.2.3.4", "hostnames": ["a", "b"] }] });
        let pod = pod(&spec);
        let text = hosts(&pod, &hostname(&pod, "node"), &["10.0.0.2".parse().unwrap()], "");
        assert!(text.contains("10.0.0.2\tp.s.n.svc.cluster.local\tp\n"), "{text}");
        assert!(text.ends_with("# Entries added by HostAliases.\n1.2.3.4\ta\tb\n"));
    }

    #[test]
    fn the_machines_resolver_is_used_unless_it_is_out_of_reach() {
        let machine = Resolver::parse("# x\nnameserver 127.0.0.53\nsearch a b\noptions ndots:2 edns0\n");
        assert!(machine.is_local());
        let other = Resolver::parse("nameserver 9.9.9.9\nnameserver ::1\nsearch a\noptions ndots:2");
        assert!(!other.is_local());
        let spec = json!({ "containers": [], "dnsConfig": { "nameservers": ["1.1.1.1"], "options": [{ "name": "ndots", "value": "5" }] } });
        let text = other.clone().of_pod(pod(&spec).spec.as_ref().unwrap()).text();
        assert_eq!(text, "nameserver 9.9.9.9\nnameserver 1.1.1.1\nsearch a\noptions ndots:5\n");
        let none = json!({ "containers": [], "dnsPolicy": "None", "dnsConfig": { "searches": ["z"] } });
        assert_eq!(other.of_pod(pod(&none).spec.as_ref().unwrap()).text(), "search z\n");
    }
}
