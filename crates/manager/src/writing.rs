//! What controllers do alike when they write: deletions of one object and no other, writes about something that may be gone,
//! patches of what differs, the line that the log has of each, and waiting for one's own writes to come back.
//!
//! A conflict is nowhere taken for success: it is tried again, and the next look at the cache tells what it was about.

use std::collections::BTreeMap;
use std::fmt::Debug;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::core::Status;
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// What is gone needs nothing more.
///
/// # Errors
/// All others.
pub fn unless_gone<T>(result: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        result => result.map(drop),
    }
}

/// The log has a line of an object that is new.
pub fn log_created<T: Resource<DynamicType = ()>>(object: &T) {
    let (name, uid) = (object.meta().name.as_deref(), object.meta().uid.as_deref());
    let kind = &*T::kind(&());
    tracing::info!(kind, object = name.unwrap_or_default(), object_uid = uid.unwrap_or_default(), "created");
}

/// The log has a line of an object that was changed; that its status was told needs none.
pub fn log_changed<T: Resource<DynamicType = ()>>(object: &str) {
    tracing::info!(kind = &*T::kind(&()), object, "changed");
}

/// The log has a line of an object that was deleted, or is on its way out.
pub fn log_deleted<T: Resource<DynamicType = ()>>(object: &str, uid: Option<&str>) {
    tracing::info!(kind = &*T::kind(&()), object, object_uid = uid.unwrap_or_default(), "deleted");
}

/// Creates an object that only one can create. It may be there already, by a lost answer or by another leader; and in a
/// namespace that is gone or goes there is nothing to try again.
///
/// # Errors
/// When it is refused for another reason.
pub async fn create<T>(api: &Api<T>, object: &T) -> Result<(), kube::Error>
where
    T: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    match api.create(&PostParams::default(), object).await {
        Err(kube::Error::Api(status))
            if status.code == 404 || status.is_already_exists() || is_namespace_terminating(&status) =>
        {
            Ok(())
        }
        made => made.map(|made| log_created(&made)),
    }
}

/// Deletes an object and no other of its name.
///
/// # Errors
/// When it is refused, unless the object is gone.
pub async fn delete<T>(api: &Api<T>, name: &str, uid: Option<&str>, grace: Option<u32>) -> Result<(), kube::Error>
where
    T: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let preconditions = Some(Preconditions { uid: uid.map(str::to_owned), ..Preconditions::default() });
    let parameters = DeleteParams { grace_period_seconds: grace, preconditions, ..DeleteParams::default() };
    unless_gone(api.delete(name, &parameters).await.inspect(|_| log_deleted::<T>(name, uid)))
}

/// Deletes an object and no other of its name, but not before what it controls: as long as something of that is there, the object is
/// there, too, and holds its name.
///
/// # Errors
/// When it is refused, unless the object is gone.
pub async fn delete_with_children<T>(api: &Api<T>, name: &str, uid: &str) -> Result<(), kube::Error>
where
    T: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let preconditions = Some(Preconditions { uid: Some(uid.to_owned()), ..Preconditions::default() });
    let parameters = DeleteParams { preconditions, ..DeleteParams::foreground() };
    unless_gone(api.delete(name, &parameters).await.inspect(|_| log_deleted::<T>(name, Some(uid))))
}

/// Deletes an object only as it was seen: whatever changed meanwhile, such as its owner, may be a reason to leave it.
///
/// # Errors
/// When it is refused, unless the object is gone; a conflict when it has changed.
pub async fn delete_as_seen<T>(api: &Api<T>, name: &str, uid: &str, version: &str) -> Result<(), kube::Error>
where
    T: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: Some(version.to_owned()) };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    unless_gone(api.delete(name, &parameters).await.inspect(|_| log_deleted::<T>(name, Some(uid))))
}

