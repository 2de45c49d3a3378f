//! One watch per kind and selection for the whole process, however many controllers read it.
//!
//! Guarantees:
//! - Objects are in the order of their keys; an index is in the order of its values.
//! - The name of an index means what whoever asked for it said, whatever others call theirs.
//! - A subscriber hears of every object that changed since it last asked, deletions included, with the object as it was
//!   then and as it is now. Changes of one object that come faster than it asks are one change: what a subscriber holds
//!   is bounded by the number of objects, and nobody waits for it.
//! - An object that cannot be read is skipped and counted; the watch goes on.

mod held;
mod key;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use kube::Resource as _;
use kube::runtime::watcher;
use prometheus_client::metrics::counter::Counter;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use crate::errors::{chain, is_late};
use crate::once::Once;
use crate::watching::{Events, Sent};
use held::{Held, Warm};

pub use held::{Keeping, Slim};
pub use key::{Index, Key, controller_of, labels_of, namespace_of, owners_of};

/// A change: an object as a subscriber last saw it, and as it is now.
#[derive(Debug)]
pub struct Changed<T> {
    pub key: Key,
    /// Before; none, if it is new to the subscriber.
    pub old: Option<Arc<T>>,
    /// Now; none, if it is gone.
    pub new: Option<Arc<T>>,
}

/// What is known of one kind. Clones share it, and know the same names of indexes.
pub struct Cache<T> {
    shared: Arc<Shared<T>>,
    named: Arc<BTreeMap<&'static str, usize>>,
}

impl<T> Clone for Cache<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), named: self.named.clone() }
    }
}

struct Shared<T> {
    state: Mutex<State<T>>,
    warm: Warm<T>,
    synced: Once,
    unreadable: Counter,
}

struct State<T> {
    objects: BTreeMap<Key, Held<T>>,
    keeping: Keeping<T>,
    indexes: Vec<Indexed<T>>,
    subscribers: Vec<Weak<Pending<T>>>,
    /// Keys that the list in progress has named so far; what it does not name is gone.
    listing: Option<BTreeSet<Key>>,
}

/// An index, and what it has found.
struct Indexed<T> {
    index: Index<T>,
    found: BTreeMap<String, BTreeSet<Key>>,
}

impl<T> Indexed<T> {
    fn changed(&mut self, key: &Key, old: Option<&T>, new: Option<&T>) {
        let values = |object: Option<&T>| object.map(self.index).unwrap_or_default();
        let (before, after) = (values(old), values(new));
        // Few changes are about what an object is found by.
        if before != after {
            self.remove(key, before);
            self.add(key, after);
        }
    }

    fn add(&mut self, key: &Key, values: Vec<String>) {
        for value in values {
            self.found.entry(value).or_default().insert(key.clone());
        }
    }

    fn remove(&mut self, key: &Key, values: Vec<String>) {
        for value in values {
            if let Some(keys) = self.found.get_mut(&value) {
                keys.remove(key);
                if keys.is_empty() {
                    self.found.remove(&value);
                }
            }
        }
    }
}

/// What a subscriber has not asked for yet.
struct Pending<T> {
    changes: Mutex<BTreeMap<Key, Option<Arc<T>>>>,
    changed: Notify,
}

/// Hears of changes.
pub struct Subscriber<T> {
    cache: Cache<T>,
    pending: Arc<Pending<T>>,
}

