//! One rule of a role, and what it allows.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::identity::Attributes;

/// Stands for all verbs, groups, resources or paths.
pub(super) const ALL: &str = "*";

/// Verbs on resources, or verbs on other paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Rule {
    #[serde(deserialize_with = "list")]
    pub(crate) verbs: Vec<String>,
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub(crate) api_groups: Vec<String>,
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub(crate) resources: Vec<String>,
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub(crate) resource_names: Vec<String>,
    #[serde(rename = "nonResourceURLs", deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub(crate) paths: Vec<String>,
}

/// A list; null is an empty one.
pub(super) fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Rule {
    /// Whether it allows a request.
    pub(super) fn allows(&self, what: Attributes<'_>) -> bool {
        if !has(&self.verbs, what.verb) {
            return false;
        }
        if what.resource.is_empty() {
            return self.paths.iter().any(|path| path_covers(path, what.path));
        }
        let named = self.resource_names.is_empty() || self.resource_names.iter().any(|name| name == what.name);
        let resource = |rule: &String| covers_resource(rule, what.resource, what.subresource);
        named && has(&self.api_groups, what.group) && self.resources.iter().any(resource)
    }
}

/// Whether a list has a word, or all.
pub(super) fn has(list: &[String], word: &str) -> bool {
    list.iter().any(|one| one == ALL || one == word)
}

/// `*`, `pods`, `pods/log`, or `*/scale` for that subresource of everything. There is no `pods/*`.
fn covers_resource(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == ALL {
        return true;
    }
    match rule.split_once('/') {
        None => subresource.is_empty() && rule == resource,
        Some((of, sub)) => !subresource.is_empty() && sub == subresource && (of == ALL || of == resource),
    }
}

/// A path itself, or all that starts as one that ends in `*` does.
pub(super) fn path_covers(rule: &str, path: &str) -> bool {
    rule == path || (rule.ends_with(ALL) && path.starts_with(rule.trim_end_matches(ALL)))
}

/// As refusals show it: `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.paths),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let shown = parts.iter().filter(|(_, list)| !list.is_empty());
        let shown: Vec<String> = shown.map(|(name, list)| format!("{name}:{}", quoted(list))).collect();
        write!(f, "{{{}}}", shown.join(", "))
    }
}

/// `["a" "b"]`, as Go writes lists.
pub(super) fn quoted(list: &[String]) -> String {
    let words: Vec<String> = list.iter().map(|word| format!("{word:?}")).collect();
    format!("[{}]", words.join(" "))
}
