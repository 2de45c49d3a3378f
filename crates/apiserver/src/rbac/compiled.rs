//! Roles and bindings in a form that answers quickly.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;

use super::rule::{Rule, list};
use crate::identity::Identity;
use crate::store::{Key, Object, Objects, Snapshot};

pub(super) const ROLES: &str = "roles.rbac.authorization.k8s.io";
pub(super) const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
pub(super) const BINDINGS: &str = "rolebindings.rbac.authorization.k8s.io";
pub(super) const CLUSTER_BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";
const TABLES: [&str; 4] = [ROLES, CLUSTER_ROLES, BINDINGS, CLUSTER_BINDINGS];

/// All grants of one moment.
#[derive(Default)]
pub(super) struct Compiled {
    /// What it was made of.
    tables: [Objects; 4],
    /// What was read, by revision: no two versions of objects share one.
    roles: BTreeMap<u64, Arc<[Rule]>>,
    bindings: BTreeMap<u64, Arc<Binding>>,
    cluster: Scope,
    namespaces: BTreeMap<Box<str>, Scope>,
}

/// What counts cluster-wide, or in one namespace.
#[derive(Default)]
struct Scope {
    /// In the order of their names.
    grants: Vec<Grant>,
    /// Where users are named: the grant's index, and the subject's in it.
    users: BTreeMap<Box<str>, Vec<(usize, usize)>>,
    groups: BTreeMap<Box<str>, Vec<(usize, usize)>>,
}

/// A binding with the rules of its role; none, if there is no such role.
struct Grant {
    key: Key,
    binding: Arc<Binding>,
    rules: Option<Arc<[Rule]>>,
}

/// A binding as it is stored.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Binding {
    #[serde(default, deserialize_with = "list")]
    subjects: Vec<Subject>,
    role_ref: RoleRef,
}

/// The role that a binding names.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct RoleRef {
    #[serde(default)]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) name: String,
}

#[derive(Debug, Deserialize)]
struct Subject {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Role {
    #[serde(default, deserialize_with = "list")]
    rules: Vec<Rule>,
}

impl Compiled {
    /// Whether nothing has changed since it was made.
    pub(super) fn is_of(&self, snapshot: &Snapshot) -> bool {
        self.tables.iter().zip(TABLES).all(|(old, table)| old.ptr_eq(&snapshot.objects(table)))
    }

    /// From a snapshot, with what an earlier one has read already.
    pub(super) fn new(snapshot: &Snapshot, last: &Self) -> Self {
        let tables = TABLES.map(|table| snapshot.objects(table));
        let mut new = Self::default();
        let [roles, cluster_roles, bindings, cluster_bindings] = &tables;
        for object in roles.values().chain(cluster_roles.values()) {
            let known = last.roles.get(&object.revision).cloned();
            if let Some(rules) = known.or_else(|| read::<Role>(object).map(|role| role.rules.into())) {
                new.roles.insert(object.revision, rules);
            }
        }
        for (key, object) in bindings.iter().chain(cluster_bindings) {
            let known = last.bindings.get(&object.revision).cloned();
            let Some(binding) = known.or_else(|| read(object).map(Arc::new)) else { continue };
            new.bindings.insert(object.revision, binding.clone());
            let rules = role(snapshot, &binding.role_ref, &key.namespace);
            let rules = rules.and_then(|role| new.roles.get(&role.revision).cloned());
            new.scope_mut(&key.namespace).add(Grant { key: key.clone(), binding, rules });
        }
        Self { tables, ..new }
    }

    fn scope_mut(&mut self, namespace: &str) -> &mut Scope {
        if namespace.is_empty() { &mut self.cluster } else { self.namespaces.entry(namespace.into()).or_default() }
    }

    /// What somebody is granted: first cluster-wide, then in the namespace, if one is given.
    pub(super) fn granted<'a>(&'a self, who: &Identity, namespace: &str) -> impl Iterator<Item = Granted<'a>> {
        let here = self.namespaces.get(namespace).map(|scope| scope.granted(who));
        self.cluster.granted(who).into_iter().chain(here.into_iter().flatten())
    }
}

impl RoleRef {
    /// That there is no such role, as authorization says it: by its kind.
    pub(super) fn not_found(&self) -> String {
        format!("{}.rbac.authorization.k8s.io \"{}\" not found", self.kind.to_lowercase(), self.name)
    }

