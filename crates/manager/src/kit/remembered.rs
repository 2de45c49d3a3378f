//! What a controller remembers between two reconciles of an object. It is the object's: it goes with it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;

use crate::cache::{Changed, Key};
use crate::expectations::Expectations;
use crate::worker::Next;
use crate::writing::{OwnWrites, log_changed, unless_gone};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Something that is remembered by key.
trait Kept: Send + Sync {
    fn forget(&self, key: &Key);
    /// What the debug page shows of it.
    fn show(&self) -> Vec<(Key, String)>;
}

/// All that is remembered. Clones share it.
#[derive(Clone)]
pub(super) struct Remembering(Arc<Shared>);

struct Shared {
    /// Which object of a name is remembered.
    uids: Mutex<BTreeMap<Key, String>>,
    kept: Mutex<Vec<Arc<dyn Kept>>>,
    expected: Expected,
    written: Written,
}

impl Default for Remembering {
    fn default() -> Self {
        let (expected, written) = (Expected::default(), Written::default());
        let kept: Vec<Arc<dyn Kept>> = vec![Arc::new(expected.clone()), Arc::new(written.clone())];
        Self(Arc::new(Shared { uids: Mutex::default(), kept: Mutex::new(kept), expected, written }))
    }
}

impl Remembering {
    pub(super) fn expected(&self) -> Expected {
        self.0.expected.clone()
    }

    pub(super) fn written(&self) -> Written {
        self.0.written.clone()
    }

    pub(super) fn value<V: Clone + Debug + Send + 'static>(&self, what: &'static str) -> Remembered<V> {
        let values = Remembered { what, values: Arc::default() };
        lock(&self.0.kept).push(Arc::new(values.clone()));
        values
    }

    /// An object is about to be reconciled: what was remembered of another of its name, or while there was none, is no longer true.
    pub(super) fn begin(&self, key: &Key, uid: &str) {
        let known = lock(&self.0.uids).insert(key.clone(), uid.to_owned());
        if known.as_deref() != Some(uid) {
            self.forget_values(key);
        }
    }

    pub(super) fn forget(&self, key: &Key) {
        lock(&self.0.uids).remove(key);
        self.forget_values(key);
    }

    fn forget_values(&self, key: &Key) {
        lock(&self.0.kept).iter().for_each(|kept| kept.forget(key));
    }

    /// By key, in the order in which the controller asked for them.
    pub(super) fn show(&self) -> BTreeMap<Key, Vec<String>> {
        let mut all: BTreeMap<Key, Vec<String>> = BTreeMap::new();
        for (key, text) in lock(&self.0.kept).iter().flat_map(|kept| kept.show()) {
            all.entry(key).or_default().push(text);
        }
        all
    }
}

/// A value for each object, such as its last failure. Clones share it.
#[derive(Clone, Debug)]
pub struct Remembered<V> {
    what: &'static str,
    values: Arc<Mutex<BTreeMap<Key, V>>>,
}

impl<V: Clone> Remembered<V> {
    /// The value of an object.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<V> {
        lock(&self.values).get(key).cloned()
    }

    /// Replaces the value of an object, and returns what it was.
    pub fn set(&self, key: &Key, value: V) -> Option<V> {
        lock(&self.values).insert(key.clone(), value)
    }

    /// Changes the value of an object; one that has none begins with the default.
    pub fn change(&self, key: &Key, change: impl FnOnce(&mut V))
    where
        V: Default,
    {
        change(lock(&self.values).entry(key.clone()).or_default());
    }

    /// Forgets the value of an object, and returns what it was.
    pub fn take(&self, key: &Key) -> Option<V> {
        lock(&self.values).remove(key)
    }
}

impl Remembered<String> {
    /// Remembers what the server refuses and would refuse again, so that the next look can tell of it; that look comes at once if
    /// the refusal is news. Everything else passes as it is.
    ///
    /// # Errors
    /// With the failure of what was done, unless it is a refusal that is news.
    pub fn refusal(&self, key: &Key, done: Result<Next, kube::Error>) -> Result<Next, kube::Error> {
        let Err(kube::Error::Api(status)) = &done else { return done };
        if !matches!(status.code, 400 | 403 | 422) {
            return done;
        }
        let known = self.set(key, status.message.clone());
        if known.as_ref() == Some(&status.message) { done } else { Ok(Next::After(Duration::ZERO)) }
    }
}

impl<V: Clone + Debug + Send> Kept for Remembered<V> {
    fn forget(&self, key: &Key) {
        lock(&self.values).remove(key);
    }

