//! One request from its arrival to its answer: what is learned of it on the way, as counts, log and audit tell it.
//!
//! Every request is a span with the same keys: `verb`, `resource`, `namespace`, `name`, `uid`, `owner` (who controls the
//! object), `user`, and the path where no resource is asked for. Its end is one line, with `status` and `ms`: at `info`
//! where it changed what somebody wants, at `debug` where it asked, was refused, or told how something is.
//!
//! A client may go before its answer comes. What it asked for may be done all the same, and is told.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{Method, Request, Response};
use serde_json::Value;
use tokio::time::Instant;
use tracing::Span;
use tracing::field::Empty;

use crate::audit::Trail;
use crate::body::Body;
use crate::identity::{Decision, Identity};
use crate::metrics::{Labels, Lasting, Metrics};
use crate::route::access::Asked;
use crate::route::is_open;
use crate::server::Inner;
use crate::status::Status;

/// Kinds that only say that somebody lives, or what somebody saw.
const SIGNS_OF_LIFE: [&str; 2] = ["leases", "events"];

/// A request that is being answered.
pub(crate) struct Served {
    pub(crate) labels: Labels,
    pub(crate) span: Span,
    pub(crate) written: Written,
    began: Instant,
    /// None if nobody writes it down, or it is written.
    trail: Option<Trail>,
    ended: bool,
    _counted: Lasting,
}

impl Served {
    /// One that has just come.
    pub(crate) fn begin<B>(server: &Inner, request: &Request<B>) -> Self {
        // A root: what a caller in the same process is doing meanwhile is another story.
        let span = tracing::info_span!(parent: None, "request", verb = Empty, resource = Empty, path = Empty,
            namespace = Empty, name = Empty, uid = Empty, owner = Empty, user = Empty, acting_as = Empty);
        let audit = server.audit.clone();
        // A service that knows its own callers may take their tokens there.
        let hides = is_open(server, request.uri().path());
        Self {
            labels: Labels { verb: known(request.method()).to_owned(), ..Labels::default() },
            span,
            written: Written::default(),
            began: Instant::now(),
            trail: audit.map(|log| Trail::begin(log, server.clock, request, hides, || server.chance.uid())),
            ended: false,
            _counted: server.metrics.running(),
        }
    }

    /// What is asked for is known.
    pub(crate) fn asks(&mut self, asked: &Asked) {
        self.span.record("verb", &asked.verb);
        if asked.resource.is_empty() {
            self.span.record("path", &asked.path);
        } else {
            self.span.record("resource", asked.qualified());
            self.span.record("namespace", &asked.namespace);
            self.span.record("name", &asked.name);
        }
        if let Some(trail) = &mut self.trail {
            trail.asked = asked.clone();
        }
    }

    /// Who asks is known.
    pub(crate) fn by(&mut self, who: &Identity) {
        self.span.record("user", &who.user);
        if let Some(trail) = &mut self.trail {
            trail.who = Some(who.clone());
        }
    }

    /// Whoever asks may act as another, and does.
    pub(crate) fn acts_as(&mut self, other: &Identity) {
        self.span.record("acting_as", &other.user);
        if let Some(trail) = &mut self.trail {
            trail.acting = Some(other.clone());
        }
    }

    /// Whether it may go on is decided.
    pub(crate) fn decided(&mut self, decision: Decision) {
        if let Some(trail) = &mut self.trail {
            trail.decision = Some(decision);
        }
    }

    /// It is answered. The span must be the current one.
    pub(crate) fn end(&mut self, metrics: &Metrics, response: &mut Response<Body>, refused: Option<&Status>) {
        self.ended = true;
        let took = self.began.elapsed();
        let code = response.status();
        metrics.record(&self.labels, code.as_u16(), took);
        let (status, ms) = (code.as_u16(), u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        let error = refused.map(|status| status.message.as_str()).unwrap_or_default();
        match self.record_written() {
            Some(act) if refused.is_none() => tracing::info!(status, ms, "{act}"),
            _ if code.is_server_error() => tracing::warn!(status, ms, error, "a request failed"),
            _ => tracing::debug!(status, ms, error, "answered"),
        }
        if let Some(trail) = self.trail.take() {
            trail.end(response, refused, &self.written.facts().named);
        }
    }

    /// What was done, if that is worth a line; and to which object.
    fn record_written(&self) -> Option<&'static str> {
        let Facts { name, uid, owner, act, .. } = &*self.written.facts();
        if !name.is_empty() {
            self.span.record("name", name);
        }
        self.span.record("uid", uid);
        self.span.record("owner", owner);
        *act
    }
}

/// A method as a label: clients may invent others, and each would be counted for ever.
fn known(method: &Method) -> &'static str {
    let all = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];
    all.into_iter().find(|one| method == one).unwrap_or("other")
}