impl<T: kube::ResourceExt + Debug + Send + Sync + 'static> Cache<T> {
    /// An empty cache with named indexes, and where objects are counted that cannot be read.
    #[must_use]
    pub fn new(indexes: impl IntoIterator<Item = (&'static str, Index<T>)>, unreadable: Counter) -> Self {
        Self::keeping(Keeping::whole(), indexes, unreadable)
    }

    /// The same, with objects held in some way.
    #[must_use]
    pub(crate) fn keeping(
        keeping: Keeping<T>,
        indexes: impl IntoIterator<Item = (&'static str, Index<T>)>,
        unreadable: Counter,
    ) -> Self {
        let (objects, indexed) = (BTreeMap::new(), Vec::new());
        let state = State { objects, keeping, indexes: indexed, subscribers: Vec::new(), listing: None };
        let shared = Shared { state: Mutex::new(state), warm: Warm::default(), synced: Once::default(), unreadable };
        Self { shared: Arc::new(shared), named: Arc::default() }.with_indexes(indexes)
    }

    /// Another reader wants its objects so: whoever looks at many at once decides for all.
    pub(crate) fn is_also_read(&self, keeping: Keeping<T>) {
        if !keeping.packs() {
            self.state().keeping = keeping;
        }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same objects, found by these indexes. Equal ones are shared.
    pub(crate) fn with_indexes(&self, indexes: impl IntoIterator<Item = (&'static str, Index<T>)>) -> Self {
        let mut state = self.state();
        let State { objects, indexes: known, .. } = &mut *state;
        let mut place = |index: Index<T>| {
            let same = known.iter().position(|one| std::ptr::fn_addr_eq(one.index, index));
            same.unwrap_or_else(|| {
                let mut new = Indexed { index, found: BTreeMap::new() };
                for (key, held) in &*objects {
                    new.changed(key, None, self.shared.warm.read(held).as_deref());
                }
                known.push(new);
                known.len() - 1
            })
        };
        let named = indexes.into_iter().map(|(name, index)| (name, place(index))).collect();
        Self { shared: self.shared.clone(), named: Arc::new(named) }
    }

    /// Follows a watch until it ends; errors are the watcher's to retry.
    pub(crate) async fn follow(&self, kind: &str, mut events: Events)
    where
        T: DeserializeOwned,
    {
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.take(event),
                Err(error) if is_late(&error) => tracing::debug!(kind, error = chain(&error), "restarted a watch"),
                Err(error) => tracing::warn!(kind, error = chain(&error), "a watch was interrupted"),
            }
        }
    }

    /// Takes in an event whose object may be bad. What was known of a bad object stays: it is there, and nobody knows how
    /// it is.
    fn take(&self, event: watcher::Event<Sent>)
    where
        T: DeserializeOwned,
    {
        let sent = match event {
            watcher::Event::Init => return self.apply(watcher::Event::Init),
            watcher::Event::InitDone => return self.apply(watcher::Event::InitDone),
            watcher::Event::InitApply(sent) | watcher::Event::Apply(sent) => sent,
            watcher::Event::Delete(sent) => {
                self.put(&mut self.state(), &Key::named(sent.meta()), None);
                return;
            }
        };
        match sent.read::<T>() {
            Ok(object) => {
                let (key, mut state) = (Key::of(&object), self.state());
                let held = state.keeping.hold(object, sent);
                self.came(&mut state, &key, held);
            }
            Err(error) => self.skip(Key::named(sent.meta()), &error),
        }
    }

    /// Leaves an object out that cannot be read.
    fn skip(&self, key: Key, error: &serde_json::Error) {
        self.shared.unreadable.inc();
        tracing::warn!(
            namespace = key.namespace,
            name = key.name,
            error = %error,
            "skipped an object that cannot be read"
        );
        if let Some(listing) = &mut self.state().listing {
            listing.insert(key);
        }
    }

    /// Takes in one event of a watch.
    pub fn apply(&self, event: watcher::Event<T>) {
        let mut state = self.state();
        match event {
            watcher::Event::Init => state.listing = Some(BTreeSet::new()),
            watcher::Event::InitApply(object) | watcher::Event::Apply(object) => {
                self.came(&mut state, &Key::of(&object), Held::Whole(Arc::new(object)));
            }
            watcher::Event::InitDone => {
                let listed = state.listing.take().unwrap_or_default();
                let gone: Vec<Key> = state.objects.keys().filter(|key| !listed.contains(key)).cloned().collect();
                for key in gone {
                    self.put(&mut state, &key, None);
                }
                self.shared.synced.happen();
            }
            watcher::Event::Delete(object) => self.put(&mut state, &Key::of(&object), None),
        }
    }

    /// A list, if there is one, has named it.
    fn came(&self, state: &mut State<T>, key: &Key, held: Held<T>) {
        if let Some(listing) = &mut state.listing {
            listing.insert(key.clone());
        }
        self.put(state, key, Some(held));
    }

    fn put(&self, state: &mut State<T>, key: &Key, new: Option<Held<T>>) {
        // A list repeats what is known; only what differs is a change.
        let known = state.objects.get(key);
        let is_news = known.map(Held::version) != new.as_ref().map(Held::version);
        let old = known.filter(|_| is_news).and_then(Held::last_read);
        let object = new.as_ref().and_then(|held| self.shared.warm.came(held));
        match new {
            Some(held) => drop(state.objects.insert(key.clone(), held)),
            None => drop(state.objects.remove(key)),
        }
        if !is_news {
            return;
        }
        for index in &mut state.indexes {
            index.changed(key, old.as_deref(), object.as_deref());
        }
        state.subscribers.retain(|subscriber| match subscriber.upgrade() {
            Some(pending) => {
                // The first version counts: the subscriber has not seen those in between.
                let mut changes = pending.changes.lock().unwrap_or_else(PoisonError::into_inner);
                changes.entry(key.clone()).or_insert_with(|| old.clone());
                pending.changed.notify_one();
                true
            }
            None => false,
        });
    }

    /// An object.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<T>> {
        let held = self.state().objects.get(key).cloned();
        held.and_then(|held| self.shared.warm.read(&held))
    }

    /// All objects, in the order of their keys.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<T>> {
        let all: Vec<Held<T>> = self.state().objects.values().cloned().collect();
        all.iter().filter_map(|held| self.shared.warm.read(held)).collect()
    }

    /// Nothing happens any more: what is only there to be read again soon is forgotten.
    pub(crate) fn cool(&self) {
        self.shared.warm.cool();
    }

    /// The objects that an index has under a value. The index is one of those that this cache was asked for with.
    #[must_use]
    pub fn find(&self, index: &str, value: &str) -> Vec<Arc<T>> {
        debug_assert!(self.named.contains_key(index), "nobody asked for the index {index}");
        let state = self.state();
        let index = self.named.get(index).and_then(|place| state.indexes.get(*place));
        let keys = index.and_then(|index| index.found.get(value));
        let all: Vec<Held<T>> = keys.into_iter().flatten().filter_map(|key| state.objects.get(key).cloned()).collect();
        drop(state);
        all.iter().filter_map(|held| self.shared.warm.read(held)).collect()
    }

    /// The keys of the objects that an index has under a value: nobody has to read the objects for them.
    #[must_use]
    pub fn keys(&self, index: &str, value: &str) -> Vec<Key> {
        debug_assert!(self.named.contains_key(index), "nobody asked for the index {index}");
        let state = self.state();
        let index = self.named.get(index).and_then(|place| state.indexes.get(*place));
        index.and_then(|index| index.found.get(value)).into_iter().flatten().cloned().collect()
    }

    /// Whether the first list is complete.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.shared.synced.has_happened()
    }

    /// Waits for the first list.
    pub async fn synced(&self) {
        self.shared.synced.wait().await;
    }

    /// How many objects could not be read.
    #[must_use]
    pub fn unreadable(&self) -> u64 {
        self.shared.unreadable.get()
    }

    /// Hears of all objects that are there, and then of changes.
    #[must_use]
    pub fn subscribe(&self) -> Subscriber<T> {
        let mut state = self.state();
        let changes = state.objects.keys().map(|key| (key.clone(), None)).collect();
        let pending = Arc::new(Pending { changes: Mutex::new(changes), changed: Notify::new() });
        state.subscribers.push(Arc::downgrade(&pending));
        drop(state);
        Subscriber { cache: self.clone(), pending }
    }
}

