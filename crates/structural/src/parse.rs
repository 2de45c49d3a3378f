//! From the JSON of a schema to nodes. Nothing is checked here: what makes no sense is left out.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::formats::Format;
use crate::intern::Interner;
use crate::node::{Additional, DEPTH, Junctors, Limits, ListType, Node, Rule, Shared, Type};

/// The node of a schema and of everything below it.
pub(crate) fn parse(schema: &Value, interner: &mut Interner) -> Shared {
    node(schema, interner, 0)
}

fn node(schema: &Value, interner: &mut Interner, depth: usize) -> Shared {
    let Value::Object(schema) = schema else { return interner.node(Node::default().summed_up()) };
    if depth > DEPTH {
        // No object reaches this deep; what lies here is neither pruned nor judged.
        return interner.node(Node { preserve: true, ..Node::default() }.summed_up());
    }
    let node = Node {
        kind: kind(schema),
        nullable: flag(schema, "nullable"),
        preserve: flag(schema, "x-kubernetes-preserve-unknown-fields"),
        embedded: flag(schema, "x-kubernetes-embedded-resource"),
        properties: properties(schema, interner, depth),
        additional: match schema.get("additionalProperties") {
            Some(Value::Bool(allowed)) => Additional::Bool(*allowed),
            Some(nested @ Value::Object(_)) => Additional::Schema(self::node(nested, interner, depth + 1)),
            _ => Additional::Unset,
        },
        items: schema
            .get("items")
            .filter(|items| items.is_object())
            .map(|items| self::node(items, interner, depth + 1)),
        default: schema.get("default").filter(|value| !value.is_null()).cloned().map(Box::new),
        list: list_type(schema),
        limits: limits(schema, interner),
        junctors: junctors(schema, interner, depth),
        rules: list(schema, "x-kubernetes-validations").iter().filter_map(Rule::parse).collect(),
        below: Default::default(),
        smallest: 0,
    };
    interner.node(node.summed_up())
}

fn kind(schema: &Map<String, Value>) -> Option<Type> {
    if flag(schema, "x-kubernetes-int-or-string") {
        return Some(Type::IntOrString);
    }
    schema.get("type").and_then(Value::as_str).and_then(Type::parse)
}

fn properties(schema: &Map<String, Value>, interner: &mut Interner, depth: usize) -> Box<[(Box<str>, Shared)]> {
    let Some(Value::Object(properties)) = schema.get("properties") else { return Box::default() };
    let mut fields: Vec<(Box<str>, Shared)> =
        properties.iter().map(|(key, property)| (key.as_str().into(), node(property, interner, depth + 1))).collect();
    fields.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    fields.into()
}

fn list_type(schema: &Map<String, Value>) -> ListType {
    match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(strings(schema, "x-kubernetes-list-map-keys")),
        _ => ListType::Atomic,
    }
}

fn limits(schema: &Map<String, Value>, interner: &mut Interner) -> Option<Box<Limits>> {
    let number = |key: &str| schema.get(key).and_then(Value::as_number).cloned();
    let count = |key: &str| schema.get(key).and_then(Value::as_i64);
    let limits = Limits {
        minimum: number("minimum"),
        exclusive_minimum: flag(schema, "exclusiveMinimum"),
        maximum: number("maximum"),
        exclusive_maximum: flag(schema, "exclusiveMaximum"),
        multiple_of: number("multipleOf"),
        min_length: count("minLength"),
        max_length: count("maxLength"),
        min_items: count("minItems"),
        max_items: count("maxItems"),
        min_properties: count("minProperties"),
        max_properties: count("maxProperties"),
        pattern: schema
            .get("pattern")
            .and_then(Value::as_str)
            .filter(|pattern| !pattern.is_empty())
            .map(|pattern| interner.pattern(pattern)),
        format: schema.get("format").and_then(Value::as_str).and_then(|name| Format::of(name, kind(schema))),
        required: required(schema),
        allowed: list(schema, "enum").into(),
    };
    (limits != Limits::default()).then(|| Box::new(limits))
}

fn junctors(schema: &Map<String, Value>, interner: &mut Interner, depth: usize) -> Option<Box<Junctors>> {
    let mut nested = |key: &str| -> Box<[Shared]> {
        list(schema, key).iter().map(|inner| node(inner, interner, depth + 1)).collect()
    };
    let (all_of, any_of, one_of) = (nested("allOf"), nested("anyOf"), nested("oneOf"));
    let not = schema.get("not").filter(|not| not.is_object()).map(|not| node(not, interner, depth + 1));
    let junctors = Junctors { all_of, any_of, one_of, not };
    (junctors != Junctors::default()).then(|| Box::new(junctors))
}

fn flag(schema: &Map<String, Value>, key: &str) -> bool {
    schema.get(key) == Some(&Value::Bool(true))
}

fn list<'a>(schema: &'a Map<String, Value>, key: &str) -> &'a [Value] {
    schema.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Each once: a name that is there twice would be followed twice, and so would the next below it.
fn required(schema: &Map<String, Value>) -> Box<[Box<str>]> {
    let mut seen = BTreeSet::new();
    list(schema, "required")
        .iter()
        .filter_map(Value::as_str)
        .filter(|name| seen.insert(*name))
        .map(Into::into)
        .collect()
}

fn strings(schema: &Map<String, Value>, key: &str) -> Box<[Box<str>]> {
    list(schema, key).iter().filter_map(Value::as_str).map(Into::into).collect()
}
