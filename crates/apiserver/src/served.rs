//! One request from its arrival to its answer: what is learned of it on the way, as counts and the log tell it.
//!
//! Every request is a span with the same keys: `verb`, `resource`, `namespace`, `name`, `uid`, `owner` (who controls the
//! object), `user`, and the path where no resource is asked for. Its end is one line, with `status` and `ms`: at `info`
//! where it changed what somebody wants, at `debug` where it asked, was refused, or told how something is.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::StatusCode;
use serde_json::Value;
use tokio::time::Instant;
use tracing::Span;
use tracing::field::Empty;

use crate::identity::Identity;
use crate::metrics::{Labels, Metrics};
use crate::route::access::Asked;
use crate::status::Status;

/// Kinds that only say that somebody lives, or what somebody saw.
const SIGNS_OF_LIFE: [&str; 2] = ["leases", "events"];

/// A request that is being answered.
pub(crate) struct Served {
    pub(crate) labels: Labels,
    pub(crate) span: Span,
    pub(crate) written: Written,
    began: Instant,
}

impl Served {
    /// One that has just come.
    pub(crate) fn begin(method: &http::Method) -> Self {
        // A root: what a caller in the same process is doing meanwhile is another story.
        let span = tracing::info_span!(parent: None, "request", verb = Empty, resource = Empty, path = Empty,
            namespace = Empty, name = Empty, uid = Empty, owner = Empty, user = Empty);
        Self {
            labels: Labels { verb: method.to_string(), ..Labels::default() },
            span,
            written: Written::default(),
            began: Instant::now(),
        }
    }

    /// Who asks is known.
    pub(crate) fn by(&self, who: &Identity) {
        self.span.record("user", &who.user);
    }

    /// What is asked for is known.
    pub(crate) fn asks(&self, asked: &Asked) {
        self.span.record("verb", &asked.verb);
        if asked.resource.is_empty() {
            self.span.record("path", &asked.path);
            return;
        }
        self.span.record("resource", asked.qualified());
        self.span.record("namespace", &asked.namespace);
        self.span.record("name", &asked.name);
    }

    /// It is answered. The span must be the current one.
    pub(crate) fn end(&self, metrics: &Metrics, code: StatusCode, refused: Option<&Status>) {
        let took = self.began.elapsed();
        metrics.record(&self.labels, code.as_u16(), took);
        let (status, ms) = (code.as_u16(), u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        let Facts { name, uid, owner, act } = &*self.written.facts();
        if !name.is_empty() {
            self.span.record("name", name);
        }
        self.span.record("uid", uid);
        self.span.record("owner", owner);
        let error = refused.map(|status| status.message.as_str()).unwrap_or_default();
        match act {
            Some(act) if refused.is_none() => tracing::info!(status, ms, "{act}"),
            _ if code.is_server_error() => tracing::warn!(status, ms, error, "a request failed"),
            _ => tracing::debug!(status, ms, error, "answered"),
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
}

impl Written {
    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        *facts = Facts { act: facts.act, ..Facts::default() };
    }

    fn about(&self, metadata: &Value, act: Option<&'static str>) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
        let owner = owners.into_iter().find(|owner| owner["controller"] == true);
        *self.facts() = Facts {
            name: text(&metadata["name"]),
            uid: text(&metadata["uid"]),
            owner: owner.map(|owner| text(&owner["uid"])).unwrap_or_default(),
            act,
        };
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
