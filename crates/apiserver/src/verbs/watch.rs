//! WATCH: changes as they happen, each once, in the order of their revisions.
//!
//! A watch has no queue: it reads the table's history at the pace of its client. One that falls behind the history's
//! start gets 410 and ends, and costs nobody anything meanwhile.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Response, header};
use serde_json::{Value, json};
use structural::Reason;
use tokio::time::{Instant, sleep_until};

use super::Call;
use super::selection::{Selection, revision};
use crate::body::Body;
use crate::metrics::Lasting;
use crate::negotiate::View;
use crate::registry::Resource;
use crate::render::Renderer;
use crate::server::Inner;
use crate::signal::Follower;
use crate::status::Status;
use crate::store::{Change, Event, Events, History, Key, Object};
use crate::table::{Include, Tables};

/// Frames that leave in one piece, at most.
const PIECE: usize = 64 << 10;
/// Changes taken from the history at a time.
const AT_ONCE: usize = 256;
/// How often an idle client is told how far it is.
const BOOKMARKS: Duration = Duration::from_secs(60);
/// Watches end after this long, plus up to as much again, so that they do not all end together.
const LONGEST: Duration = Duration::from_secs(1800);

pub(super) fn run(call: &Call) -> Result<Response<Body>, Status> {
    if call.representation.encoding == crate::negotiate::Encoding::Yaml {
        return Err(Status::not_acceptable(&["application/json"]));
    }
    let selection = Selection::of(call)?;
    let options = Options::of(call)?;
    let include = Include::parse(call.query.get("includeObject"))?;
    let renderer = call.renderer();
    let tables = (call.representation.view == View::Table)
        .then(|| Tables::new(renderer.clone(), include, call.server.clock.now()));
    let snapshot = call.server.store.snapshot();
    let history = call.server.store.history(&call.resource.table);
    let mut watcher = Watcher {
        changes: history.follow(),
        registry: call.server.registry_changes.follow(),
        initial: VecDeque::new(),
        initial_end: None,
        cursor: options.from.unwrap_or(snapshot.revision),
        deadline: Instant::now() + options.timeout,
        next_bookmark: options.bookmarks.then(|| Instant::now() + BOOKMARKS),
        told: 0,
        ended: false,
        view: call.representation.view,
        renderer,
        tables,
        selection,
        history,
        server: call.server.clone(),
        resource: call.resource.clone(),
        _counted: call.server.metrics.watching(),
    };
    // Of a definition that went or changed meanwhile nothing more is heard.
    watcher.ended = !watcher.is_served();
    if let Some(asked) = options.at_least
        && asked > snapshot.revision
    {
        return Err(Status::too_large_resource_version(asked, snapshot.revision));
    }
    if options.initial {
        let objects = snapshot.objects(&call.resource.table);
        let matching = objects.iter().filter(|(key, object)| watcher.selection.matches(key, object));
        watcher.initial = matching.map(|(_, object)| object.clone()).collect();
        watcher.cursor = snapshot.revision;
        watcher.initial_end = (options.mark_end).then_some(snapshot.revision);
    }
    let pieces = stream::unfold(watcher, |mut watcher| async move {
        let piece = watcher.next().await?;
        Some((piece, watcher))
    });
    let mut response = Response::new(Body::stream(pieces));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    call.warnings.add_to(response.headers_mut());
    Ok(response)
}

/// What kind of watch is asked for.
struct Options {
    /// Changes after this revision; none is from now.
    from: Option<u64>,
    /// Everything that is there now first, as additions.
    initial: bool,
    /// A bookmark says when that is done.
    mark_end: bool,
    at_least: Option<u64>,
    bookmarks: bool,
    timeout: Duration,
}