/// A cache of any kind, as far as its being filled goes.
pub(crate) trait Listed: Send + Sync {
    fn kind(&self) -> String;
    fn count(&self) -> usize;
    fn has_synced(&self) -> bool;
    fn synced(&self) -> BoxFuture<'_, ()>;
}

impl<T: kube::Resource<DynamicType = ()> + Debug + Send + Sync + 'static> Listed for Cache<T>
where
    Self: Clone,
{
    fn kind(&self) -> String {
        T::kind(&()).into_owned()
    }

    fn count(&self) -> usize {
        self.state().objects.len()
    }

    fn has_synced(&self) -> bool {
        self.shared.synced.has_happened()
    }

    fn synced(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.shared.synced.wait())
    }
}

impl<T: kube::ResourceExt + Debug + Send + Sync + 'static> Subscriber<T> {
    /// The next change, the smallest key first.
    pub async fn next(&mut self) -> Changed<T> {
        loop {
            let changed = self.pending.changed.notified();
            let first = self.pending.changes.lock().unwrap_or_else(PoisonError::into_inner).pop_first();
            match first {
                Some((key, old)) => {
                    let new = self.cache.get(&key);
                    // It came and went, or went and came back as it was: nothing to hear.
                    let version = |object: &Arc<T>| (object.uid(), object.resource_version());
                    if old.as_ref().map(version) != new.as_ref().map(version) {
                        return Changed { key, old, new };
                    }
                }
                None => changed.await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use k8s_openapi::api::core::v1::ConfigMap;
    use proptest::prelude::*;

    use super::*;

    fn map(name: &str, version: u32, value: &str) -> ConfigMap {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.to_owned());
        map.metadata.namespace = Some("n".to_owned());
        map.metadata.resource_version = Some(version.to_string());
        map.data = Some(BTreeMap::from([("x".to_owned(), value.to_owned())]));
        map
    }

    fn by_value(map: &ConfigMap) -> Vec<String> {
        map.data.iter().flat_map(BTreeMap::values).cloned().collect()
    }

    fn heard(subscriber: &mut Subscriber<ConfigMap>) -> Vec<(String, Option<String>, Option<String>)> {
        let mut all = Vec::new();
        while let Some(Changed { key, old, new }) = subscriber.next().now_or_never() {
            let version =
                |object: Option<Arc<ConfigMap>>| object.and_then(|object| object.metadata.resource_version.clone());
            all.push((key.name, version(old), version(new)));
        }
        all
    }

    fn by_first_letter(map: &ConfigMap) -> Vec<String> {
        by_value(map).into_iter().filter_map(|value| value.get(..1).map(str::to_owned)).collect()
    }

    /// Controllers that know nothing of each other share a cache.
    #[test]
    fn two_may_call_different_indexes_by_one_name() {
        let whole = Cache::new([("of", by_value as Index<ConfigMap>)], Counter::default());
        whole.apply(watcher::Event::Apply(map("a", 1, "one")));
        let letters = whole.with_indexes([("of", by_first_letter as Index<ConfigMap>)]);
        whole.apply(watcher::Event::Apply(map("b", 2, "other")));
        let names = |cache: &Cache<ConfigMap>, value: &str| -> Vec<String> {
            cache.find("of", value).iter().filter_map(|map| map.metadata.name.clone()).collect()
        };
        assert_eq!((names(&whole, "one"), names(&whole, "o")), (vec!["a".to_owned()], vec![]));
        assert_eq!((names(&letters, "one"), names(&letters, "o")), (vec![], vec!["a".to_owned(), "b".to_owned()]));
        whole.apply(watcher::Event::Delete(map("a", 3, "one")));
        assert_eq!((names(&whole, "one"), names(&letters, "o")), (vec![], vec!["b".to_owned()]));
        // An equal one is not made twice.
        let same = letters.with_indexes([("other", by_value as Index<ConfigMap>)]);
        assert_eq!(same.find("other", "other").len(), 1);
        assert_eq!(whole.state().indexes.len(), 2);
    }

    #[test]
    fn a_slow_subscriber_hears_the_first_and_the_last_of_many_changes() {
        let cache = Cache::new([], Counter::default());
        cache.apply(watcher::Event::Apply(map("a", 1, "x")));
        let mut subscriber = cache.subscribe();
        assert_eq!(heard(&mut subscriber), [("a".to_owned(), None, Some("1".to_owned()))]);
        for version in 2..100 {
            cache.apply(watcher::Event::Apply(map("a", version, "x")));
        }
        cache.apply(watcher::Event::Apply(map("b", 100, "x")));
        cache.apply(watcher::Event::Delete(map("b", 101, "x")));
        assert_eq!(heard(&mut subscriber), [("a".to_owned(), Some("1".to_owned()), Some("99".to_owned()))]);
    }

    #[test]
    fn what_a_new_list_does_not_name_is_gone() {
        let cache = Cache::new([], Counter::default());
        for name in ["a", "b"] {
            cache.apply(watcher::Event::Apply(map(name, 1, "x")));
        }
        let mut subscriber = cache.subscribe();
        heard(&mut subscriber);
        cache.apply(watcher::Event::Init);
        cache.apply(watcher::Event::InitApply(map("b", 1, "x")));
        assert!(!cache.has_synced());
        cache.apply(watcher::Event::InitDone);
        assert!(cache.has_synced());
        assert_eq!(heard(&mut subscriber), [("a".to_owned(), Some("1".to_owned()), None)]);
    }

    proptest! {
        /// Indexes and subscribers against what a look at all objects tells.
        #[test]
        fn indexes_and_subscribers_agree_with_the_objects(
            steps in prop::collection::vec((0_usize..3, prop::option::of("[xy]"), any::<bool>()), 0..40),
        ) {
            let names = ["a", "b", "c"];
            let cache = Cache::new([("value", by_value as Index<ConfigMap>)], Counter::default());
            let mut subscriber = cache.subscribe();
            let mut believed: BTreeMap<String, String> = BTreeMap::new();
            for (version, (name, value, listens)) in (1_u32..).zip(steps) {
                let name = names[name];
                match value {
                    Some(value) => cache.apply(watcher::Event::Apply(map(name, version, &value))),
                    None => cache.apply(watcher::Event::Delete(map(name, version, ""))),
                }
                if listens {
                    for (name, old, new) in heard(&mut subscriber) {
                        prop_assert_eq!(believed.get(&name), old.as_ref(), "what was before is what it heard last");
                        match new {
                            Some(version) => believed.insert(name, version),
                            None => believed.remove(&name),
                        };
                    }
                    let held: BTreeMap<String, String> = cache
                        .all()
                        .iter()
                        .filter_map(|map| Some((map.metadata.name.clone()?, map.metadata.resource_version.clone()?)))
                        .collect();
                    prop_assert_eq!(&believed, &held);
                }
                for value in ["x", "y"] {
                    let slow: Vec<_> = cache.all().into_iter().filter(|map| by_value(map).iter().any(|one| one == value)).collect();
                    prop_assert_eq!(cache.find("value", value), slow);
                }
            }
        }
    }
}
