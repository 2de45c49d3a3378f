//! A pod's volumes, and the few files that it gets from its node.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Volume};

use super::{Entry, PodError, Sources, Worker};
use crate::agent::container::fields::Facts;
use crate::agent::dns::{self, Resolver};
use crate::agent::parts::Failure;
use crate::agent::record::{self, Record};
use crate::agent::view;
use crate::agent::volumes::{Preparing, VolumeError};
use crate::runtime::spec::ContainerState;

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
        entry.volumes = self.with_sources(entry, async |preparing| preparing.all().await).await?;
        Ok(())
    }

    /// Writes down that its claims were given to it, which is done once.
    pub(super) fn note_given(&self, entry: &mut Entry) -> Result<(), PodError> {
        match &mut entry.record {
            Some(record) if !record.given => record.given = true,
            _ => return Ok(()),
        }
        self.write_down(entry)
    }

    /// Writes down which images its volumes are, so that the next agent does not remove them.
    pub(super) fn keep_images(&self, entry: &mut Entry) -> Result<(), PodError> {
        let volumes = self.pod.and_then(|pod| pod.spec.as_ref()).and_then(|spec| spec.volumes.as_ref());
        let held = entry.fetches.all_held();
        let of = |volume: &Volume| held.get(&view::volume_key(&volume.name)).map(|held| held.id.clone());
        let images: BTreeSet<String> = volumes.into_iter().flatten().filter_map(of).collect();
        match &mut entry.record {
            Some(record) if record.images != images => record.images = images,
            _ => return Ok(()),
        }
        self.write_down(entry)
    }

    /// Brings up to date what comes from the API, of a pod that this agent has started or an earlier one.
    async fn renew(&self, entry: &mut Entry) -> Result<(), VolumeError> {
        let next = self.with_sources(entry, async |preparing| preparing.renew().await).await?;
        match (&mut entry.volumes, next) {
            (Some(volumes), Some(next)) => volumes.refresh = next,
            (_, next) => entry.renewal = next,
        }
        Ok(())
    }

    /// Makes something of the pod's volumes while their sources are followed, so that no change is missed.
    async fn with_sources<T>(
        &self,
        entry: &mut Entry,
        make: impl AsyncFnOnce(Preparing<'_>) -> Result<T, VolumeError>,
    ) -> Result<Option<T>, VolumeError> {
        let (Some(pod), Some(record)) = (self.pod, &entry.record) else { return Ok(None) };
        let Some(spec) = &pod.spec else { return Ok(None) };
        let preparing = Preparing {
            client: &self.shared.client,
            root: &self.shared.settings.root,
            facts: self.facts(pod, record),
            spec,
            user: record.user,
            given: record.given,
            images: &entry.fetches.all_held(),
            now: self.now(),
        };
        let sources = entry.sources.take().unwrap_or_else(|| Sources::follow(self.shared, self.which, spec));
        let made = make(preparing).await;
        entry.sources = Some(sources);
        made.map(Some)
    }

    /// Brings volumes up to date whose time has come, or whose sources have changed; tells when the next time is.
    pub(super) async fn refresh(&self, entry: &mut Entry) -> Option<Duration> {
        let left = |at: jiff::Timestamp| Duration::try_from(at.duration_since(self.now())).unwrap_or_default();
        let stale = entry.sources.as_ref().is_some_and(Sources::have_changed);
        let until = |entry: &Entry| entry.volumes.as_ref().map(|all| all.refresh).or(entry.renewal);
        match until(entry) {
            Some(at) if !stale && at.is_none_or(|at| !left(at).is_zero()) => return at.map(left),
            // Nobody needs them yet, or any more.
            None if !runs(entry) => return None,
            _ => {}
        }
        if let Err(error) = self.renew(entry).await {
            tracing::warn!(error = Failure::of(&error).0, "cannot update volumes");
            return Some(LATER);
        }
        until(entry)?.map(left)
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
        let resolver = Resolver::of_machine(&self.shared.settings.resolv_conf, view::uses_host_network(spec));
        let texts = [hosts, resolver.of_pod(spec).text(), format!("{hostname}\n")];
        for ((path, _), text) in self.given().iter().zip(texts) {
            let written = std::fs::write(path, text);
            written.map_err(|error| Failure(format!("{}: {error}", path.display())))?;
        }
        Ok(())
    }
}

/// Whether a container of it runs.
fn runs(entry: &Entry) -> bool {
    let state = entry.states();
    state.is_some_and(|state| {
        state.borrow().containers.values().any(|container| matches!(container, ContainerState::Running { .. }))
    })
}

/// What is not there says nothing.
fn read(path: &std::path::Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