    /// The same, as the resources themselves say it.
    pub(super) fn resource_not_found(&self) -> String {
        format!("{}s.rbac.authorization.k8s.io \"{}\" not found", self.kind.to_lowercase(), self.name)
    }
}

/// The role that a binding in a namespace names; an empty namespace is the cluster as a whole.
pub(super) fn role<'a>(snapshot: &'a Snapshot, role: &RoleRef, namespace: &str) -> Option<&'a Arc<Object>> {
    match role.kind.as_str() {
        "ClusterRole" => snapshot.get(CLUSTER_ROLES, &Key::new("", &role.name)),
        "Role" if !namespace.is_empty() => snapshot.get(ROLES, &Key::new(namespace, &role.name)),
        _ => None,
    }
}

/// The rules of a role.
pub(super) fn rules(role: &Object) -> Vec<Rule> {
    read::<Role>(role).map(|role| role.rules).unwrap_or_default()
}

/// What cannot be read grants nothing.
fn read<T: for<'de> Deserialize<'de>>(object: &Object) -> Option<T> {
    serde_json::from_slice(object.draft.text()).ok()
}

impl Scope {
    fn add(&mut self, grant: Grant) {
        let at = self.grants.len();
        for (index, subject) in grant.binding.subjects.iter().enumerate() {
            let place = (at, index);
            match subject.kind.as_str() {
                "User" => self.users.entry(subject.name.as_str().into()).or_default().push(place),
                "Group" => self.groups.entry(subject.name.as_str().into()).or_default().push(place),
                "ServiceAccount" => {
                    if let Some(user) = subject.account(&grant.key.namespace) {
                        self.users.entry(user.into()).or_default().push(place);
                    }
                }
                _ => {}
            }
        }
        self.grants.push(grant);
    }

    /// Each grant once, by the first of its subjects that is meant.
    fn granted(&self, who: &Identity) -> Vec<Granted<'_>> {
        let by_group = who.groups.iter().filter_map(|group| self.groups.get(group.as_str()));
        let places = self.users.get(who.user.as_str()).into_iter().chain(by_group).flatten();
        let mut found: Vec<(usize, usize)> = places.copied().collect();
        found.sort_unstable();
        found.dedup_by_key(|(grant, _)| *grant);
        let granted = |(grant, subject): (usize, usize)| {
            let grant = self.grants.get(grant)?;
            Some(Granted { grant, subject: grant.binding.subjects.get(subject)? })
        };
        found.into_iter().filter_map(granted).collect()
    }
}

impl Subject {
    /// The user name of a service account; its namespace is that of the binding unless it says another.
    fn account(&self, of_binding: &str) -> Option<String> {
        let namespace = if self.namespace.is_empty() { of_binding } else { &self.namespace };
        (!namespace.is_empty()).then(|| format!("system:serviceaccount:{namespace}:{}", self.name))
    }
}

/// A grant, and which of its subjects somebody is.
pub(super) struct Granted<'a> {
    grant: &'a Grant,
    subject: &'a Subject,
}

impl<'a> Granted<'a> {
    /// None, if there is no such role.
    pub(super) fn rules(&self) -> Option<&'a [Rule]> {
        self.grant.rules.as_deref()
    }

    /// The role that is granted.
    pub(super) fn role(&self) -> &'a RoleRef {
        &self.grant.binding.role_ref
    }
}

impl fmt::Display for Granted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Key { namespace, name } = &self.grant.key;
        let RoleRef { kind, name: role } = &self.grant.binding.role_ref;
        if namespace.is_empty() {
            write!(f, "ClusterRoleBinding \"{name}\" of {kind} \"{role}\" to ")?;
        } else {
            write!(f, "RoleBinding \"{name}/{namespace}\" of {kind} \"{role}\" to ")?;
        }
        let Subject { kind, namespace: own, name } = self.subject;
        match (kind.as_str(), own.is_empty()) {
            ("ServiceAccount", true) => write!(f, "{kind} \"{name}/{namespace}\""),
            ("ServiceAccount", false) => write!(f, "{kind} \"{name}/{own}\""),
            _ => write!(f, "{kind} \"{name}\""),
        }
    }
}
