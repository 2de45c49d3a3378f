//! Takes out of answers what differs between any two runs, and keeps what is told by it.
//!
//! - A uid, a resource version and a generated name become the step that first showed them, so that equal ones stay
//!   equal. A resource version also says whether it is newer than all before it.
//! - A collection has the version of the moment, which other writers move on: it becomes the newest version of the
//!   script's own objects that it covers.
//! - Points in time, ages, continue tokens and addresses become placeholders. Managed fields are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::{Map, Value};

/// The answers of one server to one script, comparable with those of another.
#[must_use]
pub fn normalize(answers: &[Value]) -> Vec<Value> {
    let mut seen = Seen::default();
    for (step, answer) in answers.iter().enumerate() {
        seen.look(step, answer);
    }
    answers.iter().map(|answer| seen.value(answer, false)).collect()
}

/// A pattern that is part of this source: it always compiles.
fn pattern(text: &str) -> Regex {
    #[expect(clippy::expect_used, reason = "a constant that the tests compile")]
    Regex::new(text).expect("a bad pattern")
}

static UID: LazyLock<Regex> = LazyLock::new(|| pattern("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
static VERSION_IN_TEXT: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i:(resource ?version[^0-9:(]*[:(] ?|current: |resource version: [0-9]+ \())([0-9]+)"));
/// A whole object, quoted inside a message: it shows managed fields too.
static QUOTED: LazyLock<Regex> = LazyLock::new(|| pattern(r#""\{\\"(?:[^"\\]|\\.)*\}""#));
static TIME: LazyLock<Regex> = LazyLock::new(|| pattern(r"^20[1-9][0-9]-[0-9-]{5}T[0-9:]{8}(\.[0-9]+)?Z$"));
static AGE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^([0-9]+(s|m|h|d|y))+$"));
static ADDRESS: LazyLock<Regex> = LazyLock::new(|| pattern(r"^10\.[0-9]+\.[0-9]+\.[0-9]+$"));

/// What was shown, and by which step first.
#[derive(Default)]
struct Seen {
    uids: BTreeMap<String, String>,
    versions: BTreeMap<u64, String>,
    names: BTreeMap<String, String>,
}

impl Seen {
    fn look(&mut self, step: usize, answer: &Value) {
        let mut fresh = Fresh::default();
        fresh.look(answer, false);
        let newest = self.versions.keys().next_back().copied().unwrap_or(0);
        let new = fresh.versions.into_iter().filter(|version| !self.versions.contains_key(version));
        for (index, version) in new.collect::<Vec<_>>().into_iter().enumerate() {
            let age = if version > newest { "" } else { " older" };
            self.versions.insert(version, format!("<version {step}.{index}{age}>"));
        }
        let new = fresh.uids.into_iter().filter(|uid| !self.uids.contains_key(uid));
        for (index, uid) in new.collect::<Vec<_>>().into_iter().enumerate() {
            self.uids.entry(uid).or_insert_with(|| format!("<uid {step}.{index}>"));
        }
        for (index, (name, base)) in fresh.names.into_iter().enumerate() {
            self.names.entry(name).or_insert_with(|| format!("{base}<generated {step}.{index}>"));
        }
    }

    fn value(&self, value: &Value, collection: bool) -> Value {
        match value {
            Value::Object(map) => self.object(map, collection),
            Value::Array(items) => Value::Array(items.iter().map(|item| self.value(item, false)).collect()),
            Value::String(text) => Value::String(self.text(text)),
            other => other.clone(),
        }
    }

    fn object(&self, map: &Map<String, Value>, collection: bool) -> Value {
        let inner = is_collection(map);
        let causes = map.get("details").and_then(|details| details["causes"].as_array()).map_or(0, Vec::len);
        let mut result = Map::new();
        for (key, value) in map {
            let normal = match (key.as_str(), value) {
                ("managedFields", _) => continue,
                ("resourceVersion", Value::String(text)) => match text.parse() {
                    Ok(version) => Value::String(self.version(version, collection)),
                    Err(_) => value.clone(),
                },
                // Several causes come in any order, in the list and in the message that repeats it.
                ("causes", Value::Array(items)) if items.len() > 1 => self.sorted(items),
                ("message", Value::String(text)) if causes > 1 => Value::String(self.text(without_causes(text))),
                ("continue", Value::String(text)) if !text.is_empty() => "<continue>".into(),
                ("nodePort", Value::Number(_)) => "<port>".into(),
                ("cells", Value::Array(cells)) => cells.iter().map(|cell| self.cell(cell)).collect(),
                // The frame of a bookmark is of a collection, whatever its kind.
                ("object", value) if map.get("type").is_some_and(|kind| kind == "BOOKMARK") => self.bookmark(value),
                (_, value) => self.value(value, inner && key == "metadata"),
            };
            result.insert(key.clone(), normal);
        }
        Value::Object(result)
    }

    fn sorted(&self, items: &[Value]) -> Value {
        let mut items: Vec<Value> = items.iter().map(|item| self.value(item, false)).collect();
        items.sort_by_key(Value::to_string);
        Value::Array(items)
    }

    fn bookmark(&self, value: &Value) -> Value {
        let mut result = self.value(value, false);
        if let Some(metadata) = value.get("metadata") {
            result["metadata"] = self.value(metadata, true);
        }
        result
    }

    fn cell(&self, cell: &Value) -> Value {
        match cell {
            Value::String(text) if AGE.is_match(text) => "<age>".into(),
            other => self.value(other, false),
        }
    }

    /// The name of a version, or of the newest known one that a collection's version covers.
    fn version(&self, version: u64, collection: bool) -> String {
        if collection {
            let covered = self.versions.range(..=version).next_back();
            return covered.map_or_else(|| "<before all>".to_owned(), |(_, name)| format!("<at {name}>"));
        }
        self.versions.get(&version).cloned().unwrap_or_else(|| "<unknown version>".to_owned())
    }

    fn text(&self, text: &str) -> String {
        if let Some(found) = TIME.captures(text) {
            return if found.get(1).is_some() { "<time with a fraction>".into() } else { "<time>".into() };
        }
        if ADDRESS.is_match(text) {
            return "<address>".into();
        }
        let text = QUOTED.replace_all(text, "<object>");
        let text = UID.replace_all(&text, |found: &Captures<'_>| {
            self.uids.get(&found[0]).cloned().unwrap_or_else(|| "<unknown uid>".to_owned())
        });
        let text = VERSION_IN_TEXT.replace_all(&text, |found: &Captures<'_>| {
            // Other writers move the current one on; what the client asked for stays.
            if found[1].starts_with("current") {
                return "current: <current>".to_owned();
            }
            let known = found[2].parse().ok().and_then(|version| self.versions.get(&version)).cloned();
            let theirs = found[1].ends_with("record (") || found[1].ends_with("meta: ");
            let unknown = || if theirs { "<unknown version>".to_owned() } else { found[2].to_owned() };
            format!("{}{}", &found[1], known.unwrap_or_else(unknown))
        });
        let mut text = text.into_owned();
        for (name, base) in &self.names {
            if text.contains(name.as_str()) {
                text = text.replace(name.as_str(), base);
            }
        }
        text
    }
}

fn without_causes(message: &str) -> &str {
    message.split_once(" is invalid: [").map_or(message, |(before, _)| before)
}

/// Lists, tables: their version is that of a moment, not of an object.
fn is_collection(map: &Map<String, Value>) -> bool {
    let kind = map.get("kind").and_then(Value::as_str).unwrap_or_default();
    map.contains_key("items") || map.contains_key("rows") || kind.ends_with("List")
}

/// What one answer shows.
#[derive(Default)]
struct Fresh {
    uids: Vec<String>,
    versions: BTreeSet<u64>,
    /// Names that the server made, with what they were made from.
    names: BTreeMap<String, String>,
}

impl Fresh {
    /// Looks in the order of keys: two servers may print fields in different orders.
    fn look(&mut self, value: &Value, collection: bool) {
        match value {
            Value::Object(map) => {
                let inner = is_collection(map);
                self.generated(map);
                let sorted: BTreeMap<&String, &Value> = map.iter().collect();
                let bookmark = map.get("type").is_some_and(|kind| kind == "BOOKMARK");
                for (key, value) in sorted {
                    match (key.as_str(), value) {
                        ("managedFields", _) => {}
                        ("object", _) if bookmark => {}
                        ("resourceVersion", Value::String(text)) if !collection => {
                            self.versions.extend(text.parse::<u64>().ok());
                        }
                        (_, value) => self.look(value, inner && key == "metadata"),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.look(item, false)),
            Value::String(text) => {
                for found in UID.find_iter(text) {
                    if !self.uids.iter().any(|uid| uid == found.as_str()) {
                        self.uids.push(found.as_str().to_owned());
                    }
                }
            }
            _ => {}
        }
    }

    fn generated(&mut self, metadata: &Map<String, Value>) {
        let text = |key: &str| metadata.get(key).and_then(Value::as_str).unwrap_or_default();
        let (name, base) = (text("name"), text("generateName"));
        if !base.is_empty() && name.starts_with(base) && name.len() == base.len() + 5 {
            self.names.insert(name.to_owned(), base.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(version: &str) -> Value {
        json!({"kind": "A", "metadata": {"resourceVersion": version}})
    }

    #[test]
    fn equal_versions_stay_equal_and_order_is_told() {
        let slow = normalize(&[object("10"), object("20"), object("10")]);
        let fast = normalize(&[object("3"), object("4"), object("3")]);
        assert_eq!(slow, fast);
        assert_ne!(slow, normalize(&[object("3"), object("4"), object("4")]));
        assert_ne!(slow, normalize(&[object("3"), object("2"), object("3")]));
    }

    #[test]
    fn a_collection_has_the_version_of_the_newest_object_it_covers() {
        let list = |version: &str| json!({"kind": "AList", "metadata": {"resourceVersion": version}, "items": []});
        let quiet = normalize(&[object("10"), list("10"), object("11")]);
        assert_eq!(quiet, normalize(&[object("10"), list("15"), object("16")]));
        assert_ne!(quiet, normalize(&[object("10"), list("9"), object("16")]));
    }

    #[test]
    fn uids_are_named_by_their_first_step_even_inside_texts() {
        let uid = "01234567-89ab-cdef-0123-456789abcdef";
        let found = normalize(&[json!({"uid": uid}), json!({"message": format!("not {uid}")})]);
        assert_eq!(found[1]["message"], "not <uid 0.0>");
    }

    #[test]
    fn times_of_the_run_are_hidden_and_times_of_requests_stay() {
        let found =
            normalize(&[json!(["2031-01-02T03:04:05Z", "2031-01-02T03:04:05.123456Z", "2001-01-01T00:00:00Z"])]);
        assert_eq!(found[0], json!(["<time>", "<time with a fraction>", "2001-01-01T00:00:00Z"]));
    }

    #[test]
    fn a_generated_name_keeps_its_base_everywhere() {
        let metadata = json!({"generateName": "a-", "name": "a-x7k2p"});
        let found = normalize(&[json!({"metadata": metadata, "message": "a-x7k2p exists"})]);
        assert_eq!(found[0]["message"], "a-<generated 0.0> exists");
    }

    #[test]
    fn causes_compare_in_any_order() {
        let status = |a: &str, b: &str| {
            let message = format!("x is invalid: [{a}, {b}]");
            json!({"message": message, "details": {"causes": [{"field": a}, {"field": b}]}})
        };
        assert_eq!(normalize(&[status("a", "b")]), normalize(&[status("b", "a")]));
        assert_ne!(normalize(&[status("a", "b")]), normalize(&[status("a", "c")]));
    }

    #[test]
    fn versions_in_messages_are_named() {
        let found = normalize(&[json!({"message": "Too large resource version: 99, current: 17"})]);
        assert_eq!(found[0]["message"], "Too large resource version: 99, current: <current>");
        let conflict =
            json!({"message": "the ResourceVersion in the precondition (1) is not in record: ResourceVersion (7)"});
        let found = normalize(&[object("7"), conflict]);
        assert_eq!(
            found[1]["message"],
            "the ResourceVersion in the precondition (1) is not in record: ResourceVersion (<version 0.0>)"
        );
    }
}