impl Options {
    fn of(call: &Call) -> Result<Self, Status> {
        let query = &call.query;
        let asked = revision(query)?;
        let matching = query.get("resourceVersionMatch").filter(|text| !text.is_empty());
        let initial = query.optional_flag("sendInitialEvents").filter(|_| query.get("sendInitialEvents") != Some(""));
        let bookmarks = query.flag("allowWatchBookmarks");
        check(initial, matching)?;
        let timeout = match query.number("timeoutSeconds")? {
            Some(seconds) if seconds > 0 => Duration::from_secs(seconds.unsigned_abs().min(86_400)),
            _ => LONGEST + call.server.chance.part_of(LONGEST),
        };
        let fresh = asked.is_none_or(|asked| asked == 0);
        Ok(match initial {
            Some(true) => Self { from: None, initial: true, mark_end: bookmarks, at_least: asked, bookmarks, timeout },
            Some(false) => Self {
                from: asked.filter(|_| !fresh),
                initial: false,
                mark_end: false,
                at_least: None,
                bookmarks,
                timeout,
            },
            None => Self {
                from: asked.filter(|_| !fresh),
                initial: fresh,
                mark_end: false,
                at_least: None,
                bookmarks,
                timeout,
            },
        })
    }
}

fn check(initial: Option<bool>, matching: Option<&str>) -> Result<(), Status> {
    let problem = match (initial, matching) {
        (None, None) | (Some(_), Some("NotOlderThan")) => return Ok(()),
        (None, Some(_)) => (
            Reason::Forbidden,
            "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided".to_owned(),
        ),
        (Some(_), None) => (
            Reason::Forbidden,
            "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan".to_owned(),
        ),
        (Some(_), Some(_)) => (
            Reason::Forbidden,
            "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan".to_owned(),
        ),
    };
    let error = |reason, message| structural::FieldError { field: "resourceVersionMatch".to_owned(), reason, message };
    let mut errors = vec![error(problem.0, problem.1)];
    if let (Some(_), Some(other)) = (initial, matching) {
        let message = format!("Unsupported value: \"{other}\": supported values: \"NotOlderThan\"");
        errors.push(error(Reason::NotSupported, message));
    }
    let subject = crate::status::Subject { group: "meta.k8s.io", resource: "", kind: "ListOptions" };
    Err(Status::invalid(subject, "", &errors))
}

/// One watch on its way through the history.
struct Watcher {
    server: Arc<Inner>,
    resource: Arc<Resource>,
    history: Arc<History>,
    changes: Follower,
    registry: Follower,
    selection: Selection,
    renderer: Renderer,
    tables: Option<Tables>,
    view: View,
    initial: VecDeque<Arc<Object>>,
    initial_end: Option<u64>,
    /// All changes up to here were sent or do not matter.
    cursor: u64,
    /// The revision in the last bookmark.
    told: u64,
    next_bookmark: Option<Instant>,
    deadline: Instant,
    ended: bool,
    _counted: Lasting,
}

impl Watcher {
    /// The next piece; none at the end.
    async fn next(&mut self) -> Option<Bytes> {
        let mut out = Vec::new();
        loop {
            if self.ended {
                return (!out.is_empty()).then(|| out.into());
            }
            if let Err(status) = self.advance(&mut out) {
                self.fail(&mut out, &status);
            }
            if !out.is_empty() {
                return Some(out.into());
            }
            self.wait(&mut out).await;
        }
    }

