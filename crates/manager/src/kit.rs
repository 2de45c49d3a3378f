//! What every controller has besides its decision, once for all of them: it is declared here, not written again.
//!
//! ```text
//! Kit::new(NAME, context)
//!     .reconciles(&sets)                          keys are those of these objects; what is remembered goes with them
//!     .owns(&pods, &sets, Orphans::Ignored)       a child wakes its owner, and fulfils what the owner expects
//!     .watch(&nodes, |change| [key])              any other object that wakes keys
//!     .owns_many(..) .watch_many(..)              the same where one key has hundreds: changes close together wake it once
//!     .needs(&classes)                            only read
//!     .run(workers, controller)                   waits for all of these caches, then observes, decides and acts
//! ```
//!
//! Guarantees:
//! - Nobody acts before the first list of every cache named here is complete, and no change after that list is lost.
//! - Changes are taken in the order of the declarations, and of keys within one: two runs of one seed are the same.
//! - What is remembered of an object ([`Remembered`], [`Expected`], [`Written`]) is never found by another object of its name.
//! - A controller shows its caches, its queue and what it remembers under `/debug/controllers/NAME`, and reports itself
//!   unhealthy when a key is worked on for longer than [`STUCK`]. One that is no kit does so with a [`Page`].

mod gathering;
mod owners;
mod page;
mod remembered;

use std::fmt::Debug;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use kube::Resource;

use crate::cache::{Cache, Changed, Key, Listed};
use crate::context::{Context, Started};
use crate::queue::Queue;
use crate::stopping::Stopping;
use crate::worker::{Next, found, work};

use gathering::Gathering;
pub use owners::Orphans;
pub use page::{Page, is_healthy};
use remembered::Remembering;
pub use remembered::{Expected, Remembered, Written};

/// Whoever works on one key for longer than this does not come back: no request takes so long.
pub const STUCK: Duration = Duration::from_secs(600);

/// Reconciles the object of a key: observes it and what belongs to it, decides, acts.
pub trait Reconciler: Send + Sync + 'static {
    /// Brings what is closer to what should be, or fails and is asked again after a while.
    fn reconcile(&self, key: &Key) -> impl Future<Output = Result<Next, kube::Error>> + Send;
}

/// A kind that a kit can watch.
pub trait Watched: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static {}

impl<T: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static> Watched for T {}

type Find = Box<dyn Fn(&Key) + Send + Sync>;

/// A controller in the making.
#[must_use = "a controller runs only after `run`"]
pub struct Kit {
    name: &'static str,
    queue: Queue<Key>,
    gathering: Gathering,
    stopping: Stopping,
    caches: Vec<Arc<dyn Listed>>,
    feeds: Vec<BoxFuture<'static, ()>>,
    remembering: Remembering,
    /// Finds the object of a key before it is reconciled.
    find: Option<Find>,
}

impl Kit {
    /// A controller that watches nothing yet, under the name that the flag `--controllers` knows.
    pub fn new(name: &'static str, context: &Context) -> Self {
        Self {
            name,
            queue: context.queue(name),
            gathering: Gathering::default(),
            stopping: context.stopping.clone(),
            caches: Vec::new(),
            feeds: Vec::new(),
            remembering: Remembering::default(),
            find: None,
        }
    }

    /// The queue, for what only an attempt can find out: that a key must be looked at once more.
    #[must_use]
    pub fn queue(&self) -> Queue<Key> {
        self.queue.clone()
    }

    /// What owners have asked for and their caches do not show yet. [`Kit::owns`] takes off it what is seen.
    #[must_use]
    pub fn expected(&self) -> Expected {
        self.remembering.expected()
    }

    /// The controller's own writes of the objects that it reconciles, until the cache shows them.
    #[must_use]
    pub fn written(&self) -> Written {
        self.remembering.written()
    }

