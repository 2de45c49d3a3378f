//! One file per verb. Each takes a [`Call`] and gives an answer or a refusal.

mod binding;
mod content;
mod create;
mod delete;
mod eviction;
mod get;
mod list;
mod log;
mod patch;
mod review;
mod scale;
mod selection;
mod token;
mod update;
mod watch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use serde_json::Value;

use crate::body::Body;
use crate::identity::{Attributes, Eviction, Identity, Review, Stored};
use crate::negotiate::{Encoding, Representation, View};
use crate::rbac;
use crate::registry::{Resource, Version};
use crate::render::Renderer;
use crate::request::{Query, Target};
use crate::served::Written;
use crate::server::{ApiServer, Inner};
use crate::status::Status;
use crate::store::{Key, Object, WriteError};

pub(crate) use delete::delete_everything;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use patch::Patch;

/// A request for a resource, everything about it known.
pub(crate) struct Call {
    pub(crate) server: Arc<Inner>,
    pub(crate) resource: Arc<Resource>,
    pub(crate) version: Arc<Version>,
    pub(crate) target: Target,
    pub(crate) query: Query,
    pub(crate) identity: Identity,
    pub(crate) representation: Representation,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Told to the client in `Warning` headers, even when the request is refused.
    pub(crate) warnings: Warnings,
    /// What comes of it, for the log.
    pub(crate) written: Written,
}

/// Warnings, shared with whoever writes the answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    fn list(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, warning: String) {
        self.list().push(warning);
    }

    /// `Warning: 299 - "text"`. Together they are no longer than Kubernetes' are: where they would be, each is cut short,
    /// and those that still do not fit are left out.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap) {
        const MOST: usize = 4096;
        const SHORT: usize = 256;
        let list = self.list();
        let all: usize = list.iter().map(String::len).sum();
        let longest = if all > MOST { SHORT } else { MOST };
        let mut room = MOST;
        for text in list.iter() {
            let text: String = text.chars().filter(|c| !c.is_control()).take(longest).collect();
            let Some(left) = room.checked_sub(text.len()) else { return };
            room = left;
            let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
                headers.append(header::WARNING, value);
            }
        }
    }
}

/// What a request does, in Kubernetes' words.
pub(crate) fn verb(method: &Method, target: &Target, query: &Query) -> Option<&'static str> {
    let named = target.name.is_some();
    Some(match (method.as_str(), named) {
        ("GET", false) if target.watch || query.flag("watch") => "watch",
        ("GET", true) if target.watch => "watch",
        ("GET", false) => "list",
        ("GET", true) => "get",
        ("POST", _) => "create",
        ("PUT", true) => "update",
        ("PATCH", true) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        _ => return None,
    })
}

/// Does what the call asks for.
pub(crate) async fn run(mut call: Call, verb: &'static str) -> Result<Response<Body>, Status> {
    if let Some(warning) = call.version.deprecation.clone() {
        call.warnings.push(warning);
    }
    if let Some(sub) = call.target.subresource.clone() {
        let known = call.version.subresources.iter().find(|one| one.name == sub);
        let unknown = || if call.resource.is_custom() { call.not_found() } else { Status::not_served() };
        let known = known.ok_or_else(unknown)?;
        if !known.verbs.contains(&verb) {
            return Err(Status::method_not_allowed());
        }
        return match (sub.as_str(), verb) {
            ("scale", _) => scale::run(call, verb).await,
            ("binding", _) => binding::run(call).await,
            ("eviction", _) => eviction::run(call).await,
            ("log", _) => log::run(&call),
            ("token", _) => token::run(&mut call),
            (_, "get") => get::run(&call),
            (_, "update") => update::run(call).await,
            (_, "patch") => patch::run(call).await,
            _ => Err(Status::method_not_allowed()),
        };
    }
    if !call.resource.verbs.contains(&verb) {
        return Err(Status::method_not_allowed());
    }
    match verb {
        "get" => get::run(&call),
        "list" => list::run(&call),
        "watch" => watch::run(&call),
        "create" if review::is_review(&call.resource) => review::run(&mut call),
        "create" if call.resource.plural == "bindings" => binding::run(call).await,
        "create" => create::run(call).await,
        "update" => update::run(call).await,
        "patch" => patch::run(call).await,
        "delete" => delete::run(call).await,
        _ => delete::collection(call).await,
    }
}

impl Call {
    pub(crate) fn namespace(&self) -> &str {
        self.target.namespace.as_deref().unwrap_or_default()
    }

    pub(crate) fn name(&self) -> &str {
        self.target.name.as_deref().unwrap_or_default()
    }

    fn key(&self) -> Key {
        Key::new(self.namespace(), self.name())
    }

    fn renderer(&self) -> Renderer {
        Renderer::new(self.resource.clone(), &self.version.name)
    }

    fn not_found(&self) -> Status {
        Status::not_found(self.resource.subject(), self.name())
    }

    /// The current object.
    fn current(&self) -> Result<Arc<Object>, Status> {
        let snapshot = self.server.store.snapshot();
        snapshot.get(&self.resource.table, &self.key()).cloned().ok_or_else(|| self.not_found())
    }

