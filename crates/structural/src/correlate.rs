//! Which old value stood in the place of a new one.
//!
//! Fields are told by their names, items of a map list by their keys. Items of other lists have no identity.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::go;
use crate::node::{ListType, Node};

/// Whether two values are the same. As in Kubernetes `1` and `1.0` are not: they are stored differently.
pub(crate) fn equal(one: &Value, other: &Value) -> bool {
    one == other
}

/// The items of an old list, by key.
pub(crate) struct OldItems<'a> {
    keys: &'a [Box<str>],
    items: BTreeMap<String, &'a Value>,
}

impl<'a> OldItems<'a> {
    /// Empty where the list is no map, or there was none.
    pub(crate) fn new(node: &'a Node, old: Option<&'a Value>) -> Self {
        let (ListType::Map(keys), Some(Value::Array(old))) = (&node.list, old) else {
            return Self { keys: &[], items: BTreeMap::new() };
        };
        let mut items = BTreeMap::new();
        for item in old.iter().filter(|item| item.is_object()) {
            items.entry(key(item, keys)).or_insert(item);
        }
        Self { keys, items }
    }

    pub(crate) fn find(&self, item: &Value) -> Option<&'a Value> {
        if self.items.is_empty() || !item.is_object() {
            return None;
        }
        self.items.get(&key(item, self.keys)).copied()
    }
}

/// An item's key as text. Absent parts are told from all values.
fn key(item: &Value, keys: &[Box<str>]) -> String {
    let parts: Vec<String> = keys.iter().map(|key| item.get(&**key).map_or("-".to_owned(), go::json)).collect();
    parts.join(",")
}