    /// A value for each object, such as its last failure, under the name that the debug page shows.
    #[must_use]
    pub fn remembers<V: Clone + Debug + Send + 'static>(&self, what: &'static str) -> Remembered<V> {
        self.remembering.value(what)
    }

    /// The objects that are reconciled: each change of one is news for its key. What is remembered of an object is forgotten
    /// when it goes, and when another of its name is found in its place.
    pub fn reconciles<T: Watched>(mut self, objects: &Cache<T>) -> Self {
        let (found_in, remembering) = (objects.clone(), self.remembering.clone());
        self.find = Some(Box::new(move |key| match found_in.get(key) {
            Some(object) => {
                found(&*object);
                remembering.begin(key, object.meta().uid.as_deref().unwrap_or_default());
            }
            None => remembering.forget(key),
        }));
        let remembering = self.remembering.clone();
        self.watch(objects, move |change| {
            if change.new.is_none() {
                remembering.forget(&change.key);
            }
            [change.key.clone()]
        })
    }

    /// Objects whose changes are news for keys. The function may also note what it sees.
    pub fn watch<T: Watched, I: IntoIterator<Item = Key>>(
        self,
        cache: &Cache<T>,
        wakes: impl Fn(&Changed<T>) -> I + Send + 'static,
    ) -> Self {
        self.hears_of(cache, wakes).needs(cache)
    }

    /// The same for objects that one key has hundreds of, where each look reads all of them. Changes that come close together wake the
    /// key once; the first one after a rest wakes it at once.
    pub fn watch_many<T: Watched, I: IntoIterator<Item = Key>>(
        self,
        cache: &Cache<T>,
        wakes: impl Fn(&Changed<T>) -> I + Send + 'static,
    ) -> Self {
        let (queue, gathering) = (self.queue.clone(), self.gathering.clone());
        self.feed(cache, wakes, move |key| gathering.wake(&queue, key)).needs(cache)
    }

    /// The same for a kind that may not be served: its first list is not waited for.
    pub fn hears_of<T: Watched, I: IntoIterator<Item = Key>>(
        self,
        cache: &Cache<T>,
        wakes: impl Fn(&Changed<T>) -> I + Send + 'static,
    ) -> Self {
        let queue = self.queue.clone();
        self.feed(cache, wakes, move |key| queue.add(key))
    }

    fn feed<T: Watched, I: IntoIterator<Item = Key>>(
        mut self,
        cache: &Cache<T>,
        wakes: impl Fn(&Changed<T>) -> I + Send + 'static,
        wake: impl Fn(Key) + Send + 'static,
    ) -> Self {
        let watched = cache.clone();
        self.feeds.push(Box::pin(async move {
            // Begins with all that is there, so that nothing is lost between the first list and now.
            let mut changes = watched.subscribe();
            loop {
                let change = changes.next().await;
                for key in wakes(&change) {
                    wake(key);
                }
            }
        }));
        self
    }

    /// Objects that are only read: they are waited for.
    pub fn needs<T: Watched>(mut self, cache: &Cache<T>) -> Self {
        self.caches.push(Arc::new(cache.clone()));
        self
    }

    /// Anything else that runs beside the controller from when it may act, such as another source of keys.
    pub fn also(mut self, source: impl Future<Output = ()> + Send + 'static) -> Self {
        self.feeds.push(Box::pin(source));
        self
    }

    /// The controller: waits for its caches, and then works until it is asked to end.
    #[must_use]
    pub fn run(self, workers: usize, reconciler: impl Reconciler) -> Started {
        let Self { name, queue, gathering: _, stopping, caches, feeds, remembering, find } = self;
        let page = Page::of_kit(&queue, caches.clone(), remembering);
        let run = async move {
            let synced = async {
                for cache in &caches {
                    cache.synced().await;
                }
            };
            tokio::select! {
                biased;
                () = stopping.asked() => return,
                () = synced => {}
            }
            let (reconciler, find) = (&reconciler, &find);
            let work = work(name, &queue, workers, |key: Key| async move {
                if let Some(find) = find {
                    find(&key);
                }
                reconciler.reconcile(&key).await
            });
            let feed = async {
                join_all(feeds).await;
                pending::<()>().await;
            };
            tokio::select! {
                biased;
                () = work => {}
                () = feed => {}
            }
        };
        page.of(Started::new(run))
    }
}
