//! How a cache holds its objects: as they were read, or as the text that was sent. An object that was read takes ten times its
//! text, and most of those of a large cluster are looked at once an hour.
//!
//! Guarantees:
//! - Whoever asks for an object is given the same, however it is held.
//! - No more than [`WARM`] objects of a cache are both text and object.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::watching::Sent;

/// Objects of one cache that were read last, and stay so: what has just changed is about to be looked at, by several.
const WARM: usize = 64;

/// A kind of which no reader of [slim caches](Keeping::slim) reads everything.
pub trait Slim {
    /// Drops what nobody reads. The object may still be written with a patch, but no longer as a whole.
    fn slim(&mut self);
}

/// How the objects of a cache are held. All that differs is what they take: memory, or time when they are asked for.
pub struct Keeping<T> {
    /// Drops on arrival what nobody reads.
    pub(crate) slim: Option<fn(&mut T)>,
    pack: Pack<T>,
}

#[derive(Debug)]
enum Pack<T> {
    /// As they were read: for those who look at many at once.
    No,
    /// As they were sent.
    Sent,
    /// As they are without what was dropped.
    Written(fn(&T) -> Option<String>),
}

impl<T> Keeping<T> {
    /// As they were read.
    #[must_use]
    pub fn whole() -> Self {
        Self { slim: None, pack: Pack::No }
    }

    /// As text, for those who look at one or a few at a time.
    #[must_use]
    pub fn packed() -> Self {
        Self { slim: None, pack: Pack::Sent }
    }

    /// Without what nobody reads.
    #[must_use]
    pub fn slim() -> Self
    where
        T: Slim,
    {
        Self { slim: Some(T::slim), pack: Pack::No }
    }

    /// As text without what nobody reads.
    #[must_use]
    pub fn slim_and_packed() -> Self
    where
        T: Slim + Serialize,
    {
        Self { slim: Some(T::slim), pack: Pack::Written(|object| serde_json::to_string(object).ok()) }
    }

    pub(crate) fn packs(&self) -> bool {
        !matches!(self.pack, Pack::No)
    }

    /// An object as it is to be held.
    pub(super) fn hold(&self, mut object: T, sent: Sent) -> Held<T>
    where
        T: Resource + DeserializeOwned,
    {
        if let Some(slim) = self.slim {
            slim(&mut object);
        }
        let text = match self.pack {
            Pack::No => None,
            Pack::Sent => Some(sent.into_text()),
            Pack::Written(write) => write(&object).map(String::into_boxed_str),
        };
        let object = Arc::new(object);
        match text {
            None => Held::Whole(object),
            Some(text) => {
                let read = |text: &str| serde_json::from_str(text).ok();
                let version = object.meta().resource_version.clone();
                Held::Packed(Arc::new(Packed { version, text, read, object: Mutex::new(Some(object)) }))
            }
        }
    }
}

/// One object.
#[derive(Debug)]
pub(super) enum Held<T> {
    Whole(Arc<T>),
    Packed(Arc<Packed<T>>),
}

impl<T> Clone for Held<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Whole(object) => Self::Whole(object.clone()),
            Self::Packed(packed) => Self::Packed(packed.clone()),
        }
    }
}

impl<T: Resource> Held<T> {
    pub(super) fn version(&self) -> Option<&str> {
        match self {
            Self::Whole(object) => object.meta().resource_version.as_deref(),
            Self::Packed(packed) => packed.version.as_deref(),
        }
    }
}

impl<T> Held<T> {
    /// What is about to be replaced: it need not stay warm.
    pub(super) fn last_read(&self) -> Option<Arc<T>> {
        match self {
            Self::Whole(object) => Some(object.clone()),
            Self::Packed(packed) => {
                let known = locked(&packed.object).take();
                known.or_else(|| (packed.read)(&packed.text).map(Arc::new))
            }
        }
    }
}

/// An object as text.
#[derive(Debug)]
pub(super) struct Packed<T> {
    version: Option<String>,
    text: Box<str>,
    read: fn(&str) -> Option<T>,
    /// There as long as it is warm. A weak reference would keep the memory of what it refers to.
    object: Mutex<Option<Arc<T>>>,
}

/// The objects that were read last.
#[derive(Debug)]
pub(super) struct Warm<T>(Mutex<VecDeque<Arc<Packed<T>>>>);

impl<T> Default for Warm<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

