//! The caches of a process: one per kind and selection, made when the first controller asks for it, filled when all have
//! asked.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use kube::core::ApiResource;
use kube::{Client, Resource};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use serde::de::DeserializeOwned;

use crate::cache::{Cache, Index};
use crate::context::Chance;
use crate::watching::{Patience, watch};

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// All caches. Clones share them.
#[derive(Clone)]
pub struct Caches {
    client: Client,
    chance: Chance,
    unreadable: Family<Kind, Counter>,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    /// By kind, label selector and field selector.
    caches: BTreeMap<(TypeId, String, String), Box<dyn Any + Send>>,
    /// Watches that were asked for and do not run yet.
    waiting: Vec<Task>,
}

/// Of which kind objects could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: String,
}

impl Caches {
    /// No cache yet.
    #[must_use]
    pub fn new(client: Client, chance: Chance) -> Self {
        Self { client, chance, unreadable: Family::default(), shared: Arc::default() }
    }

    /// The client that they are read with, for the rare look past them. It has the program's own rights, not those of
    /// any one controller.
    #[must_use]
    pub fn reader(&self) -> &Client {
        &self.client
    }

    /// Shows in a registry what could not be read.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("cache_unreadable_objects", "Objects that could not be read", self.unreadable.clone());
    }

    /// The cache of a kind, in all namespaces, with these indexes.
    #[must_use]
    pub fn of<T>(&self, indexes: &[(&'static str, Index<T>)]) -> Cache<T>
    where
        T: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        self.chosen("", "", indexes)
    }

    /// The cache of those objects of a kind that a label selector names.
    #[must_use]
    pub fn selected<T>(&self, labels: &str, indexes: &[(&'static str, Index<T>)]) -> Cache<T>
    where
        T: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        self.chosen(labels, "", indexes)
    }

    /// The cache of those objects of a kind that a field selector names, such as `metadata.name=a`.
    #[must_use]
    pub fn with_fields<T>(&self, fields: &str, indexes: &[(&'static str, Index<T>)]) -> Cache<T>
    where
        T: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        self.chosen("", fields, indexes)
    }

    fn chosen<T>(&self, labels: &str, fields: &str, indexes: &[(&'static str, Index<T>)]) -> Cache<T>
    where
        T: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let which = (TypeId::of::<T>(), labels.to_owned(), fields.to_owned());
        let known = shared.caches.get(&which).and_then(|cache| cache.downcast_ref::<Cache<T>>());
        if let Some(known) = known {
            return known.with_indexes(indexes.iter().copied());
        }
        let unreadable = self.unreadable.get_or_create_owned(&Kind { kind: T::kind(&()).into_owned() });
        let cache = Cache::new(indexes.iter().copied(), unreadable);
        shared.caches.insert(which, Box::new(cache.clone()));
        let resource = ApiResource::erase::<T>(&());
        let events = watch(self.client.clone(), &resource, labels, fields, Patience::new(self.chance.clone()));
        let filled = cache.clone();
        shared.waiting.push(Box::pin(async move { filled.follow(&resource.kind, events).await }));
        cache
    }

    /// Runs the watches of all caches that were asked for so far.
    pub async fn run(&self) {
        let waiting = std::mem::take(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner).waiting);
        // Only the watch that has something to tell is looked at, not all of them each time.
        let mut running: FuturesUnordered<Task> = waiting.into_iter().collect();
        while running.next().await.is_some() {}
    }
}
