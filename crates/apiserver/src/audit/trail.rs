//! What a request leaves behind on its way, until its event is written.

use std::collections::BTreeMap;
use std::net::IpAddr;

use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::AuditLog;
use super::event::{Event, ObjectRef, Stage, User};
use crate::body::Body;
use crate::clock::Clock;
use crate::identity::{Decision, Identity};
use crate::route::access::Asked;
use crate::served::Named;
use crate::status::Status;

/// The client's own id of a request, and ours in the answer.
const AUDIT_ID: &str = "audit-id";
/// More of a client's word about itself is cut off.
const LONGEST_AGENT: usize = 1024;
const DECISION: &str = "authorization.k8s.io/decision";
const REASON: &str = "authorization.k8s.io/reason";
/// What goes on after its answer has begun.
const LONG_RUNNING: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// Where a request came from over the network. The server puts it into the request's extensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// What is known of a request.
pub(crate) struct Trail {
    log: AuditLog,
    clock: Clock,
    id: String,
    received: Timestamp,
    uri: String,
    sources: Vec<String>,
    agent: String,
    pub(crate) who: Option<Identity>,
    pub(crate) acting: Option<Identity>,
    pub(crate) asked: Asked,
    pub(crate) decision: Option<Decision>,
}

impl Trail {
    /// Of a request that has just come. The query of one that `hides` it stays out.
    pub(crate) fn begin<B>(
        log: AuditLog,
        clock: Clock,
        request: &Request<B>,
        hides: bool,
        new_id: impl FnOnce() -> String,
    ) -> Self {
        let headers = request.headers();
        let given = text(headers, AUDIT_ID);
        let whole = request.uri().path_and_query().filter(|_| !hides);
        let uri = whole.map_or_else(|| request.uri().path(), |both| both.as_str());
        Self {
            log,
            clock,
            id: if given.is_empty() { new_id() } else { given.to_owned() },
            received: clock.now(),
            uri: uri.to_owned(),
            sources: sources(headers, request.extensions().get::<Peer>().copied()),
            agent: agent(text(headers, header::USER_AGENT.as_str())),
            who: None,
            acting: None,
            asked: Asked { verb: request.method().as_str().to_lowercase(), ..Asked::default() },
            decision: None,
        }
    }

    /// Writes the event of an answer; one that goes on has a second event when it ends.
    pub(crate) fn end(self, response: &mut http::Response<Body>, refused: Option<&Status>, named: &Named) {
        if let Ok(id) = HeaderValue::from_str(&self.id) {
            response.headers_mut().insert(AUDIT_ID, id);
        }
        let status = self.status(response.status(), refused, named);
        if self.who.is_none() {
            // Kubernetes has this one alone of those who were not recognized.
            return self.write(Stage::ResponseStarted, &status, named);
        }
        let goes_on = self.asked.verb == "watch" || LONG_RUNNING.contains(&self.asked.subresource.as_str());
        if !goes_on {
            return self.write(Stage::ResponseComplete, &status, named);
        }
        self.write(Stage::ResponseStarted, &status, named);
        response.body_mut().keep(Unfinished { trail: self, status, named: named.clone() });
    }

    /// Writes the event of a request whose client did not wait for the answer.
    pub(crate) fn abandon(self, named: &Named) {
        // As Kubernetes says it; how it would have ended, nobody knows.
        let status = json!({ "metadata": {}, "message": "Connection closed early" });
        self.write(Stage::ResponseComplete, &status, named);
    }

    fn status(&self, code: StatusCode, refused: Option<&Status>, named: &Named) -> Value {
        let mut status = match (refused, &named.status) {
            (Some(refused), _) => refused.to_json(),
            (None, Some(told)) => told.clone(),
            (None, None) => json!({ "metadata": {} }),
        };
        if let Some(map) = status.as_object_mut() {
            map.remove("kind");
            map.remove("apiVersion");
            map.insert("code".to_owned(), code.as_u16().into());
        }
        status
    }

