//! Decides from the stored objects alone, one after the other, by the words of Kubernetes' documentation.

use serde_json::Value;

use super::{Ask, BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, ROLES};
use crate::identity::Decision;
use crate::store::{Key, Snapshot};

pub(super) fn decide(snapshot: &Snapshot, ask: &Ask) -> Decision {
    let mut missing: Vec<String> = Vec::new();
    for (table, of) in [(CLUSTER_BINDINGS, ""), (BINDINGS, ask.namespace)] {
        if table == BINDINGS && of.is_empty() {
            continue;
        }
        for (key, object) in &snapshot.objects(table) {
            let binding = object.value().unwrap();
            if *key.namespace != *of {
                continue;
            }
            let Some(subject) = list(&binding["subjects"]).into_iter().find(|one| is_meant(one, of, ask)) else {
                continue;
            };
            let (kind, role) = (text(&binding["roleRef"]["kind"]), text(&binding["roleRef"]["name"]));
            let found = match kind {
                "ClusterRole" => snapshot.get(CLUSTER_ROLES, &Key::new("", role)),
                _ if of.is_empty() => None,
                _ => snapshot.get(ROLES, &Key::new(of, role)),
            };
            let Some(found) = found else {
                let problem = format!("{}.rbac.authorization.k8s.io \"{role}\" not found", kind.to_lowercase());
                if !missing.contains(&problem) {
                    missing.push(problem);
                }
                continue;
            };
            if list(&found.value().unwrap()["rules"]).iter().any(|rule| allows(rule, ask)) {
                return Decision::allowed(reason(key, kind, role, subject));
            }
        }
    }
    Decision::refused(match missing.as_slice() {
        [] => String::new(),
        [one] => format!("RBAC: {one}"),
        many => format!("RBAC: [{}]", many.join(", ")),
    })
}

fn reason(key: &Key, kind: &str, role: &str, subject: &Value) -> String {
    let binding = match &*key.namespace {
        "" => format!("ClusterRoleBinding \"{}\"", key.name),
        namespace => format!("RoleBinding \"{}/{namespace}\"", key.name),
    };
    let mut to = text(&subject["name"]).to_owned();
    if subject["kind"] == "ServiceAccount" {
        let own = text(&subject["namespace"]);
        to = format!("{to}/{}", if own.is_empty() { &key.namespace } else { own });
    }
    format!("RBAC: allowed by {binding} of {kind} \"{role}\" to {} \"{to}\"", text(&subject["kind"]))
}

fn is_meant(subject: &Value, namespace: &str, ask: &Ask) -> bool {
    let name = text(&subject["name"]);
    match text(&subject["kind"]) {
        "User" => ask.who.user == name,
        "Group" => ask.who.groups.iter().any(|group| group == name),
        _ => {
            let own = text(&subject["namespace"]);
            let namespace = if own.is_empty() { namespace } else { own };
            !namespace.is_empty() && ask.who.user == format!("system:serviceaccount:{namespace}:{name}")
        }
    }
}

fn allows(rule: &Value, ask: &Ask) -> bool {
    let has = |field: &str, word: &str| list(&rule[field]).into_iter().any(|one| one == "*" || one == word);
    if !has("verbs", ask.verb) {
        return false;
    }
    if ask.resource.is_empty() {
        return list(&rule["nonResourceURLs"]).into_iter().map(text).any(|url| match url.strip_suffix('*') {
            Some(start) => ask.path.starts_with(start),
            None => url == ask.path,
        });
    }
    let mut shown = vec![ask.resource.to_owned()];
    if !ask.subresource.is_empty() {
        shown = vec![format!("{}/{}", ask.resource, ask.subresource), format!("*/{}", ask.subresource)];
    }
    let names = list(&rule["resourceNames"]);
    has("apiGroups", ask.group)
        && shown.iter().any(|one| has("resources", one))
        && (names.is_empty() || names.into_iter().any(|name| name == ask.name))
}

fn list(value: &Value) -> Vec<&Value> {
    value.as_array().into_iter().flatten().collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