    fn show(&self) -> Vec<(Key, String)> {
        let values = lock(&self.values);
        values.iter().map(|(key, value)| (key.clone(), format!("{}: {value:?}", self.what))).collect()
    }
}

/// What owners have asked for and their caches do not show yet, see [`crate::expectations`]. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Expected(Arc<Mutex<Expectations<Key>>>);

impl Expected {
    /// Notes what an owner is about to ask for; what it asked for before no longer counts.
    pub fn expect(&self, owner: &Key, creations: usize, deletions: impl IntoIterator<Item = String>) {
        lock(&self.0).expect(owner.clone(), creations, deletions, Instant::now());
    }

    /// How long the owner has to wait at most before it may act; none if it may act now. Whoever waits must look again then.
    #[must_use]
    pub fn remaining(&self, owner: &Key) -> Option<Duration> {
        lock(&self.0).remaining(owner, Instant::now())
    }

    /// A creation was seen, or has failed and will never be seen.
    pub fn created(&self, owner: &Key) {
        lock(&self.0).created(owner);
    }

    /// A deletion was seen, or has failed and will never be seen.
    pub fn deleted(&self, owner: &Key, uid: &str) {
        lock(&self.0).deleted(owner, uid);
    }

    /// Nothing that the owner has asked for counts any more.
    pub fn forget(&self, owner: &Key) {
        lock(&self.0).forget(owner);
    }

    /// Takes off what the change of a child shows. Its owner may have changed, too.
    pub fn saw<T: Resource>(&self, before: Option<&Key>, now: Option<&Key>, change: &Changed<T>) {
        let uid = |object: &T| object.meta().uid.clone().unwrap_or_default();
        let (old, new) = (change.old.as_deref(), change.new.as_deref());
        let replaced = old.map(uid) != new.map(uid);
        if let (Some(owner), Some(_), true) = (now, new, replaced) {
            self.created(owner);
        }
        // The owner that asked for the deletion is the one from before, if there was one.
        let ending = new.filter(|new| new.meta().deletion_timestamp.is_some());
        for gone in old.filter(|_| replaced).into_iter().chain(ending) {
            if let Some(owner) = before.or(now) {
                self.deleted(owner, &uid(gone));
            }
        }
    }
}

impl Kept for Expected {
    fn forget(&self, key: &Key) {
        Self::forget(self, key);
    }

    fn show(&self) -> Vec<(Key, String)> {
        lock(&self.0).open(Instant::now()).map(|(key, text)| (key.clone(), text)).collect()
    }
}

/// The controller's own writes that its cache does not show yet, see [`OwnWrites`]. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Written(Arc<Mutex<OwnWrites<Key>>>);

impl Written {
    /// Notes the version that a write has made.
    pub fn note<T: Resource>(&self, key: &Key, written: &T) {
        lock(&self.0).note(key.clone(), written.meta().resource_version.as_deref());
    }

    /// Whether an object is from before the last write of it: whoever decides on it decides the same again.
    #[must_use]
    pub fn is_behind<T: Resource>(&self, key: &Key, seen: &T) -> bool {
        lock(&self.0).is_behind(key, seen.meta().resource_version.as_deref())
    }

    /// The object is gone.
    pub fn forget(&self, key: &Key) {
        lock(&self.0).forget(key);
    }

    /// Sends a merge patch of an object and notes what it made; the object may be gone. The patch should be
    /// [guarded](crate::writing::guarded).
    ///
    /// # Errors
    /// When it is refused, unless the object is gone.
    pub async fn patch<T>(&self, api: &Api<T>, key: &Key, patch: &Value) -> Result<Option<T>, kube::Error>
    where
        T: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let written = api.patch(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await;
        self.noted(key, written.inspect(|_| log_changed::<T>(&key.name)))
    }

    /// The same of the object's status; the log has no line of it.
    ///
    /// # Errors
    /// When it is refused, unless the object is gone.
    pub async fn patch_status<T>(&self, api: &Api<T>, key: &Key, patch: &Value) -> Result<Option<T>, kube::Error>
    where
        T: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        self.noted(key, api.patch_status(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await)
    }

    fn noted<T: Resource>(&self, key: &Key, written: Result<T, kube::Error>) -> Result<Option<T>, kube::Error> {
        match written {
            Ok(written) => {
                self.note(key, &written);
                Ok(Some(written))
            }
            Err(error) => unless_gone(Err::<(), _>(error)).map(|()| None),
        }
    }
}

impl Kept for Written {
    fn forget(&self, key: &Key) {
        Self::forget(self, key);
    }

    fn show(&self) -> Vec<(Key, String)> {
        lock(&self.0).all().map(|(key, version)| (key.clone(), format!("has written version {version}"))).collect()
    }
}
