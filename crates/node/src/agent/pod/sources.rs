//! Config maps and secrets that volumes come from: whoever mounts one hears when it changes.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, PodSpec, Secret};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use manager::errors::chain;
use manager::queue::Queue;
use serde::de::DeserializeOwned;

use super::Ends;
use crate::agent::{Shared, Which};

/// The sources of one pod's volumes, followed for as long as this lives.
pub(super) struct Sources {
    changed: Arc<AtomicBool>,
    #[expect(dead_code, reason = "held so that the task ends with the pod")]
    task: Option<Ends>,
}

impl Sources {
    pub(super) fn follow(shared: &Arc<Shared>, which: &Which, spec: &PodSpec) -> Self {
        let changed = Arc::new(AtomicBool::new(false));
        let (maps, secrets) = names(spec);
        if maps.is_empty() && secrets.is_empty() {
            return Self { changed, task: None };
        }
        let listener = Listener {
            client: shared.client.clone(),
            queue: shared.queue.clone(),
            which: which.clone(),
            changed: changed.clone(),
        };
        let task = tokio::spawn(async move {
            let maps = join_all(maps.iter().map(|name| listener.listen::<ConfigMap>(name)));
            let secrets = join_all(secrets.iter().map(|name| listener.listen::<Secret>(name)));
            tokio::join!(maps, secrets);
        });
        Self { changed, task: Some(Ends(task.abort_handle())) }
    }

    /// Whether any has changed since the last time of asking.
    pub(super) fn have_changed(&self) -> bool {
        self.changed.swap(false, Ordering::Relaxed)
    }
}

struct Listener {
    client: Client,
    queue: Queue<Which>,
    which: Which,
    changed: Arc<AtomicBool>,
}

impl Listener {
    async fn listen<T>(&self, name: &str)
    where
        T: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let api: Api<T> = Api::namespaced(self.client.clone(), &self.which.namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut events = std::pin::pin!(watcher(api, config).default_backoff());
        // What it is at first, the volume was made from; or it changed in between, and is read once more.
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Apply(_) | Event::Delete(_) | Event::InitDone) => {
                    self.changed.store(true, Ordering::Relaxed);
                    self.queue.add(self.which.clone());
                }
                Ok(Event::Init | Event::InitApply(_)) => {}
                Err(error) => {
                    tracing::debug!(name, error = chain(&error), "cannot watch the source of a volume; retrying");
                }
            }
        }
    }
}

/// Names of config maps, and of secrets.
fn names(spec: &PodSpec) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut maps, mut secrets) = (BTreeSet::new(), BTreeSet::new());
    for volume in spec.volumes.iter().flatten() {
        maps.extend(volume.config_map.iter().map(|source| source.name.clone()));
        secrets.extend(volume.secret.iter().filter_map(|source| source.secret_name.clone()));
        let projected = volume.projected.iter().flat_map(|source| source.sources.iter().flatten());
        for source in projected {
            maps.extend(source.config_map.iter().map(|source| source.name.clone()));
            secrets.extend(source.secret.iter().map(|source| source.name.clone()));
        }
    }
    (maps, secrets)
}
