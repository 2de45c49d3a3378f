//! DataVolumes, where the cluster has such a kind. It may come later; until then nobody asks for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use api::data_volume::DataVolume;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use manager::cache::{Cache, controller_of, namespace_of};
use manager::caches::Caches;
use manager::context::Context;

const DEFINITION: &str = "datavolumes.cdi.kubevirt.io";

/// What is known of them. Clones share it.
#[derive(Clone)]
pub(crate) struct DataVolumes {
    definitions: Cache<CustomResourceDefinition>,
    caches: Caches,
    volumes: Cache<DataVolume>,
    runs: Arc<AtomicBool>,
}

/// Where the controllers of a program find what they share.
#[derive(Clone, Default)]
pub(crate) struct Shared(Arc<OnceLock<DataVolumes>>);

impl Shared {
    /// Made by the first that asks.
    pub(crate) fn data_volumes(&self, context: &Context) -> DataVolumes {
        self.0.get_or_init(|| DataVolumes::new(context)).clone()
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl DataVolumes {
    fn new(context: &Context) -> Self {
        let definitions = context.caches.with_fields(&format!("metadata.name={DEFINITION}"), &[]);
        // Caches of its own: these start when there is something to watch.
        let caches = Caches::new(context.caches.reader().clone(), context.chance.clone());
        let volumes = caches.of(&[("namespace", namespace_of), ("controller", controller_of)]);
        Self { definitions, caches, volumes, runs: Arc::default() }
    }

    /// Whether the cluster has the kind.
    pub(crate) fn are_served(&self) -> bool {
        self.definitions.all().iter().any(|definition| is_established(definition))
    }

    /// Those of a namespace; none where the kind is not served, or nobody knows yet what there is.
    pub(crate) fn of(&self, namespace: &str) -> Option<Vec<Arc<DataVolume>>> {
        (self.are_served() && self.volumes.has_synced()).then(|| self.volumes.find("namespace", namespace))
    }

    /// Waits until it is known what there is, where the kind is served.
    pub(crate) async fn known(&self) {
        if self.are_served() {
            self.volumes.synced().await;
        }
    }

    pub(crate) fn cache(&self) -> &Cache<DataVolume> {
        &self.volumes
    }

    /// Watches as soon as there is something to watch. Whoever comes second only waits.
    pub(crate) async fn run(&self) {
        if self.runs.swap(true, Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        let mut changes = self.definitions.subscribe();
        while !self.are_served() {
            changes.next().await;
        }
        tracing::info!("the API server now serves DataVolumes");
        self.caches.run().await;
        // The watches end only with the program.
        std::future::pending::<()>().await;
    }
}

pub(crate) fn is_established(definition: &CustomResourceDefinition) -> bool {
    let conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
}