fn locked<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Warm<T> {
    /// An object as whoever asked for it wants it. Its text was read before, and is read the same again.
    pub(super) fn read(&self, held: &Held<T>) -> Option<Arc<T>> {
        let packed = match held {
            Held::Whole(object) => return Some(object.clone()),
            Held::Packed(packed) => packed,
        };
        let mut object = locked(&packed.object);
        if let Some(object) = &*object {
            return Some(object.clone());
        }
        let read = (packed.read)(&packed.text).map(Arc::new);
        object.clone_from(&read);
        drop(object);
        self.keep(packed);
        read
    }

    /// The same of one that has just come, and so is warm.
    pub(super) fn came(&self, held: &Held<T>) -> Option<Arc<T>> {
        if let Held::Packed(packed) = held {
            self.keep(packed);
        }
        self.read(held)
    }

    /// One stays as it was read for a while; another turns cold for it.
    fn keep(&self, packed: &Arc<Packed<T>>) {
        let mut warm = locked(&self.0);
        warm.push_back(packed.clone());
        let cold = if warm.len() > WARM { warm.pop_front() } else { None };
        drop(warm);
        if let Some(cold) = cold {
            locked(&cold.object).take();
        }
    }

    /// Nothing happens any more: all turn cold.
    pub(super) fn cool(&self) {
        let all = std::mem::take(&mut *locked(&self.0));
        for cold in all {
            locked(&cold.object).take();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use futures_util::FutureExt as _;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::runtime::watcher;
    use prometheus_client::metrics::counter::Counter;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::cache::{Cache, Changed, Index, Key, Subscriber};

    /// One reader of it does not read `secret`.
    impl Slim for ConfigMap {
        fn slim(&mut self) {
            self.data.get_or_insert_default().remove("secret");
        }
    }

    fn sent(name: usize, version: usize, value: &str) -> Sent {
        let metadata =
            json!({ "namespace": "n", "name": format!("{name:03}"), "resourceVersion": version.to_string() });
        let object = json!({ "metadata": metadata, "data": { "x": value, "secret": "s" } });
        serde_json::from_str(&object.to_string()).unwrap()
    }

    fn by_value(map: &ConfigMap) -> Vec<String> {
        map.data.iter().flat_map(BTreeMap::values).cloned().collect()
    }

    fn cache(keeping: Keeping<ConfigMap>) -> Cache<ConfigMap> {
        Cache::keeping(keeping, [("value", by_value as Index<ConfigMap>)], Counter::default())
    }

    type Heard = Vec<(Key, Option<ConfigMap>, Option<ConfigMap>)>;

    fn heard(subscriber: &mut Subscriber<ConfigMap>) -> Heard {
        let mut all = Vec::new();
        while let Some(Changed { key, old, new }) = subscriber.next().now_or_never() {
            let own = |object: Option<Arc<ConfigMap>>| object.map(|object| ConfigMap::clone(&object));
            all.push((key, own(old), own(new)));
        }
        all
    }

    type Shown = (Vec<Arc<ConfigMap>>, Vec<Arc<ConfigMap>>, Option<Arc<ConfigMap>>);

    fn shown(cache: &Cache<ConfigMap>) -> Shown {
        let key = Key { namespace: "n".to_owned(), name: "001".to_owned() };
        (cache.all(), cache.find("value", "a"), cache.get(&key))
    }

    proptest! {
        #[test]
        fn however_objects_are_held_everybody_is_shown_the_same(
            // More than are warm.
            steps in prop::collection::vec((0..2 * WARM, prop::option::of("[ab]"), 0..20), 0..400),
            is_slim: bool,
        ) {
            let (whole, packed) = match is_slim {
                true => (cache(Keeping::slim()), cache(Keeping::slim_and_packed())),
                false => (cache(Keeping::whole()), cache(Keeping::packed())),
            };
            let (mut of_whole, mut of_packed) = (whole.subscribe(), packed.subscribe());
            for (version, (name, value, more)) in steps.into_iter().enumerate() {
                for cache in [&whole, &packed] {
                    cache.take(match &value {
                        Some(value) => watcher::Event::Apply(sent(name, version, value)),
                        None => watcher::Event::Delete(sent(name, version, "")),
                    });
                }
                match more {
                    0 => prop_assert_eq!(heard(&mut of_whole), heard(&mut of_packed)),
                    1 => prop_assert_eq!(shown(&whole), shown(&packed)),
                    2 => packed.cool(),
                    _ => {}
                }
            }
            prop_assert_eq!(heard(&mut of_whole), heard(&mut of_packed));
            prop_assert_eq!(shown(&whole), shown(&packed));
            prop_assert_eq!(shown(&packed).0.iter().any(|map| by_value(map).contains(&"s".to_owned())), !is_slim && !whole.all().is_empty());
        }
    }

    #[test]
    fn no_more_are_read_than_are_warm() {
        let cache = cache(Keeping::packed());
        let read = |cache: &Cache<ConfigMap>| {
            let state = cache.state();
            let is_read = |held: &&Held<ConfigMap>| matches!(held, Held::Packed(one) if locked(&one.object).is_some());
            state.objects.values().filter(is_read).count()
        };
        for number in 0..3 * WARM {
            cache.take(watcher::Event::Apply(sent(number, number, "a")));
        }
        assert_eq!((read(&cache), cache.all().len(), read(&cache)), (WARM, 3 * WARM, WARM));
        cache.cool();
        assert_eq!(read(&cache), 0);
    }

    #[test]
    fn who_looks_at_many_at_once_has_them_as_they_were_read() {
        let cache = cache(Keeping::packed());
        cache.is_also_read(Keeping::whole());
        cache.take(watcher::Event::Apply(sent(1, 1, "a")));
        cache.is_also_read(Keeping::packed());
        cache.take(watcher::Event::Apply(sent(2, 2, "a")));
        assert!(cache.state().objects.values().all(|held| matches!(held, Held::Whole(_))));
    }
}
