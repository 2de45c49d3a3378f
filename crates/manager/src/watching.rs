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

/// An object as it was sent. Watches are of this, whatever the kind: what keeps up a watch is compiled once, and one object
/// that cannot be read does not end the watch of all.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    /// What a watcher needs of it: name, namespace and version.
    metadata: ObjectMeta,
    text: Box<RawValue>,
}

impl Sent {
    /// Reads the object.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(self.text.get())
    }
}

impl<'de> Deserialize<'de> for Sent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Head {
            metadata: Name,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Name {
            name: Option<String>,
            namespace: Option<String>,
            resource_version: Option<String>,
        }
        // A server sends an event's type before its object, so that the text is at hand.
        let text: Box<RawValue> = Deserialize::deserialize(deserializer)?;
        let Head { metadata } = serde_json::from_str(text.get()).map_err(de::Error::custom)?;
        let Name { name, namespace, resource_version } = metadata;
        let metadata = ObjectMeta { name, namespace, resource_version, ..ObjectMeta::default() };
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
