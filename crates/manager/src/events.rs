//! Events: what people read in `kubectl describe`, without a flood of them.
//!
//! The same event again is counted, not written anew. Many that differ only in their text become one. Whoever has too many
//! about one object is cut back to a few. And nobody waits: what cannot be written is dropped and logged.

mod correlate;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use serde_json::json;
use tokio::sync::mpsc;

use crate::context::Now;
use crate::errors::chain;
use correlate::{Correlator, Written};

/// Events that wait to be written; more are dropped.
const MOST_WAITING: usize = 1000;

/// Whether all is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// It is.
    Normal,
    /// It is not.
    Warning,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// What happened to an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Happened {
    component: String,
    about: ObjectReference,
    kind: Kind,
    reason: String,
    message: String,
}

/// Records events of one component. All recorders of a process share one writer.
#[derive(Clone, Debug)]
pub struct Recorder {
    component: String,
    happened: mpsc::Sender<Happened>,
}

impl Recorder {
    /// A recorder, and the task that writes what it records; the task ends when the last recorder is gone.
    pub fn new(client: Client, component: &str, now: Now) -> (Self, impl Future<Output = ()> + use<>) {
        let (happened, incoming) = mpsc::channel(MOST_WAITING);
        (Self { component: component.to_owned(), happened }, write(client, now, incoming))
    }

    /// The same for another component.
    #[must_use]
    pub fn of(&self, component: &str) -> Self {
        Self { component: component.to_owned(), happened: self.happened.clone() }
    }

    /// Records an event about an object.
    pub fn record<T: Resource<DynamicType = ()>>(
        &self,
        object: &T,
        kind: Kind,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.record_about(object.object_ref(&()), kind, reason, message);
    }

    /// Records an event about an object of a kind that is known only now.
    pub fn record_about(&self, about: ObjectReference, kind: Kind, reason: &str, message: impl Into<String>) {
        let component = self.component.clone();
        let happened = Happened { component, about, kind, reason: reason.to_owned(), message: message.into() };
        if let Err(error) = self.happened.try_send(happened) {
            tracing::debug!(%error, "an event was dropped");
        }
    }
}

async fn write(client: Client, now: Now, mut incoming: mpsc::Receiver<Happened>) {
    let mut correlator = Correlator::default();
    while let Some(happened) = incoming.recv().await {
        let at = now();
        let Some(written) = correlator.take(happened, at) else { continue };
        let namespace = written.namespace().to_owned();
        let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
        let result = match &written {
            Written::New { name, happened } => {
                let event = event(name, &namespace, happened, at);
                api.create(&PostParams::default(), &event).await
            }
            Written::Again { name, count, happened } => {
                let patch = json!({ "count": count, "lastTimestamp": Time(at), "message": happened.message });
                api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await
            }
        };
        if let Err(error) = result {
            // The next one like it is written anew: this one may be gone, or was never there.
            correlator.forget(&written);
            tracing::debug!(error = chain(&error), reason = written.reason(), "cannot write an event");
        }
    }
}

fn event(name: &str, namespace: &str, happened: &Happened, at: Timestamp) -> Event {
    Event {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: happened.about.clone(),
        type_: Some(happened.kind.as_str().to_owned()),
        reason: Some(happened.reason.clone()),
        message: Some(happened.message.clone()),
        source: Some(EventSource { component: Some(happened.component.clone()), ..EventSource::default() }),
        reporting_component: Some(happened.component.clone()),
        first_timestamp: Some(Time(at)),
        last_timestamp: Some(Time(at)),
        count: Some(1),
        ..Event::default()
    }
}
