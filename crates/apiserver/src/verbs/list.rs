//! GET of many objects: from one moment, in pages if asked, straight from their bytes.

use std::ops::Bound;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Response, StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Call;
use super::selection::{Selection, revision};
use crate::body::Body;
use crate::negotiate::{Encoding, View};
use crate::render::Renderer;
use crate::request::Query;
use crate::status::Status;
use crate::store::{Events, Key, Object, Objects};

/// A piece of a list on the wire: large enough to be worth a write, small enough not to matter.
const PIECE: usize = 64 << 10;

pub(super) fn run(call: &Call) -> Result<Response<Body>, Status> {
    let selection = Selection::of(call)?;
    call.query.number("timeoutSeconds")?;
    if call.query.get("sendInitialEvents").is_some_and(|text| !text.is_empty()) {
        let error = structural::FieldError {
            field: "sendInitialEvents".to_owned(),
            reason: structural::Reason::Forbidden,
            message: "Forbidden: sendInitialEvents is forbidden for list".to_owned(),
        };
        let subject = crate::status::Subject { group: "meta.k8s.io", resource: "", kind: "ListOptions" };
        return Err(Status::invalid(subject, "", &[error]));
    }
    let page = Page::of(&call.query)?;
    let found = Moment::of(call, &page)?.select(&selection, &page)?;
    match (call.representation.view, call.representation.encoding) {
        (View::Metadata, _) => {
            Err(super::not_shown("you requested PartialObjectMetadata, but the requested object is a list"))
        }
        (View::Table, _) => table(call, &found),
        (_, Encoding::Yaml) => Ok(call.respond(StatusCode::OK, whole(call, &found)?)),
        (_, Encoding::Json) => stream_out(call, found),
    }
}

/// What a page of a list holds.
struct Found {
    revision: u64,
    objects: Vec<Arc<Object>>,
    next: Option<String>,
    remaining: Option<usize>,
}

impl Found {
    fn metadata(&self) -> Value {
        let mut metadata = json!({ "resourceVersion": self.revision.to_string() });
        if let Some(next) = &self.next {
            metadata["continue"] = next.as_str().into();
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        metadata
    }
}

/// Which part of which moment is asked for.
struct Page {
    limit: Option<usize>,
    after: Option<Key>,
    at: At,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Now, which is no older than any revision a client knows.
    Now {
        at_least: Option<u64>,
    },
    Exactly(u64),
}

/// What a continue token says. `revision` is left out when the rest may be of another moment.
#[derive(Serialize, Deserialize)]
struct Token {
    #[serde(rename = "v")]
    version: String,
    #[serde(rename = "rv")]
    revision: Option<u64>,
    namespace: String,
    start: String,
}

const TOKEN_VERSION: &str = "orlop/v1";

impl Page {
    fn of(query: &Query) -> Result<Self, Status> {
        let limit = query.number("limit")?.filter(|limit| *limit > 0).and_then(|limit| usize::try_from(limit).ok());
        let asked = revision(query).map_err(|mut status| {
            status.message.insert_str(0, "invalid resource version: ");
            status
        })?;
        let matching = query.get("resourceVersionMatch").unwrap_or_default();
        if let Some(token) = query.get("continue").filter(|token| !token.is_empty()) {
            let token = decode(token)?;
            if asked.is_some_and(|asked| asked != 0) {
                return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
            }
            let at = token.revision.map_or(At::Now { at_least: None }, At::Exactly);
            return Ok(Self { limit, after: Some(Key::new(&token.namespace, &token.start)), at });
        }
        let at = match (matching, asked) {
            ("", asked) => match asked {
                // A page of a list at a revision is of exactly that revision.
                Some(asked) if limit.is_some() && asked != 0 => At::Exactly(asked),
                asked => At::Now { at_least: asked },
            },
            ("NotOlderThan", Some(asked)) => At::Now { at_least: Some(asked) },
            ("Exact", Some(asked)) if asked != 0 => At::Exactly(asked),
            _ => return Err(invalid_match(matching, asked)),
        };
        Ok(Self { limit, after: None, at })
    }
}

fn invalid_match(matching: &str, asked: Option<u64>) -> Status {
    let (reason, message) = match (matching, asked) {
        ("NotOlderThan" | "Exact", None) => (
            structural::Reason::Forbidden,
            "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided".to_owned(),
        ),
        ("Exact", Some(_)) => (
            structural::Reason::Forbidden,
            "Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"".to_owned(),
        ),
        (other, _) => (
            structural::Reason::NotSupported,
            format!("Unsupported value: \"{other}\": supported values: \"Exact\", \"NotOlderThan\", \"\""),
        ),
    };
    let error = structural::FieldError { field: "resourceVersionMatch".to_owned(), reason, message };
    Status::invalid(crate::status::Subject { group: "meta.k8s.io", resource: "", kind: "ListOptions" }, "", &[error])
}

fn encode(token: &Token) -> Result<String, Status> {
    Ok(URL_SAFE_NO_PAD.encode(serde_json::to_vec(token).map_err(Status::internal)?))
}

fn decode(text: &str) -> Result<Token, Status> {
    let invalid = |why: &str| Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
    let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).map_err(|error| invalid(&error.to_string()))?;
    let token: Token = serde_json::from_slice(&bytes).map_err(|error| invalid(&error.to_string()))?;
    if token.version == TOKEN_VERSION {
        Ok(token)
    } else {
        Err(invalid("server does not recognize this encoded version"))
    }
}

