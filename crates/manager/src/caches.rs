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

use crate::cache::{Cache, Index, Keeping};
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

/// A kind that can be cached.
pub trait Cached: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static {}

impl<T: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static> Cached for T {}

/// What a cache is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Which {
    kind: TypeId,
    labels: String,
    fields: String,
    is_slim: bool,
}

#[derive(Default)]
struct Shared {
    caches: BTreeMap<Which, Box<dyn Any + Send>>,
    /// Each forgets of one cache what need not be held.
    cooling: Vec<Box<dyn Fn() + Send>>,
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
    pub fn of<T: Cached>(&self, indexes: &[(&'static str, Index<T>)]) -> Cache<T> {
        self.kept("", Keeping::whole(), indexes)
    }

    /// The cache of those objects of a kind that a label selector names.
    #[must_use]
    pub fn selected<T: Cached>(&self, labels: &str, indexes: &[(&'static str, Index<T>)]) -> Cache<T> {
        self.kept(labels, Keeping::whole(), indexes)
    }

    /// The cache of those objects of a kind that a field selector names, such as `metadata.name=a`.
    #[must_use]
    pub fn with_fields<T: Cached>(&self, fields: &str, indexes: &[(&'static str, Index<T>)]) -> Cache<T> {
        self.chosen("", fields, Keeping::whole(), indexes)
    }

    /// The cache of those objects of a kind that a label selector names (all, if it is empty), held in some way. Those who
    /// want everything and those who want less have caches of their own; if one of several readers wants them as they were
    /// read, all have them so.
    #[must_use]
    pub fn kept<T: Cached>(&self, labels: &str, keeping: Keeping<T>, indexes: &[(&'static str, Index<T>)]) -> Cache<T> {
        self.chosen(labels, "", keeping, indexes)
    }

    fn chosen<T: Cached>(
        &self,
        labels: &str,
        fields: &str,
        keeping: Keeping<T>,
        indexes: &[(&'static str, Index<T>)],
    ) -> Cache<T> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let which = Which {
            kind: TypeId::of::<T>(),
            labels: labels.to_owned(),
            fields: fields.to_owned(),
            is_slim: keeping.slim.is_some(),
        };
        let known = shared.caches.get(&which).and_then(|cache| cache.downcast_ref::<Cache<T>>());
        if let Some(known) = known {
            known.is_also_read(keeping);
            return known.with_indexes(indexes.iter().copied());
        }
        let unreadable = self.unreadable.get_or_create_owned(&Kind { kind: T::kind(&()).into_owned() });
        let cache = Cache::keeping(keeping, indexes.iter().copied(), unreadable);
        shared.caches.insert(which, Box::new(cache.clone()));
        let cooled = cache.clone();
        shared.cooling.push(Box::new(move || cooled.cool()));
        let resource = ApiResource::erase::<T>(&());
        let events = watch(self.client.clone(), &resource, labels, fields, Patience::new(self.chance.clone()));
        let filled = cache.clone();
        shared.waiting.push(Box::pin(async move { filled.follow(&resource.kind, events).await }));
        cache
    }

    /// Forgets what is only there to be read again soon. Nothing but time is lost by it; a program calls it now and then.
    pub fn cool(&self) {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.cooling.iter().for_each(|cool| cool());
    }

    /// Runs the watches of all caches that were asked for so far.
    pub async fn run(&self) {
        let waiting = std::mem::take(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner).waiting);
        // Only the watch that has something to tell is looked at, not all of them each time.
        let mut running: FuturesUnordered<Task> = waiting.into_iter().collect();
        while running.next().await.is_some() {}
    }
}
