//! The caches of a process: one per kind, made when the first controller asks for it, filled when all have asked.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join_all;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use crate::cache::{Cache, Index};

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// All caches. Clones share them.
#[derive(Clone)]
pub struct Caches {
    client: Client,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    caches: HashMap<TypeId, Box<dyn Any + Send>>,
    /// Watches that were asked for and do not run yet.
    waiting: Vec<Task>,
}

impl Caches {
    /// No cache yet.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, shared: Arc::default() }
    }

    /// The cache of a kind, in all namespaces. The indexes are those of whoever asks first: a kind's indexes belong to
    /// the kind, and are the same everywhere.
    #[must_use]
    pub fn of<T>(&self, indexes: &[(&'static str, Index<T>)]) -> Cache<T>
    where
        T: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let known = shared.caches.get(&TypeId::of::<T>()).and_then(|cache| cache.downcast_ref::<Cache<T>>());
        if let Some(known) = known {
            return known.clone();
        }
        let cache = Cache::new(indexes.iter().copied());
        shared.caches.insert(TypeId::of::<T>(), Box::new(cache.clone()));
        let (api, filled) = (Api::<T>::all(self.client.clone()), cache.clone());
        shared.waiting.push(Box::pin(async move {
            let config = watcher::Config::default().streaming_lists();
            filled.follow(watcher(api, config).default_backoff()).await;
        }));
        cache
    }

    /// Runs the watches of all caches that were asked for so far.
    pub async fn run(&self) {
        let waiting = std::mem::take(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner).waiting);
        join_all(waiting).await;
    }
}