/// The table at a moment: the current one, and what objects were then that have changed since.
struct Moment {
    revision: u64,
    objects: Objects,
}

impl Moment {
    fn of(call: &Call, page: &Page) -> Result<Self, Status> {
        let snapshot = call.server.store.snapshot();
        let current = snapshot.revision;
        let objects = snapshot.objects(&call.resource.table);
        match page.at {
            At::Now { at_least } => match at_least {
                Some(asked) if asked > current => Err(Status::too_large_resource_version(asked, current)),
                _ => Ok(Self { revision: current, objects }),
            },
            At::Exactly(asked) if asked > current => Err(Status::too_large_resource_version(asked, current)),
            At::Exactly(asked) => {
                let history = call.server.store.history(&call.resource.table);
                match history.between(asked, current, usize::MAX) {
                    Events::Some(events) => Ok(Self { revision: asked, objects: undo(objects, &events) }),
                    Events::TooOld => Err(too_old(page)?),
                }
            }
        }
    }
}

/// Takes back changes, the latest first. Maps are persistent: this costs what changed, not what is there.
fn undo(mut objects: Objects, events: &[crate::store::Event]) -> Objects {
    for event in events.iter().rev() {
        match &event.previous {
            Some(previous) => drop(objects.insert(event.key.clone(), previous.clone())),
            None => drop(objects.remove(&event.key)),
        }
    }
    objects
}

/// The moment is forgotten. Who is in the middle of a list may go on, at another moment.
fn too_old(page: &Page) -> Result<Status, Status> {
    let Some(after) = &page.after else {
        return Ok(Status::expired("The resourceVersion for the provided list is too old."));
    };
    let token = Token {
        version: TOKEN_VERSION.to_owned(),
        revision: None,
        namespace: after.namespace.to_string(),
        start: after.name.to_string(),
    };
    let mut status = Status::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    status.metadata_continue = Some(encode(&token)?);
    Ok(status)
}

impl Moment {
    fn select(&self, selection: &Selection, page: &Page) -> Result<Found, Status> {
        let mut found = Found { revision: self.revision, objects: Vec::new(), next: None, remaining: None };
        if page.limit.is_none()
            && page.after.is_none()
            && let Some(key) = selection.single()
        {
            let object = self.objects.get(&key).filter(|object| selection.matches(&key, object));
            found.objects.extend(object.cloned());
            return Ok(found);
        }
        let start = match (&page.after, selection.namespace()) {
            (Some(after), _) => Bound::Excluded(after.clone()),
            (None, Some(namespace)) => Bound::Included(Key::new(namespace, "")),
            (None, None) => Bound::Unbounded,
        };
        let mut last = None;
        let mut rest = 0;
        for (key, object) in self.objects.range((start, Bound::Unbounded)) {
            if selection.namespace().is_some_and(|namespace| *key.namespace != *namespace) {
                break;
            }
            if !selection.matches(key, object) {
                continue;
            }
            if page.limit.is_some_and(|limit| found.objects.len() >= limit) {
                rest += 1;
                // How many are left is told where it costs nothing; with selectors one more is enough to know.
                if selection.has_selectors() {
                    break;
                }
                continue;
            }
            found.objects.push(object.clone());
            last = Some(key);
        }
        if let (Some(last), 1..) = (last, rest) {
            let token = Token {
                version: TOKEN_VERSION.to_owned(),
                revision: Some(self.revision),
                namespace: last.namespace.to_string(),
                start: last.name.to_string(),
            };
            found.next = Some(encode(&token)?);
            found.remaining = (!selection.has_selectors()).then_some(rest);
        }
        Ok(found)
    }
}

