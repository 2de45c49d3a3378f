//! How watches are kept up: how long one that failed waits, and objects as they come.

use std::borrow::Cow;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicResourceScope};
use kube::runtime::utils::Backoff;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use serde::de::{self, DeserializeOwned};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::context::Chance;

/// What a watch tells.
pub(crate) type Events = BoxStream<'static, watcher::Result<watcher::Event<Sent>>>;

const FIRST: Duration = Duration::from_millis(800);
const MOST: Duration = Duration::from_secs(30);

/// The waits of a watch that fails again and again: as client-go's, with the process' own chance.
pub struct Patience {
    chance: Chance,
    next: Duration,
}

impl Patience {
    /// From the shortest wait on.
    #[must_use]
    pub fn new(chance: Chance) -> Self {
        Self { chance, next: FIRST }
    }
}

impl Iterator for Patience {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let wait = self.chance.jitter(self.next, 1.0);
        self.next = (self.next * 2).min(MOST);
        Some(wait)
    }
}

impl Backoff for Patience {
    fn reset(&mut self) {
        self.next = FIRST;
    }
}

/// An object as it was sent, but for who manages which field: no controller reads it, and it is half of many objects. Watches are
/// of this, whatever the kind: what keeps up a watch is compiled once, and one object that cannot be read does not end the watch
/// of all.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    /// What a watcher needs of it: name, namespace and version.
    metadata: ObjectMeta,
    text: Box<str>,
}

impl Sent {
    /// What was sent.
    pub(crate) fn into_text(self) -> Box<str> {
        self.text
    }

    /// Reads the object.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(&self.text)
    }
}

/// What of an object's text is looked at before its kind is known.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    metadata: Name<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Name<'a> {
    name: Option<String>,
    namespace: Option<String>,
    resource_version: Option<String>,
    #[serde(borrow)]
    managed_fields: Option<&'a RawValue>,
}

/// The text of an object with nothing in the place of a value that is a part of it.
fn without<'a>(text: &'a str, value: &'a RawValue) -> Option<Box<str>> {
    let start = (value.get().as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
    let (before, rest) = text.split_at_checked(start)?;
    let after = rest.strip_prefix(value.get())?;
    Some([before, "null", after].concat().into())
}

impl<'de> Deserialize<'de> for Sent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A server sends an event's type before its object, so that the text is at hand.
        let text: Box<RawValue> = Deserialize::deserialize(deserializer)?;
        let Head { metadata } = serde_json::from_str(text.get()).map_err(de::Error::custom)?;
        let Name { name, namespace, resource_version, managed_fields } = metadata;
        let metadata = ObjectMeta { name, namespace, resource_version, ..ObjectMeta::default() };
        let kept = managed_fields.and_then(|value| without(text.get(), value));
        let text = kept.unwrap_or_else(|| text.into());
        Ok(Self { metadata, text })
    }
}

impl Resource for Sent {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// What happens to the objects of a kind that selectors name. It ends never: a watch that fails is begun again.
pub(crate) fn watch(client: Client, resource: &ApiResource, labels: &str, fields: &str, patience: Patience) -> Events {
    let api = Api::<Sent>::all_with(client, resource);
    let config = watcher::Config::default().streaming_lists().labels(labels).fields(fields);
    watcher(api, config).backoff(patience).boxed()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn read(text: &str) -> Sent {
        serde_json::from_str(text).unwrap()
    }

    proptest! {
        /// Whatever else an object says, also in its data, is kept as it was sent.
        #[test]
        fn who_manages_which_field_is_dropped_on_arrival(
            data in prop::collection::btree_map("[a-z]{1,3}", "[ -~]{0,20}|\"managedFields\":\\[1\\]", 0..4),
            managers in prop::collection::vec("[a-z\"\\\\]{0,5}", 0..3),
            is_last: bool,
        ) {
            let managed: Vec<Value> = managers
                .iter()
                .map(|manager| json!({ "manager": manager, "fieldsV1": { "f:data": { "f:managedFields": {} } } }))
                .collect();
            let (data, managed) = (json!(data), json!(managed));
            // The order of the fields is the server's.
            let text = match is_last {
                true => format!("{{\"data\":{data},\"metadata\":{{\"name\":\"a\",\"managedFields\":{managed}}}}}"),
                false => format!("{{\"metadata\":{{\"managedFields\": {managed} ,\"name\":\"a\"}},\"data\":{data}}}"),
            };
            let sent = read(&text);
            prop_assert_eq!(sent.meta().name.as_deref(), Some("a"));
            let map: ConfigMap = sent.read().unwrap();
            prop_assert_eq!(&map.metadata.managed_fields, &None);
            prop_assert_eq!(json!(map.data.unwrap_or_default()), data);
        }
    }

    #[test]
    fn an_object_that_nobody_manages_is_kept_as_it_was_sent() {
        for text in [r#"{"metadata":{"name":"a"}}"#, r#"{"metadata":{"name":"a","managedFields":null}}"#] {
            assert_eq!(&*read(text).text, text);
        }
        assert!(serde_json::from_str::<Sent>("{}").is_err());
    }
}