/// Whether a creation was refused because its namespace goes.
#[must_use]
pub fn is_namespace_terminating(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.is_forbidden() && causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// The merge patch that makes the second of the first; none if they are equal.
///
/// Lists are replaced as a whole, as merge patches do. A field that is `null` counts as absent.
#[must_use]
pub fn difference(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = Map::new();
    for (name, value) in after.iter().filter(|(_, value)| !value.is_null()) {
        match before.get(name).filter(|value| !value.is_null()) {
            Some(known) => patch.extend(difference(known, value).map(|part| (name.clone(), part))),
            None => drop(patch.insert(name.clone(), value.clone())),
        }
    }
    let is_there = |value: Option<&Value>| value.is_some_and(|value| !value.is_null());
    let gone = before.iter().filter(|(name, value)| !value.is_null() && !is_there(after.get(*name)));
    patch.extend(gone.map(|(name, _)| (name.clone(), Value::Null)));
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// A merge patch that only the object takes that was seen, and only as it was seen: another of its name refuses it, and so does
/// the same object once somebody has changed it.
#[must_use]
pub fn guarded(seen: &ObjectMeta, mut patch: Value) -> Value {
    if !patch["metadata"].is_object() {
        patch["metadata"] = Value::Object(Map::new());
    }
    patch["metadata"]["uid"] = seen.uid.clone().into();
    patch["metadata"]["resourceVersion"] = seen.resource_version.clone().into();
    patch
}

/// The API keeps whole seconds; what is planned should equal what is read back.
#[must_use]
pub fn whole_second(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// What was written and the cache does not show yet, by key: whoever decides on what was before its own last write decides
/// the same again, and is refused.
#[derive(Debug)]
pub struct OwnWrites<K> {
    versions: BTreeMap<K, u64>,
}

impl<K> Default for OwnWrites<K> {
    fn default() -> Self {
        Self { versions: BTreeMap::new() }
    }
}

impl<K: Ord> OwnWrites<K> {
    /// Notes the version that a write made.
    pub fn note(&mut self, key: K, version: Option<&str>) {
        if let Some(version) = version.and_then(|version| version.parse().ok()) {
            self.versions.insert(key, version);
        }
    }

    /// Whether an object of this version is from before the last write. Versions that are no numbers are never behind.
    #[must_use]
    pub fn is_behind(&self, key: &K, version: Option<&str>) -> bool {
        let written = self.versions.get(key);
        let seen = version.and_then(|version| version.parse::<u64>().ok());
        written.zip(seen).is_some_and(|(written, seen)| seen < *written)
    }

    /// The last version of each.
    pub fn all(&self) -> impl Iterator<Item = (&K, u64)> {
        self.versions.iter().map(|(key, version)| (key, *version))
    }

    /// The object is gone; the next of its name is another.
    pub fn forget(&mut self, key: &K) {
        self.versions.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use json_patch::merge;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_says_what_differs_and_no_more() {
        let old = json!({ "a": 1, "b": { "c": [1, 2], "d": "x" }, "gone": true });
        let new = json!({ "a": 1, "b": { "c": [1, 3], "d": "x" }, "new": {}, "none": null });
        assert_eq!(difference(&old, &new), Some(json!({ "b": { "c": [1, 3] }, "new": {}, "gone": null })));
        assert_eq!(difference(&old, &old), None);
    }

    #[test]
    fn what_is_older_than_the_last_write_is_behind() {
        let mut writes = OwnWrites::default();
        writes.note("a", Some("10"));
        assert!(writes.is_behind(&"a", Some("9")));
        assert!(!writes.is_behind(&"a", Some("10")) && !writes.is_behind(&"a", Some("11")));
        assert!(!writes.is_behind(&"b", Some("1")) && !writes.is_behind(&"a", Some("x")));
        writes.forget(&"a");
        assert!(!writes.is_behind(&"a", Some("9")));
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<bool>().prop_map(Value::from), (0..3_i32).prop_map(Value::from)];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..4).prop_map(|fields| json!(fields)),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_difference_makes_the_new_of_the_old(old in any_value(), new in any_value()) {
            let mut made = old.clone();
            if let Some(patch) = difference(&old, &new) {
                merge(&mut made, &patch);
            }
            prop_assert_eq!(made, new);
        }
    }
}