fn head(call: &Call, found: &Found) -> Result<Vec<u8>, Status> {
    let (kind, api_version) = match call.representation.view {
        View::MetadataList => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
        _ => (call.resource.list_kind.clone(), call.renderer().api_version()),
    };
    let mut metadata = found.metadata();
    if call.resource.is_custom() && found.next.is_none() && call.representation.view == View::Whole {
        // As lists of custom objects have always said that there is no more.
        metadata["continue"] = "".into();
    }
    let metadata = serde_json::to_string(&metadata).map_err(Status::internal)?;
    Ok(format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":[")
        .into_bytes())
}

/// One more object of a list, into a piece.
fn write(renderer: &Renderer, view: View, first: bool, object: &Object, out: &mut Vec<u8>) -> Result<(), Status> {
    if !first {
        out.push(b',');
    }
    match view {
        View::MetadataList => {
            renderer.metadata(out, object);
            Ok(())
        }
        _ => renderer.item(out, object),
    }
}

fn whole(call: &Call, found: &Found) -> Result<Vec<u8>, Status> {
    let mut out = head(call, found)?;
    let renderer = call.renderer();
    for (index, object) in found.objects.iter().enumerate() {
        write(&renderer, call.representation.view, index == 0, object, &mut out)?;
    }
    out.extend_from_slice(b"]}");
    Ok(out)
}

/// Sends the list while it is put together.
fn stream_out(call: &Call, found: Found) -> Result<Response<Body>, Status> {
    let out = head(call, &found)?;
    let small: usize = found.objects.iter().map(|object| object.draft.weight()).sum();
    if small < PIECE {
        return Ok(call.respond(StatusCode::OK, whole(call, &found)?));
    }
    let (renderer, view) = (call.renderer(), call.representation.view);
    let state = (found.objects.into_iter(), Some(out), true);
    let pieces = stream::unfold(state, move |(mut objects, mut carried, mut first)| {
        let mut out = carried.take();
        let done = loop {
            let Some(buffer) = &mut out else { break true };
            if buffer.len() >= PIECE {
                break false;
            }
            let Some(object) = objects.next() else {
                buffer.extend_from_slice(b"]}\n");
                break true;
            };
            if let Err(error) = write(&renderer, view, first, &object, buffer) {
                // The head is long sent: a body that does not end well is all that can be said to the client.
                tracing::error!(%error, "cannot show an object of a list");
                break true;
            }
            first = false;
        };
        let next = (!done).then(|| Vec::with_capacity(PIECE + 8192));
        let result = out.map(|buffer| (Bytes::from(buffer), (objects, next, first)));
        std::future::ready(result)
    });
    let mut response = Response::new(Body::stream(pieces));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    call.warnings.add_to(response.headers_mut());
    Ok(response)
}

fn table(call: &Call, found: &Found) -> Result<Response<Body>, Status> {
    let include = crate::table::Include::parse(call.query.get("includeObject"))?;
    let tables = crate::table::Tables::new(call.renderer(), include, call.server.clock.now());
    let objects: Vec<&Object> = found.objects.iter().map(|object| &**object).collect();
    let mut document = tables.document(&objects, "")?;
    document["metadata"] = found.metadata();
    call.answer_value(StatusCode::OK, &document)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_token_says_what_it_was_made_of(namespace in "[a-z]{0,9}", start in "[a-z.]{1,20}", revision in prop::option::of(any::<u64>())) {
            let token = Token { version: TOKEN_VERSION.to_owned(), revision, namespace: namespace.clone(), start: start.clone() };
            let read = decode(&encode(&token).unwrap()).unwrap();
            prop_assert_eq!((read.revision, read.namespace, read.start), (revision, namespace, start));
        }

        #[test]
        fn no_token_makes_it_panic(text in "\\PC{0,40}") {
            let _ = decode(&text);
            let _ = decode(&URL_SAFE_NO_PAD.encode(text));
        }
    }
}