impl Drop for Served {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let act = self.record_written();
        let _entered = self.span.enter();
        match act {
            Some(act) => tracing::info!("{act}, but the client disconnected before the answer"),
            None => tracing::debug!("the client disconnected before the answer"),
        }
        if let Some(trail) = self.trail.take() {
            trail.abandon(&self.written.facts().named);
        }
    }
}

/// What a request has written, shared with whoever writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written(Arc<Mutex<Facts>>);

#[derive(Debug, Default)]
struct Facts {
    name: String,
    uid: String,
    owner: String,
    /// What was done, if that is worth a line.
    act: Option<&'static str>,
    named: Named,
}

/// What the body of a request says about its object, and what it was answered where that is no object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Named {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) version: String,
    pub(crate) status: Option<Value>,
}

impl Written {
    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An object with this metadata was sent.
    pub(crate) fn sent(&self, metadata: &Value) {
        let text = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
        self.facts().named = Named {
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
            version: text("resourceVersion"),
            status: None,
        };
    }

    /// The answer is no object of the store.
    pub(crate) fn answered(&self, answer: &Value) {
        if answer["kind"] == "Status" {
            self.facts().named.status = Some(answer.clone());
        }
    }

    /// An object with this metadata is new.
    pub(crate) fn created(&self, resource: &str, metadata: &Value) {
        self.about(metadata, (!SIGNS_OF_LIFE.contains(&resource)).then_some("created"));
    }

    /// An object was changed.
    pub(crate) fn changed(&self, resource: &str, old: &Value, new: &Value) {
        let is_act = !SIGNS_OF_LIFE.contains(&resource) && has_other_intent(resource, old, new);
        self.about(&new["metadata"], is_act.then_some("changed"));
    }

    /// An object is gone, or marked to go.
    pub(crate) fn deleted(&self, resource: &str, object: &Value, gone: bool) {
        let act = if gone { "deleted" } else { "marked for deletion" };
        self.about(&object["metadata"], (!SIGNS_OF_LIFE.contains(&resource)).then_some(act));
    }

    /// What was done was done to any number of objects: none of them is what the request is about.
    pub(crate) fn several(&self) {
        let mut facts = self.facts();
        *facts = Facts { act: facts.act, named: facts.named.clone(), ..Facts::default() };
    }

    fn about(&self, metadata: &Value, act: Option<&'static str>) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
        let owner = owners.into_iter().find(|owner| owner["controller"] == true);
        let mut facts = self.facts();
        facts.name = text(&metadata["name"]);
        facts.uid = text(&metadata["uid"]);
        facts.owner = owner.map(|owner| text(&owner["uid"])).unwrap_or_default();
        facts.act = act;
    }
}

/// Whether more changed than how something is: all but the status, what the server keeps, and the annotations of nodes,
/// by which their agents say that they live.
fn has_other_intent(resource: &str, old: &Value, new: &Value) -> bool {
    let kept = ["resourceVersion", "generation", "managedFields"];
    let apart = |key: &str| kept.contains(&key) || (key == "annotations" && resource == "nodes");
    differs(old, new, |key| matches!(key, "status" | "metadata" | "apiVersion" | "kind"))
        || differs(&old["metadata"], &new["metadata"], apart)
}

fn differs(old: &Value, new: &Value, apart: impl Fn(&str) -> bool) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return old != new };
    let keys = old.keys().chain(new.keys());
    keys.filter(|key| !apart(key)).any(|key| old.get(key) != new.get(key))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn act(resource: &str, old: &Value, new: &Value) -> Option<&'static str> {
        let written = Written::default();
        written.changed(resource, old, new);
        let facts = written.facts();
        facts.act
    }

    #[test]
    fn how_something_is_and_signs_of_life_are_no_acts() {
        let one = json!({ "metadata": { "uid": "u", "annotations": { "a": "1" } }, "spec": { "x": 1 }, "status": 1 });
        let mut told = one.clone();
        told["status"] = json!(2);
        told["metadata"]["resourceVersion"] = json!("7");
        assert_eq!(act("pods", &one, &told), None);
        let mut beating = one.clone();
        beating["metadata"]["annotations"]["a"] = json!("2");
        assert_eq!((act("nodes", &one, &beating), act("pods", &one, &beating)), (None, Some("changed")));
        let mut other = one.clone();
        other["spec"]["x"] = json!(2);
        assert_eq!((act("pods", &one, &other), act("leases", &one, &other)), (Some("changed"), None));
    }

    #[test]
    fn an_object_is_known_by_its_uid_and_by_whoever_controls_it() {
        let written = Written::default();
        let owners = json!([{ "uid": "other" }, { "uid": "o", "controller": true }]);
        written.created("pods", &json!({ "name": "n", "uid": "u", "ownerReferences": owners }));
        let facts = written.facts();
        assert_eq!((facts.name.as_str(), facts.uid.as_str(), facts.owner.as_str()), ("n", "u", "o"));
    }
}
