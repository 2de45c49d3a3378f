//! Where two answers differ.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// One place where two answers differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// A JSON pointer into the answer: `/status`, `/headers/content-type`, `/body/...`, `/frames/...`.
    pub path: String,
    /// What our server has there, as JSON, or `absent`.
    pub ours: String,
    /// What the reference has.
    pub theirs: String,
}

/// Every place where two answers differ, as deep as possible.
#[must_use]
#[expect(clippy::needless_pass_by_value, reason = "views are made for this call")]
pub fn differences(ours: Value, theirs: Value) -> Vec<Difference> {
    let mut found = Vec::new();
    collect("", Some(&ours), Some(&theirs), &mut found);
    found
}

fn collect(path: &str, ours: Option<&Value>, theirs: Option<&Value>, found: &mut Vec<Difference>) {
    match (ours, theirs) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                collect(&format!("{path}/{}", escape(key)), a.get(key), b.get(key), found);
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) if keyed(a).is_some() && keyed(b).is_some() => {
            let (a, b) = (keyed(a).unwrap_or_default(), keyed(b).unwrap_or_default());
            let keys: BTreeSet<&str> = a.keys().chain(b.keys()).copied().collect();
            for key in keys {
                collect(&format!("{path}/{}", escape(key)), a.get(key).copied(), b.get(key).copied(), found);
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            for index in 0..a.len().max(b.len()) {
                collect(&format!("{path}/{index}"), a.get(index), b.get(index), found);
            }
        }
        (a, b) if a == b => {}
        (a, b) => found.push(Difference { path: path.to_owned(), ours: show(a), theirs: show(b) }),
    }
}

/// The entries of a discovery document by their name: one that is missing must not make all after it differ.
fn keyed(list: &[Value]) -> Option<BTreeMap<&str, &Value>> {
    let mut found = BTreeMap::new();
    for entry in list {
        entry.get("verbs")?;
        let key = ["resource", "subresource", "name"].into_iter().find_map(|field| entry[field].as_str())?;
        found.insert(key, entry);
    }
    (found.len() == list.len()).then_some(found)
}

fn show(value: Option<&Value>) -> String {
    value.map_or_else(|| "absent".to_owned(), Value::to_string)
}

fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Whether a path or a name fits a pattern: `*` is anything within a part, `**` anything at all.
#[must_use]
pub fn fits(pattern: &str, text: &str) -> bool {
    if let Some(rest) = pattern.strip_prefix("**") {
        return (0..=text.len()).filter(|at| text.is_char_boundary(*at)).any(|at| fits(rest, &text[at..]));
    }
    if let Some(rest) = pattern.strip_prefix('*') {
        let end = text.find('/').unwrap_or(text.len());
        return (0..=end).filter(|at| text.is_char_boundary(*at)).any(|at| fits(rest, &text[at..]));
    }
    match (pattern.chars().next(), text.chars().next()) {
        (None, None) => true,
        (Some(a), Some(b)) if a == b => fits(&pattern[a.len_utf8()..], &text[b.len_utf8()..]),
        _ => false,
    }
}

/// A copy without what fits one of the patterns.
#[must_use]
pub fn without(value: &Value, patterns: &[String]) -> Value {
    fn copy(path: &str, value: &Value, patterns: &[String]) -> Option<Value> {
        if patterns.iter().any(|pattern| fits(pattern, path)) {
            return None;
        }
        Some(match value {
            Value::Object(map) => Value::Object(
                map.iter()
                    .filter_map(|(key, value)| {
                        Some((key.clone(), copy(&format!("{path}/{}", escape(key)), value, patterns)?))
                    })
                    .collect(),
            ),
            Value::Array(items) => Value::Array(
                items
                    .iter()
                    .enumerate()
                    .filter_map(|(index, value)| copy(&format!("{path}/{index}"), value, patterns))
                    .collect(),
            ),
            other => other.clone(),
        })
    }
    copy("", value, patterns).unwrap_or_default()
}

/// Puts every array into one order, so that arrays compare as sets.
pub fn sort_arrays(value: &mut Value) {
    match value {
        Value::Array(items) => {
            items.iter_mut().for_each(sort_arrays);
            items.sort_by_key(Value::to_string);
        }
        Value::Object(map) => map.values_mut().for_each(sort_arrays),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_difference_is_named_by_its_deepest_path() {
        let found = differences(json!({"a": [1, {"b/c": 2}]}), json!({"a": [1, {"b/c": 3, "d": 4}, 5]}));
        let paths: Vec<&str> = found.iter().map(|difference| difference.path.as_str()).collect();
        assert_eq!(paths, ["/a/1/b~1c", "/a/1/d", "/a/2"]);
        assert_eq!(found[1].ours, "absent");
    }

    #[test]
    fn one_star_stays_within_a_part_and_two_cross_parts() {
        assert!(fits("/body/*/name", "/body/metadata/name"));
        assert!(!fits("/body/*", "/body/metadata/name"));
        assert!(fits("/body/**", "/body/metadata/name"));
        assert!(fits("**/name", "/body/metadata/name"));
        assert!(!fits("/body", "/body/x"));
    }

    #[test]
    fn ignored_parts_are_gone() {
        assert_eq!(without(&json!({"a": {"b": 1, "c": 2}}), &["/a/b".to_owned()]), json!({"a": {"c": 2}}));
    }
}
