//! Whether a request may go on, and the refusal if not.

use http::{Method, StatusCode};

use crate::identity::{Attributes, Decision, Identity};
use crate::request::{Query, Target};
use crate::selector::FieldSelector;
use crate::server::Inner;
use crate::status::{Status, Subject};
use crate::verbs;

/// What a request would do, in words of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) verb: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) path: String,
}

impl Asked {
    /// Of a path that is not about objects.
    pub(super) fn of_path(path: &str, method: &Method) -> Self {
        Self { verb: method.as_str().to_lowercase(), path: path.to_owned(), ..Self::default() }
    }

    /// Of objects.
    pub(crate) fn of_resource(verb: &str, target: &Target, query: &Query) -> Self {
        // What follows a subresource in the path is its own affair.
        let subresource = target.subresource.as_deref().and_then(|sub| sub.split('/').next()).unwrap_or_default();
        let selected = if matches!(verb, "list" | "watch") { selected_name(query) } else { None };
        Self {
            verb: verb.to_owned(),
            group: target.group.clone(),
            version: target.version.clone(),
            resource: target.resource.clone(),
            subresource: subresource.to_owned(),
            namespace: namespace(target).to_owned(),
            name: target.name.clone().or(selected).unwrap_or_default(),
            path: String::new(),
        }
    }

    /// `pods`, `pods/status`, `deployments.apps`.
    pub(crate) fn qualified(&self) -> String {
        let Self { group, resource, subresource, .. } = self;
        let parts = [(".", group), ("/", subresource)];
        let parts = parts.into_iter().filter(|(_, part)| !part.is_empty());
        parts.fold(resource.clone(), |text, (before, part)| text + before + part)
    }

    fn attributes(&self) -> Attributes<'_> {
        Attributes {
            verb: &self.verb,
            group: &self.group,
            version: &self.version,
            resource: &self.resource,
            subresource: &self.subresource,
            namespace: &self.namespace,
            name: &self.name,
            path: &self.path,
        }
    }

    /// Whether it may go on.
    ///
    /// # Errors
    /// The refusal, if not.
    pub(crate) fn check(&self, server: &Inner, who: &Identity) -> Result<(), Status> {
        self.enforce(&self.judge(server, who), who)
    }

    /// What is decided about it.
    pub(super) fn judge(&self, server: &Inner, who: &Identity) -> Decision {
        let decision = server.decide(who, self.attributes());
        if let Some(told) = &server.decisions {
            told(who, self.attributes(), &decision);
        }
        decision
    }

    /// The refusal that a decision means, if it means one.
    pub(super) fn enforce(&self, decision: &Decision, who: &Identity) -> Result<(), Status> {
        if decision.allowed {
            return Ok(());
        }
        if !self.resource.is_empty() {
            return Err(not_allowed(who, self.attributes(), &decision.reason));
        }
        let mut message = format!("forbidden: User \"{}\" cannot {} path \"{}\"", who.user, self.verb, self.path);
        add(&mut message, &decision.reason);
        Err(Status::new(StatusCode::FORBIDDEN, "Forbidden", message).with_empty_details())
    }
}

/// What a request does, whoever answers it: another service may know methods that this server does not.
pub(super) fn verb(method: &Method, target: &Target, query: &Query) -> &'static str {
    let plain = || match method.as_str() {
        "HEAD" if target.name.is_some() => "get",
        "HEAD" => "list",
        "PUT" => "update",
        "PATCH" => "patch",
        _ => "",
    };
    verbs::verb(method, target, query).unwrap_or_else(plain)
}

/// A namespace is in itself: whoever rules in one may be given a say about it.
fn namespace(target: &Target) -> &str {
    let own = || target.name.as_deref().filter(|_| target.resource == "namespaces");
    target.namespace.as_deref().or_else(own).unwrap_or_default()
}

/// The name that a list is about, where its selector leaves but one.
fn selected_name(query: &Query) -> Option<String> {
    let selector = FieldSelector::parse(query.get("fieldSelector")?).ok()?;
    let term = selector.requirements.into_iter().find(|one| one.field == "metadata.name" && one.equal)?;
    let is_segment = !matches!(term.value.as_str(), "." | "..") && !term.value.contains(['/', '%']);
    is_segment.then_some(term.value)
}

/// The refusal of something that somebody may not do.
pub(crate) fn not_allowed(who: &Identity, what: Attributes<'_>, reason: &str) -> Status {
    let full = match what.subresource {
        "" => what.resource.to_owned(),
        sub => format!("{}/{sub}", what.resource),
    };
    let place = match what.namespace {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace \"{namespace}\""),
    };
    let (user, verb, group) = (&who.user, what.verb, what.group);
    let mut problem = format!("User \"{user}\" cannot {verb} resource \"{full}\" in API group \"{group}\" {place}");
    add(&mut problem, reason);
    Status::forbidden(Subject { group, resource: what.resource, kind: "" }, what.name, problem)
}

fn add(message: &mut String, reason: &str) {
    if !reason.is_empty() {
        message.push_str(": ");
        message.push_str(reason);
    }
}
