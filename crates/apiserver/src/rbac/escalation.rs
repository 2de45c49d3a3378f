//! Prevents escalation: nobody grants rights that they do not have.
//!
//! Whoever writes a role must hold all of its rules, or the verb `escalate` on it; whoever writes a binding must hold all
//! rules of the role that it names, or the verb `bind` on that role.

use std::collections::BTreeSet;

use http::StatusCode;
use serde_json::Value;

use super::compiled::{self, RoleRef};
use super::rule::{Rule, quoted};
use super::{GROUP, cover, is_master, told_once};
use crate::identity::{Attributes, Identity};
use crate::meta;
use crate::server::Inner;
use crate::status::{Status, Subject};

/// Comparisons of rules for one request. The largest default role takes some thousands against itself.
const MOST_EFFORT: usize = 1_000_000;

/// Refuses a role or binding that gives more than its writer has. `namespace` and `name` are those of the request.
pub(crate) fn confirm(
    server: &Inner,
    who: &Identity,
    (resource, namespace, name): (&str, &str, &str),
    old: Option<&Value>,
    new: &Value,
) -> Result<(), Status> {
    if is_master(who) || old.is_some_and(|old| is_same_grant(old, new)) {
        return Ok(());
    }
    let ask = Ask { server, who, resource, namespace, object: meta::text(new, "name") };
    if matches!(resource, "roles" | "clusterroles") { ask.role(name, old, new) } else { ask.binding(new) }
}

/// Whether nothing differs but what an object needs to be cleared away.
fn is_same_grant(old: &Value, new: &Value) -> bool {
    let plain = |object: &Value| {
        let mut object = object.clone();
        if let Some(map) = object.as_object_mut() {
            map.remove("apiVersion");
            map.remove("kind");
        }
        if let Some(metadata) = meta::of(&mut object) {
            for field in ["finalizers", "ownerReferences", "managedFields", "resourceVersion"] {
                metadata.remove(field);
            }
        }
        object
    };
    plain(old) == plain(new)
}

/// Somebody's wish to write a role or a binding.
struct Ask<'a> {
    server: &'a Inner,
    who: &'a Identity,
    resource: &'a str,
    namespace: &'a str,
    object: &'a str,
}

impl Ask<'_> {
    fn role(&self, name: &str, old: Option<&Value>, new: &Value) -> Result<(), Status> {
        if self.may("escalate", self.resource, name) {
            return Ok(());
        }
        self.holds(&rules(new))?;
        let gathers = |role: &Value| {
            role["aggregationRule"]["clusterRoleSelectors"].as_array().is_some_and(|all| !all.is_empty())
        };
        if (gathers(new) || old.is_some_and(gathers)) && self.holds(&cover::full()).is_err() {
            return Err(self.forbidden("must have cluster-admin privileges to use the aggregationRule"));
        }
        Ok(())
    }

    fn binding(&self, new: &Value) -> Result<(), Status> {
        let text = |field: &str| new["roleRef"][field].as_str().unwrap_or_default().to_owned();
        let role = RoleRef { kind: text("kind"), name: text("name") };
        let resource = match (role.kind.as_str(), self.namespace) {
            ("ClusterRole", _) => "clusterroles",
            ("Role", "") => return Err(Status::bad_request("Namespace parameter required.")),
            ("Role", _) => "roles",
            (kind, _) => {
                let problem = format!("unsupported role reference kind: {kind:?}");
                return Err(Status::new(StatusCode::INTERNAL_SERVER_ERROR, "", problem));
            }
        };
        if text("apiGroup") == GROUP && self.may("bind", resource, &role.name) {
            return Ok(());
        }
        let snapshot = self.server.store.snapshot();
        // Told as if the binding were missing, as Kubernetes does.
        let missing = || Status::not_found(self.subject(), &role.name);
        self.holds(&compiled::rules(compiled::role(&snapshot, &role, self.namespace).ok_or_else(missing)?))
    }

    fn may(&self, verb: &str, resource: &str, name: &str) -> bool {
        let namespace = self.namespace;
        let what =
            Attributes { verb, group: GROUP, version: "*", resource, subresource: "", namespace, name, path: "" };
        self.server.allows(self.who, what)
    }

    /// Refuses what goes beyond the writer's own rules.
    fn holds(&self, wanted: &[Rule]) -> Result<(), Status> {
        let (held, absent) = self.server.rbac.rules(self.who, self.namespace, &self.server.store.snapshot());
        if cover::effort(&held, wanted) > MOST_EFFORT {
            return Err(self.forbidden("it has too many rules to compare with the user's own; split it up"));
        }
        let missing = cover::missing(&held, wanted);
        if missing.is_empty() {
            return Ok(());
        }
        let missing: BTreeSet<String> = cover::compact(missing).iter().map(Rule::to_string).collect();
        let missing: Vec<String> = missing.into_iter().collect();
        let Identity { user, groups, .. } = self.who;
        let mut problem = format!(
            "user {user:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
            quoted(groups),
            missing.join("\n")
        );
        if let Some(absent) = told_once(absent.iter().map(RoleRef::resource_not_found)) {
            problem.push_str(&format!("; resolution errors: [{absent}]"));
        }
        Err(self.forbidden(&problem))
    }

    fn forbidden(&self, problem: &str) -> Status {
        Status::forbidden(self.subject(), self.object, problem)
    }

    fn subject(&self) -> Subject<'_> {
        Subject { group: GROUP, resource: self.resource, kind: "" }
    }
}

/// What cannot be read is refused by validation.
fn rules(role: &Value) -> Vec<Rule> {
    role.get("rules").and_then(|rules| serde_json::from_value(rules.clone()).ok()).unwrap_or_default()
}