    /// Why a write of an object with this name was not made, to a client that cannot do anything about a race.
    fn refusal(&self, error: WriteError, name: &str) -> Status {
        let subject = self.resource.subject();
        let namespaces = crate::status::Subject { group: "", resource: "namespaces", kind: "Namespace" };
        match error {
            WriteError::Exists => Status::already_exists(subject, name),
            WriteError::Changed => Status::modified(subject, name),
            WriteError::Gone => Status::not_found(subject, name),
            WriteError::NoNamespace => Status::not_found(namespaces, self.namespace()),
            WriteError::NamespaceTerminating => {
                let namespace = self.namespace();
                let why =
                    format!("unable to create new content in namespace {namespace} because it is being terminated");
                let cause = format!("namespace {namespace} is being terminated");
                Status::forbidden(subject, name, why).with_field_cause(
                    "NamespaceTerminating",
                    &cause,
                    "metadata.namespace",
                )
            }
            WriteError::NoDefinition => Status::not_served(),
            WriteError::DefinitionTerminating => Status::definition_terminating(subject),
            WriteError::Full(_) => Status::no_room(format!("{error}; delete unneeded objects, or raise --store-quota")),
            WriteError::NoSpace => Status::no_room(format!("{error}; free some space, or delete objects")),
            WriteError::Failed(reason) => Status::internal(reason),
        }
    }

    /// Asks the admission chain about a write.
    fn admit(
        &mut self,
        verb: &str,
        old: Option<&Value>,
        mut new: Option<&mut Value>,
        dry_run: bool,
    ) -> Result<(), Status> {
        let attributes = self.attributes(verb);
        let snapshot = self.server.store.snapshot();
        let review = Review { identity: &self.identity, attributes, old, dry_run, stored: Stored(&snapshot) };
        for one in &self.server.admission {
            one.admit(&review, new.as_deref_mut(), &mut self.warnings.list())?;
        }
        Ok(())
    }

    /// Asks the admission chain about an eviction.
    async fn admit_eviction(&mut self, object: &mut Value, dry_run: bool) -> Result<(), Status> {
        let (attributes, snapshot) = (self.attributes("create"), self.server.store.snapshot());
        let review = Review { identity: &self.identity, attributes, old: None, dry_run, stored: Stored(&snapshot) };
        let mut warnings = Vec::new();
        let mut outcome = Ok(());
        for one in &self.server.admission {
            let server = ApiServer { inner: self.server.clone() };
            outcome = one.evict(Eviction { review: &review, object, warnings: &mut warnings, server }).await;
            if outcome.is_err() {
                break;
            }
        }
        self.warnings.list().append(&mut warnings);
        outcome
    }

    fn attributes<'a>(&'a self, verb: &'a str) -> Attributes<'a> {
        Attributes {
            verb,
            group: &self.resource.group,
            version: &self.version.name,
            resource: &self.resource.plural,
            subresource: self.target.subresource.as_deref().unwrap_or_default(),
            namespace: self.target.namespace.as_deref().unwrap_or_default(),
            name: self.target.name.as_deref().unwrap_or_default(),
            path: "",
        }
    }

    /// Refuses a role or binding that gives more than its writer has.
    fn confirm_grant(&self, old: Option<&Value>, new: &Value) -> Result<(), Status> {
        if self.resource.group != rbac::GROUP {
            return Ok(());
        }
        let place = (self.resource.plural.as_str(), self.namespace(), self.name());
        rbac::confirm(&self.server, &self.identity, place, old, new)
    }

    /// An answer with one object.
    fn answer(&self, code: StatusCode, object: &Object) -> Result<Response<Body>, Status> {
        if let Some(problem) = object.draft.problem() {
            return Err(Status::internal(format!("the object is unreadable and can only be deleted: {problem}")));
        }
        let renderer = self.renderer();
        let mut out = Vec::new();
        match self.representation.view {
            View::Whole => renderer.object(&mut out, object)?,
            View::Metadata => renderer.metadata(&mut out, object),
            View::MetadataList => {
                return Err(not_shown(
                    "you requested PartialObjectMetadataList, but the requested object is not a list",
                ));
            }
            View::Table => {
                let include = crate::table::Include::parse(self.query.get("includeObject"))?;
                let table = crate::table::Tables::new(renderer, include, self.server.clock.now());
                let document = table.document(&[object], &object.revision.to_string())?;
                serde_json::to_writer(&mut out, &document).map_err(Status::internal)?;
            }
        }
        Ok(self.respond(code, out))
    }

    /// An answer with a value that is not stored.
    fn answer_value(&self, code: StatusCode, value: &Value) -> Result<Response<Body>, Status> {
        self.written.answered(value);
        let out = serde_json::to_vec(value).map_err(Status::internal)?;
        Ok(self.respond(code, out))
    }

    fn respond(&self, code: StatusCode, mut json: Vec<u8>) -> Response<Body> {
        let encoding = self.representation.encoding;
        let bytes = match encoding {
            Encoding::Json => {
                json.push(b'\n');
                json
            }
            Encoding::Yaml => yaml(&json).unwrap_or(json),
        };
        let mut response = Response::new(Body::whole(bytes));
        *response.status_mut() = code;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(encoding.media_type()));
        self.warnings.add_to(response.headers_mut());
        response
    }
}

/// A form that the answer cannot take.
fn not_shown(message: &str) -> Status {
    Status::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
}

fn yaml(json: &[u8]) -> Option<Vec<u8>> {
    let value: Value = serde_json::from_slice(json).ok()?;
    serde_saphyr::to_string(&value).ok().map(String::into_bytes)
}
