//! The roles and bindings that every cluster starts with, from a text.

use serde_json::{Map, Value, json};

use super::compiled::{BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, ROLES};
use super::{GROUP, rule::Rule};
use crate::store::Key;

const POLICY: &str = include_str!("policy.txt");
/// Roles with this label are gathered into others.
const AGGREGATE: &str = "rbac.authorization.k8s.io/aggregate-to-";
/// Whether changes are taken back at the next start; all but `false` says yes.
pub(super) const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// An object that should be there. It has labels and annotations, but neither name nor UID.
pub(super) struct Wanted {
    pub(super) table: &'static str,
    pub(super) key: Key,
    pub(super) object: Value,
}

/// All of them, roles before what binds them.
pub(super) fn wanted() -> Vec<Wanted> {
    parse(POLICY)
}

fn parse(text: &str) -> Vec<Wanted> {
    let mut all: Vec<Wanted> = Vec::new();
    let mut role = 0;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if !line.starts_with(' ') {
            role = all.len();
            all.extend(head(&words));
            continue;
        }
        let Some(of) = all.get_mut(role) else { continue };
        match words.as_slice() {
            ["to", subjects @ ..] => {
                let bound = binding(of, &of.key.name, subjects);
                all.push(bound);
            }
            ["as", name, "to", subjects @ ..] => {
                let bound = binding(of, name, subjects);
                all.push(bound);
            }
            words => {
                if let (Some(rules), Ok(rule)) = (of.object["rules"].as_array_mut(), serde_json::to_value(rule(words)))
                {
                    rules.push(rule);
                }
            }
        }
    }
    all
}

/// `ClusterRole NAME joins:X gathers:Y` or `Role NAMESPACE/NAME`.
fn head(words: &[&str]) -> Option<Wanted> {
    let (kind, place, marks) = match words {
        [kind, place, marks @ ..] => (*kind, *place, marks),
        _ => return None,
    };
    if kind == "Role" {
        let (namespace, name) = place.split_once('/')?;
        let object = json!({ "metadata": metadata(None), "rules": [] });
        return Some(Wanted { table: ROLES, key: Key::new(namespace, name), object });
    }
    let marked = |mark: &str| marks.iter().find_map(|word| word.strip_prefix(mark));
    let mut object = json!({ "metadata": metadata(marked("joins:")), "rules": [] });
    if let Some(gathered) = marked("gathers:") {
        let mut labels = Map::new();
        labels.insert(format!("{AGGREGATE}{gathered}"), "true".into());
        object["aggregationRule"] = json!({ "clusterRoleSelectors": [{ "matchLabels": labels }] });
        // The rules are for the controller to write.
        object["rules"] = Value::Null;
    }
    Some(Wanted { table: CLUSTER_ROLES, key: Key::new("", place), object })
}

fn metadata(joins: Option<&str>) -> Value {
    let mut metadata = json!({
        "labels": { "kubernetes.io/bootstrapping": "rbac-defaults" },
        "annotations": { AUTO_UPDATE: "true" },
    });
    if let Some(joins) = joins {
        metadata["labels"][format!("{AGGREGATE}{joins}")] = "true".into();
    }
    metadata
}

/// `VERBS GROUPS RESOURCES [NAMES]` or `VERBS urls PATHS`.
fn rule(words: &[&str]) -> Rule {
    let list = |at: usize| -> Vec<String> {
        let words = words.get(at).into_iter().flat_map(|list| list.split(','));
        words.map(|word| if at == 1 && word == "core" { String::new() } else { word.to_owned() }).collect()
    };
    if words.get(1) == Some(&"urls") {
        return Rule { verbs: list(0), paths: list(2), ..Rule::default() };
    }
    Rule { verbs: list(0), api_groups: list(1), resources: list(2), resource_names: list(3), ..Rule::default() }
}

fn binding(role: &Wanted, name: &str, subjects: &[&str]) -> Wanted {
    let (table, kind) = if role.table == ROLES { (BINDINGS, "Role") } else { (CLUSTER_BINDINGS, "ClusterRole") };
    let mut object = json!({
        "metadata": metadata(None),
        "roleRef": { "apiGroup": GROUP, "kind": kind, "name": &*role.key.name },
    });
    if !subjects.is_empty() {
        object["subjects"] = subjects.iter().map(|subject| read_subject(subject)).collect();
    }
    Wanted { table, key: Key::new(&role.key.namespace, name), object }
}

/// `User/NAME`, `Group/NAME` or `ServiceAccount/NAMESPACE/NAME`.
fn read_subject(text: &str) -> Value {
    match text.splitn(3, '/').collect::<Vec<_>>().as_slice() {
        ["ServiceAccount", namespace, name] => {
            json!({ "kind": "ServiceAccount", "namespace": namespace, "name": name })
        }
        [kind, name] => json!({ "apiGroup": GROUP, "kind": kind, "name": name }),
        _ => Value::Null,
    }
}
