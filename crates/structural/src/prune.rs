//! Pruning: removes what the schema does not specify.

use std::fmt::Write as _;

use serde_json::Value;

use crate::go;
use crate::node::{Additional, Node};

/// The fields that every object has, whatever its schema says.
pub(crate) const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// How many paths of what was removed are told, and how many bytes of each. Nobody reads more.
const MOST_TOLD: usize = 100;
const LONGEST_TOLD: usize = 4096;

/// Removes what `node` does not specify, and returns the sorted paths of what was removed: of the first, where that is much.
///
/// `root` says that the value is an object of its own, whose `META` fields stay untouched.
pub(crate) fn prune(node: &Node, value: &mut Value, root: bool) -> Vec<String> {
    let mut pruning = Pruning { path: String::new(), dropped: Vec::new() };
    pruning.value(Some(node), value, root || node.embedded);
    pruning.dropped.sort_unstable();
    pruning.dropped
}

struct Pruning {
    path: String,
    dropped: Vec<String>,
}

impl Pruning {
    fn value(&mut self, node: Option<&Node>, value: &mut Value, resource: bool) {
        if let Some(node) = node
            && node.preserve
        {
            return self.preserved(node, value, resource);
        }
        match value {
            Value::Object(map) => map.retain(|key, field| {
                let Some(node) = node else {
                    self.drop_field(key);
                    return false;
                };
                if resource && META.contains(&key.as_str()) {
                    return true;
                }
                let inner = match (node.property(key), &node.additional) {
                    (Some(property), _) => Some(&**property),
                    (None, Additional::Schema(additional)) => Some(&**additional),
                    (None, Additional::Bool(_)) => None,
                    (None, Additional::Unset) => {
                        self.drop_field(key);
                        return false;
                    }
                };
                self.enter(key, inner, field);
                true
            }),
            Value::Array(items) => {
                let inner = node.and_then(|node| node.items.as_deref());
                for (index, item) in items.iter_mut().enumerate() {
                    self.at_index(index, |pruning| pruning.value(inner, item, inner.is_some_and(|node| node.embedded)));
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Inside a preserving node only what has a schema of its own is looked into.
    fn preserved(&mut self, node: &Node, value: &mut Value, resource: bool) {
        match value {
            Value::Object(map) => {
                for (key, field) in map.iter_mut() {
                    if resource && META.contains(&key.as_str()) {
                        continue;
                    }
                    let inner = match (node.property(key), &node.additional) {
                        (Some(property), _) => Some(&**property),
                        (None, Additional::Schema(additional)) => Some(&**additional),
                        (None, Additional::Bool(_)) => None,
                        (None, Additional::Unset) => continue,
                    };
                    self.enter(key, inner, field);
                }
            }
            Value::Array(items) => {
                let Some(inner) = node.items.as_deref() else { return };
                for (index, item) in items.iter_mut().enumerate() {
                    self.at_index(index, |pruning| pruning.preserved(inner, item, inner.embedded));
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn enter(&mut self, key: &str, node: Option<&Node>, field: &mut Value) {
        let length = self.path.len();
        self.push(key);
        self.value(node, field, node.is_some_and(|node| node.embedded));
        self.path.truncate(length);
    }

    fn at_index(&mut self, index: usize, then: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        // Writing to a string does not fail.
        let _ = write!(self.path, "[{index}]");
        then(self);
        self.path.truncate(length);
    }

    fn push(&mut self, key: &str) {
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(key);
    }

    fn drop_field(&mut self, key: &str) {
        if self.dropped.len() >= MOST_TOLD {
            return;
        }
        let length = self.path.len();
        self.push(key);
        self.dropped.push(go::cut(&self.path, LONGEST_TOLD).to_owned());
        self.path.truncate(length);
    }
}
