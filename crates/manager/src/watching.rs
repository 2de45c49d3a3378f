//! How watches are kept up: how long one that failed waits, and objects that cannot be read.

use std::borrow::Cow;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::runtime::utils::Backoff;
use serde::de::{self, DeserializeOwned};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::context::Chance;

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

/// An object, or why it cannot be read; one bad object must not end the watch of all.
#[derive(Clone, Debug)]
pub(crate) enum Guarded<T> {
    Good(T),
    Bad { metadata: Box<ObjectMeta>, error: String },
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Guarded<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A server sends an event's type before its object, so that the text is at hand.
        let text: Box<RawValue> = Deserialize::deserialize(deserializer)?;
        serde_json::from_str(text.get()).map(Self::Good).or_else(|error| {
            #[derive(Deserialize)]
            struct Named {
                metadata: Box<ObjectMeta>,
            }
            let Named { metadata } = serde_json::from_str(text.get()).map_err(de::Error::custom)?;
            Ok(Self::Bad { metadata, error: error.to_string() })
        })
    }
}

impl<T: Resource> Resource for Guarded<T> {
    type DynamicType = T::DynamicType;
    type Scope = T::Scope;

    fn kind(kind: &Self::DynamicType) -> Cow<'_, str> {
        T::kind(kind)
    }

    fn group(kind: &Self::DynamicType) -> Cow<'_, str> {
        T::group(kind)
    }

    fn version(kind: &Self::DynamicType) -> Cow<'_, str> {
        T::version(kind)
    }

    fn plural(kind: &Self::DynamicType) -> Cow<'_, str> {
        T::plural(kind)
    }

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Good(object) => object.meta(),
            Self::Bad { metadata, .. } => metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Good(object) => object.meta_mut(),
            Self::Bad { metadata, .. } => metadata,
        }
    }
}
