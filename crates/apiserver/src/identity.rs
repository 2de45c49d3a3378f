//! Who asks, whether they may, and what else is said about a write.

use std::collections::BTreeMap;
use std::future::ready;
use std::pin::Pin;

use serde_json::{Value, json};

use crate::registry::table_name;
use crate::server::ApiServer;
use crate::status::Status;
use crate::store::{Key, Snapshot};

/// Members may do everything.
pub const MASTERS: &str = "system:masters";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const ANONYMOUS: &str = "system:anonymous";
const ACCOUNT: &str = "system:serviceaccount:";

/// Who makes a request. Callers in the same process put one into the request's extensions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The user's name.
    pub user: String,
    /// The groups that the user is in.
    pub groups: Vec<String>,
    /// Which of all users that ever had this name; empty if nobody tells.
    pub uid: String,
    /// What else is known.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Identity {
    /// A user who proved it.
    #[must_use]
    pub fn new(user: impl Into<String>, groups: impl IntoIterator<Item = String>) -> Self {
        let groups = groups.into_iter().chain([AUTHENTICATED.to_owned()]).collect();
        Self { user: user.into(), groups, ..Self::default() }
    }

    /// A user who is taken for known, in groups of which some may say so already.
    pub(crate) fn among(user: String, mut groups: Vec<String>) -> Self {
        if !groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        Self { user, groups, ..Self::default() }
    }

    /// A service account.
    #[must_use]
    pub fn account(namespace: &str, name: &str) -> Self {
        let all = "system:serviceaccounts";
        Self::new(Self::account_user(namespace, name), [all.to_owned(), format!("{all}:{namespace}")])
    }

    /// What a service account is called as a user.
    pub(crate) fn account_user(namespace: &str, name: &str) -> String {
        format!("{ACCOUNT}{namespace}:{name}")
    }

    /// Namespace and name of the service account that a user is, if it is one.
    pub(crate) fn as_account(user: &str) -> Option<(&str, &str)> {
        let (namespace, name) = user.strip_prefix(ACCOUNT)?.split_once(':')?;
        (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
    }

    /// As reviews show it.
    pub(crate) fn to_json(&self) -> Value {
        let mut shown = json!({ "username": self.user, "groups": self.groups });
        if !self.uid.is_empty() {
            shown["uid"] = self.uid.clone().into();
        }
        if !self.extra.is_empty() {
            shown["extra"] = json!(self.extra);
        }
        shown
    }

    /// The administrator that the server makes for itself.
    #[must_use]
    pub fn admin() -> Self {
        Self::new("kubernetes-admin", [MASTERS.to_owned()])
    }

    /// Nobody in particular.
    #[must_use]
    pub fn anonymous() -> Self {
        Self { user: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..Self::default() }
    }

    /// Whether nothing is known about it.
    #[must_use]
    pub fn is_anonymous(&self) -> bool {
        self.groups.iter().any(|group| group == UNAUTHENTICATED)
    }
}

/// What a request would do.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// `get`, `list`, `create`, ...; for other paths the HTTP method in lower case.
    pub verb: &'a str,
    /// Group of the resource; empty is the core group.
    pub group: &'a str,
    /// Version of the resource.
    pub version: &'a str,
    /// Plural name of the resource; empty for other paths.
    pub resource: &'a str,
    /// Such as `status`; empty for the resource itself.
    pub subresource: &'a str,
    /// Empty for cluster-wide requests. A namespace is in itself.
    pub namespace: &'a str,
    /// Empty for creations, and for lists unless they select one name.
    pub name: &'a str,
    /// The path, where no resource is asked for.
    pub path: &'a str,
}

/// What came of a request for permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether it may be done.
    pub allowed: bool,
    /// Why, as reviews and refusals tell it; may be empty.
    pub reason: String,
}

impl Decision {
    /// It may be done.
    #[must_use]
    pub fn allowed(reason: impl Into<String>) -> Self {
        Self { allowed: true, reason: reason.into() }
    }

    /// It may not be done.
    #[must_use]
    pub fn refused(reason: impl Into<String>) -> Self {
        Self { allowed: false, reason: reason.into() }
    }
}

/// Decides who may do what.
pub trait Authorizer: Send + Sync {
    /// Whether the request is allowed, on what is stored now.
    fn decide(&self, who: &Identity, what: Attributes<'_>, stored: Stored<'_>) -> Decision;
}

/// A write on its way to the store.
#[derive(Debug)]
pub struct Review<'a> {
    /// Who asks.
    pub identity: &'a Identity,
    /// What is asked for; its verb is `create`, `update` or `delete`.
    pub attributes: Attributes<'a>,
    /// The object before the change; none on creation.
    pub old: Option<&'a Value>,
    /// Whether nothing will be stored.
    pub dry_run: bool,
    /// What is stored now.
    pub stored: Stored<'a>,
}

/// All objects as they are at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a>(pub(crate) &'a Snapshot);

impl Stored<'_> {
    /// An object by its resource's plural name, without `apiVersion` and `kind`; none if there is none. `namespace` is empty
    /// for cluster-wide kinds.
    #[must_use]
    pub fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let found = self.0.get(&table_name(group, resource), &Key::new(namespace, name))?;
        // What the store has can be read.
        found.value().ok()
    }

    /// All objects of a resource, in the order of their namespaces and names.
    #[must_use]
    pub fn all(&self, group: &str, resource: &str) -> Vec<Value> {
        self.0.objects(&table_name(group, resource)).values().filter_map(|found| found.value().ok()).collect()
    }

    /// How many objects of a resource there are.
    #[must_use]
    pub fn count(&self, group: &str, resource: &str) -> usize {
        self.0.objects(&table_name(group, resource)).len()
    }
}

/// Has a say about every write: changes what is written, warns, or refuses.
pub trait Admission: Send + Sync {
    /// May change a new version of an object; deletions have none.
    ///
    /// # Errors
    /// Refuses the write.
    fn admit(&self, review: &Review<'_>, object: Option<&mut Value>, warnings: &mut Vec<String>) -> Result<(), Status>;

    /// The same about an eviction, before any disruption budget has its say: the attributes name the pod. It may write to the
    /// server meanwhile, so that what is in the pod is moved instead; a dry run must not.
    fn evict<'a>(&'a self, eviction: Eviction<'a>) -> Pin<Box<dyn Future<Output = Result<(), Status>> + Send + 'a>> {
        let Eviction { review, object, warnings, server: _ } = eviction;
        Box::pin(ready(self.admit(review, Some(object), warnings)))
    }
}

/// An eviction that is asked for.
pub struct Eviction<'a> {
    /// The request: a `create` of `pods/eviction`.
    pub review: &'a Review<'a>,
    /// The `Eviction` that was sent.
    pub object: &'a mut Value,
    /// What the client should hear.
    pub warnings: &'a mut Vec<String>,
    /// The server itself.
    pub server: ApiServer,
}