    /// Writes what is there to say now.
    fn advance(&mut self, out: &mut Vec<u8>) -> Result<(), Status> {
        while let Some(object) = self.initial.pop_front() {
            self.frame(out, "ADDED", &object)?;
            if out.len() >= PIECE {
                return Ok(());
            }
        }
        if let Some(revision) = self.initial_end.take() {
            self.bookmark(out, revision, true);
        }
        loop {
            // No further than a get would see.
            let latest = self.server.store.snapshot().revision;
            match self.history.between(self.cursor, latest, AT_ONCE) {
                Events::TooOld => {
                    let start = self.history.start();
                    return Err(Status::expired(format!("too old resource version: {} ({start})", self.cursor)));
                }
                Events::Some(events) => {
                    let all = events.len() < AT_ONCE;
                    for event in events {
                        self.cursor = event.object.revision;
                        self.event(out, event)?;
                    }
                    if all {
                        self.cursor = self.cursor.max(latest);
                    }
                    if all || out.len() >= PIECE {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Waits until there may be something to say.
    async fn wait(&mut self, out: &mut Vec<u8>) {
        let bookmark = self.next_bookmark.unwrap_or(self.deadline);
        tokio::select! {
            biased;
            // Changes before the end: what happened in time is told.
            _ = self.changes.changed() => {}
            _ = self.registry.changed() => {
                // The definition changed or went: clients come back and find what is served now.
                self.ended = !self.is_served();
            }
            () = sleep_until(self.deadline) => {
                if self.next_bookmark.is_some() {
                    self.bookmark(out, self.cursor, false);
                }
                self.ended = true;
            }
            () = sleep_until(bookmark), if self.next_bookmark.is_some() => {
                self.next_bookmark = Some(Instant::now() + BOOKMARKS);
                if self.cursor > self.told {
                    self.bookmark(out, self.cursor, false);
                }
            }
        }
    }

    fn is_served(&self) -> bool {
        let now = self.server.registry.load();
        let current = now.get(&self.resource.group, &self.resource.plural);
        current.is_some_and(|current| Arc::ptr_eq(current, &self.resource))
    }

    /// A change, as it looks through the selection: what comes into it is added, what leaves it deleted.
    fn event(&mut self, out: &mut Vec<u8>, event: Event) -> Result<(), Status> {
        let Event { change, key, object, previous } = event;
        let was = previous.filter(|previous| self.selects(&key, previous));
        let is = change != Change::Deleted && self.selects(&key, &object);
        match (was, is) {
            (None, false) => Ok(()),
            (None, true) => self.frame(out, "ADDED", &object),
            (Some(_), true) => self.frame(out, "MODIFIED", &object),
            (Some(was), false) => {
                let last = Object { revision: object.revision, draft: was.draft.clone() };
                self.frame(out, "DELETED", &last)
            }
        }
    }

    fn selects(&self, key: &Key, object: &Object) -> bool {
        object.draft.is_readable() && (self.selection.is_everything() || self.selection.matches(key, object))
    }

    fn frame(&mut self, out: &mut Vec<u8>, kind: &str, object: &Object) -> Result<(), Status> {
        out.extend_from_slice(format!("{{\"type\":\"{kind}\",\"object\":").as_bytes());
        match (&mut self.tables, self.view) {
            (Some(tables), _) => {
                let document = tables.document(&[object], &object.revision.to_string())?;
                serde_json::to_writer(&mut *out, &document).map_err(Status::internal)?;
                // Clients keep the columns of the first event.
                tables.omit_columns();
            }
            (None, View::Metadata | View::MetadataList) => self.renderer.metadata(out, object),
            (None, _) => self.renderer.object(out, object)?,
        }
        out.extend_from_slice(b"}\n");
        Ok(())
    }

    fn bookmark(&mut self, out: &mut Vec<u8>, revision: u64, initial_end: bool) {
        self.told = revision;
        let mut metadata = json!({ "resourceVersion": revision.to_string() });
        if initial_end {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let object = match self.view {
            View::Table => json!({
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": { "resourceVersion": revision.to_string() },
                "columnDefinitions": [],
                "rows": [],
            }),
            View::Metadata | View::MetadataList => {
                json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata })
            }
            View::Whole => json!({
                "kind": self.resource.kind,
                "apiVersion": self.renderer.api_version(),
                "metadata": metadata,
            }),
        };
        push(out, "BOOKMARK", &object);
    }

    fn fail(&mut self, out: &mut Vec<u8>, status: &Status) {
        push(out, "ERROR", &status.to_json());
        self.ended = true;
    }
}

fn push(out: &mut Vec<u8>, kind: &str, object: &Value) {
    out.extend_from_slice(json!({ "type": kind, "object": object }).to_string().as_bytes());
    out.push(b'\n');
}