    fn write(&self, stage: Stage, status: &Value, named: &Named) {
        let mut annotations = BTreeMap::new();
        if let Some(Decision { allowed, reason }) = &self.decision {
            annotations.insert(DECISION, if *allowed { "allow" } else { "forbid" });
            annotations.insert(REASON, reason.as_str());
        }
        let event = Event {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: "Metadata",
            audit_id: &self.id,
            stage,
            request_uri: &self.uri,
            verb: &self.asked.verb,
            user: self.who.as_ref().map(User::from).unwrap_or_default(),
            impersonated_user: self.acting.as_ref().map(User::from),
            source_ips: &self.sources,
            user_agent: &self.agent,
            object_ref: self.object(named),
            response_status: status.clone(),
            request_received_timestamp: self.received,
            stage_timestamp: self.clock.now(),
            annotations,
        };
        if let Ok(mut line) = serde_json::to_vec(&event) {
            line.push(b'\n');
            self.log.write(line);
        }
    }

    /// What the path names, else what the body does.
    fn object<'a>(&'a self, named: &'a Named) -> Option<ObjectRef<'a>> {
        let Asked { group, version, resource, subresource, namespace, name, .. } = &self.asked;
        let or = |path: &'a str, body: &'a str| if path.is_empty() { body } else { path };
        (!resource.is_empty()).then(|| ObjectRef {
            resource,
            namespace: or(namespace, &named.namespace),
            name: or(name, &named.name),
            uid: &named.uid,
            api_group: group,
            api_version: version,
            resource_version: &named.version,
            subresource,
        })
    }
}

/// An answer that goes on; it ends when it is let go of.
struct Unfinished {
    trail: Trail,
    status: Value,
    named: Named,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.trail.write(Stage::ResponseComplete, &self.status, &self.named);
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn agent(told: &str) -> String {
    match told.get(..LONGEST_AGENT).filter(|_| told.len() > LONGEST_AGENT) {
        Some(start) => format!("{start}...TRUNCATED"),
        None => told.to_owned(),
    }
}

/// Whom proxies name, in their order, then who is connected. All but the last is hearsay.
fn sources(headers: &HeaderMap, peer: Option<Peer>) -> Vec<String> {
    let address = |text: &str| text.trim().parse::<IpAddr>().ok();
    let mut all: Vec<IpAddr> = text(headers, "x-forwarded-for").split(',').filter_map(address).collect();
    all.extend(address(text(headers, "x-real-ip")).filter(|real| !all.contains(real)));
    all.extend(peer.map(|Peer(peer)| peer).filter(|peer| all.last() != Some(peer)));
    all.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(headers: &[(&'static str, &'static str)], peer: Option<&str>) -> Vec<String> {
        let headers =
            headers.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect();
        sources(&headers, peer.map(|peer| Peer(peer.parse().unwrap())))
    }

    #[test]
    fn the_last_source_is_who_is_connected() {
        assert_eq!(of(&[], Some("10.0.0.1")), ["10.0.0.1"]);
        assert!(of(&[], None).is_empty());
        let proxied = [("x-forwarded-for", "10.0.0.9, x, ::1"), ("x-real-ip", "10.0.0.8")];
        assert_eq!(of(&proxied, Some("10.0.0.1")), ["10.0.0.9", "::1", "10.0.0.8", "10.0.0.1"]);
        let same = [("x-forwarded-for", "10.0.0.9"), ("x-real-ip", "10.0.0.9")];
        assert_eq!(of(&same, Some("10.0.0.9")), ["10.0.0.9"]);
    }

    #[test]
    fn what_a_client_says_of_itself_is_cut() {
        assert_eq!(agent("kubectl"), "kubectl");
        let long = agent(&"x".repeat(2000));
        assert!(long.len() == LONGEST_AGENT + 12 && long.ends_with("x...TRUNCATED"));
    }
}
