//! The cluster's configuration, followed live: whatever the KubeVirt object says now.

use std::sync::{Arc, Mutex, PoisonError};

use api::kubevirt::KubeVirt;
use kube::ResourceExt as _;
use manager::cache::{Cache, Subscriber};
use manager::context::Context;
use virt_rules::config::ClusterConfig;

/// What the KubeVirt object says. Clones share it.
#[derive(Clone)]
pub(crate) struct Configuration {
    objects: Cache<KubeVirt>,
    read: Arc<Mutex<Option<Read>>>,
}

/// An object that was read, so that it is read once.
struct Read {
    version: Option<String>,
    config: Arc<ClusterConfig>,
}

impl Configuration {
    pub(crate) fn new(context: &Context) -> Self {
        Self { objects: context.caches.of(&[]), read: Arc::default() }
    }

    pub(crate) async fn synced(&self) {
        self.objects.synced().await;
    }

    /// The objects that say it; there should be one.
    pub(crate) fn objects(&self) -> &Cache<KubeVirt> {
        &self.objects
    }

    /// What holds now. Without an object, the defaults; with several, the oldest counts, and admission allows no second.
    pub(crate) fn current(&self) -> Arc<ClusterConfig> {
        let object = self.objects.all().into_iter().min_by_key(|one| (one.creation_timestamp(), one.uid()));
        let version = object.as_ref().map(|object| object.resource_version().unwrap_or_default());
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(read) = read.as_ref().filter(|read| read.version == version) {
            return read.config.clone();
        }
        let config = Arc::new(ClusterConfig::new(object.as_deref()));
        for problem in config.problems() {
            tracing::warn!(problem, "the KubeVirt object has an invalid configuration");
        }
        *read = Some(Read { version, config: config.clone() });
        config
    }

    /// Hears of changes.
    pub(crate) fn subscribe(&self) -> Changes {
        Changes(self.objects.subscribe())
    }
}

/// Hears of changes of the configuration.
pub(crate) struct Changes(Subscriber<KubeVirt>);

impl Changes {
    /// Waits for the next.
    pub(crate) async fn changed(&mut self) {
        self.0.next().await;
    }
}
