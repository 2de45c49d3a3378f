//! A pod's volumes, and the few files that it gets from its node.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;

use super::{Entry, Sources, Worker};
use crate::agent::container::fields::Facts;
use crate::agent::dns::{self, Resolver};
use crate::agent::parts::Failure;
use crate::agent::record::{self, Record};
use crate::agent::view;
use crate::agent::volumes::{Preparing, VolumeError};

/// Where systemd keeps the servers that its local resolver asks.
const BEHIND_LOCAL: &str = "/run/systemd/resolve/resolv.conf";

/// Between two attempts to bring volumes up to date.
const LATER: Duration = Duration::from_secs(10);

impl Worker<'_> {
    pub(super) fn facts<'a>(&'a self, pod: &'a Pod, record: &'a Record) -> Facts<'a> {
        let host = pod.spec.as_ref().is_some_and(view::uses_host_network);
        let node = self.shared.place.addresses.as_slice();
        let own = record.addresses.as_deref().unwrap_or_default();
        let addresses = if host { node } else { own };
        let api_server = self.shared.settings.api_server;
        Facts { pod, addresses, node_addresses: node, allocatable: &self.shared.machine.allocatable, api_server }
    }

    pub(super) async fn prepare_volumes(&self, entry: &mut Entry) -> Result<(), VolumeError> {
        let (Some(pod), Some(record)) = (self.pod, &entry.record) else { return Ok(()) };
        let Some(spec) = &pod.spec else { return Ok(()) };
        let preparing = Preparing {
            client: &self.shared.client,
            root: &self.shared.settings.root,
            facts: self.facts(pod, record),
            spec,
            user: record.user,
            images: &entry.fetches.all_held(),
            now: self.now(),
        };
        let sources = entry.sources.take().unwrap_or_else(|| Sources::follow(self.shared, self.which, spec));
        let prepared = preparing.all().await;
        entry.sources = Some(sources);
        entry.volumes = Some(prepared?);
        Ok(())
    }

    /// Brings volumes up to date whose time has come, or whose sources have changed; tells when the next time is.
    pub(super) async fn refresh(&self, entry: &mut Entry) -> Option<Duration> {
        let all = entry.volumes.as_ref()?;
        let left = |at: jiff::Timestamp| Duration::try_from(at.duration_since(self.now())).unwrap_or_default();
        let stale = entry.sources.as_ref().is_some_and(Sources::have_changed);
        if !stale && all.refresh.is_none_or(|at| !left(at).is_zero()) {
            return all.refresh.map(left);
        }
        if let Err(error) = self.prepare_volumes(entry).await {
            tracing::warn!(error = Failure::of(&error).0, "volumes were not renewed");
            return Some(LATER);
        }
        entry.volumes.as_ref()?.refresh.map(left)
    }

    fn file(&self, name: &str) -> PathBuf {
        record::folder(&self.shared.settings.root, &self.which.uid).join(name)
    }

    /// Files that the node gives to every container of a pod: where they are, and where a container finds them.
    pub(super) fn given(&self) -> [(PathBuf, &'static str); 3] {
        [
            (self.file("etc-hosts"), "/etc/hosts"),
            (self.file("etc-resolv.conf"), "/etc/resolv.conf"),
            (self.file("etc-hostname"), "/etc/hostname"),
        ]
    }

    pub(super) fn write_files(&self, entry: &Entry, pod: &Pod) -> Result<(), Failure> {
        let Some(record) = &entry.record else { return Ok(()) };
        let Some(spec) = &pod.spec else { return Ok(()) };
        let hostname = dns::hostname(pod, &self.shared.settings.node);
        let addresses = self.facts(pod, record).addresses;
        let hosts = dns::hosts(pod, &hostname, addresses, &read("/etc/hosts".as_ref()));
        let mut resolver = Resolver::parse(&read(&self.shared.settings.resolv_conf));
        if resolver.is_local() && !view::uses_host_network(spec) {
            resolver = Resolver::parse(&read(BEHIND_LOCAL.as_ref()));
        }
        let texts = [hosts, resolver.of_pod(spec).text(), format!("{hostname}\n")];
        for ((path, _), text) in self.given().iter().zip(texts) {
            let written = std::fs::write(path, text);
            written.map_err(|error| Failure(format!("{}: {error}", path.display())))?;
        }
        Ok(())
    }
}

/// What is not there says nothing.
fn read(path: &std::path::Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
