//! Defaulting: absent fields get their defaults, and nulls that may not be null get theirs or go.
//!
//! A default is as large as its schema makes it, and is given as often as an object has a place for it: what is filled in
//! is bounded in bytes and in depth.

use serde_json::Value;

use crate::node::{Additional, Node};

/// How many objects and lists may be within each other once defaults are filled in.
pub const DEEPEST: usize = 100;
/// How many bytes the defaults of one object may have together.
const MOST_BYTES: usize = 3 << 20;

/// Drops the nulls that are neither allowed nor have a default, then fills in the defaults. Tells whether all fitted.
pub(crate) fn default(node: &Node, value: &mut Value) -> bool {
    drop_nulls(node, value);
    let mut filling = Filling { room: MOST_BYTES, fitted: true };
    filling.fill(node, value, 1);
    filling.fitted
}

/// Removes fields that are null, may not be, and have no default. Items of lists stay: their places count.
pub(crate) fn drop_nulls(node: &Node, value: &mut Value) {
    match value {
        Value::Object(map) => map.retain(|key, field| {
            let Some(node) = node.field(key) else { return true };
            if field.is_null() && !node.nullable && node.default.is_none() {
                return false;
            }
            drop_nulls(node, field);
            true
        }),
        Value::Array(items) => {
            if let Some(node) = &node.items {
                items.iter_mut().for_each(|item| drop_nulls(node, item));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

struct Filling {
    /// Bytes that may still be filled in.
    room: usize,
    fitted: bool,
}

impl Filling {
    /// Fills in what a value lacks that has `depth` objects and lists around its fields.
    fn fill(&mut self, node: &Node, value: &mut Value, depth: usize) {
        match value {
            Value::Object(map) => {
                for (key, property) in &node.properties {
                    let Some(default) = &property.default else { continue };
                    if map.get(&**key).is_none_or(|field| field.is_null() && !property.nullable)
                        && let Some(default) = self.take(default, depth)
                    {
                        map.insert(String::from(&**key), default);
                    }
                }
                for (key, field) in map.iter_mut() {
                    match (node.property(key), &node.additional) {
                        (Some(property), _) => self.fill(property, field, depth + 1),
                        (None, Additional::Schema(additional)) => self.fill_element(additional, field, depth),
                        (None, Additional::Unset | Additional::Bool(_)) => {}
                    }
                }
            }
            Value::Array(items) => {
                if let Some(node) = &node.items {
                    items.iter_mut().for_each(|item| self.fill_element(node, item, depth));
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// An element of a list or map is there already; only a null that may not be one is replaced.
    fn fill_element(&mut self, node: &Node, value: &mut Value, depth: usize) {
        if value.is_null()
            && !node.nullable
            && let Some(default) = &node.default
            && let Some(default) = self.take(default, depth)
        {
            *value = default;
        }
        self.fill(node, value, depth + 1);
    }

    /// A default for a place, if there is room for it.
    fn take(&mut self, default: &Value, depth: usize) -> Option<Value> {
        let (bytes, own_depth) = measure(default);
        let room = self.room.checked_sub(bytes).filter(|_| depth + own_depth <= DEEPEST);
        self.fitted &= room.is_some();
        self.room = room?;
        Some(default.clone())
    }
}

/// Bytes of a value, roughly, and how many objects and lists are within each other there. A schema was read by a parser
/// that bounds its depth: this may call itself.
fn measure(value: &Value) -> (usize, usize) {
    let join = |(bytes, depth): (usize, usize), (more, deep): (usize, usize)| (bytes + more, depth.max(deep));
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => (1, 0),
        Value::String(text) => (text.len() + 2, 0),
        Value::Array(items) => {
            let (bytes, depth) = items.iter().map(measure).fold((2, 0), join);
            (bytes, depth + 1)
        }
        Value::Object(map) => {
            let fields = map.iter().map(|(key, field)| join((key.len() + 3, 0), measure(field)));
            let (bytes, depth) = fields.fold((2, 0), join);
            (bytes, depth + 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::Schema;

    fn nested(levels: usize) -> serde_json::Value {
        (0..levels).fold(json!("x"), |inner, _| json!([inner]))
    }

    #[test]
    fn defaults_fit_into_the_object_that_they_are_for() {
        let list = |default: serde_json::Value| {
            let field = json!({ "default": default, "x-kubernetes-preserve-unknown-fields": true });
            let items = json!({ "type": "object", "properties": { "a": field } });
            Schema::load(&json!({ "type": "object", "properties": { "list": { "type": "array", "items": items } } }))
        };
        // The list's items are the third level.
        let mut object = json!({ "list": [{}] });
        assert!(list(nested(97)).default(&mut object));
        assert_eq!(object["list"][0]["a"], nested(97));
        let mut object = json!({ "list": [{}] });
        assert!(!list(nested(98)).default(&mut object));
        assert_eq!(object, json!({ "list": [{}] }));
        let mut object = json!({ "list": [{}, {}, {}, {}, {}] });
        assert!(!list(json!("x".repeat(1 << 20))).default(&mut object));
        assert!(object.to_string().len() < 3 << 20);
    }
}
