//! Each schema by itself: keywords that are not supported, list types, rules.

use serde_json::{Map, Value};

use super::costs::Total;
use super::{enough, flag, junctor_nodes, junctors, list, lists, object, rules, set, text};
use crate::error::FieldError;
use crate::node::Shared;
use crate::place;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Keywords of JSON Schema that structural schemas do not have.
const UNSUPPORTED: [&str; 6] = ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];

/// Whether a schema or one below it uses what keeps it from being structural at all.
pub(super) fn has_unsupported(schema: &Value) -> bool {
    let Value::Object(schema) = schema else { return false };
    UNSUPPORTED.iter().chain(&["$schema"]).any(|key| set(schema, key))
        || schema.get("items").is_some_and(Value::is_array)
        || schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false))
        || object(schema, "properties").into_iter().flat_map(Map::values).any(has_unsupported)
        || ["items", "additionalProperties", "not"].iter().filter_map(|key| schema.get(*key)).any(has_unsupported)
        || ["allOf", "anyOf", "oneOf"].iter().flat_map(|key| list(schema, key)).any(has_unsupported)
}

/// `sound` says that the schema is structural, so that rules can be compiled.
pub(super) fn check(root: &Map<String, Value>, node: Shared, path: &str, sound: bool) -> Vec<FieldError> {
    let mut nodes = Nodes { schema: Vec::new(), rules: Vec::new(), total: Total::default() };
    let place = Place {
        node,
        root: true,
        in_metadata: false,
        defaults: None,
        uncorrelated: None,
        rules: sound,
        cardinality: Some(1),
    };
    nodes.node(root, path, &place);
    let Nodes { mut schema, rules, total } = nodes;
    schema.extend(rules);
    schema.extend(total.errors(path));
    schema
}

/// What a schema's place says about it.
#[derive(Clone)]
pub(super) struct Place {
    /// The schema itself, read.
    pub(super) node: Shared,
    pub(super) root: bool,
    in_metadata: bool,
    /// Why defaults are forbidden here, if they are.
    defaults: Option<String>,
    /// The list above whose items cannot be told apart: `oldSelf` has no meaning below it.
    pub(super) uncorrelated: Option<String>,
    /// Whether rules are compiled.
    pub(super) rules: bool,
    /// How many values with this schema an object can have, if the schemas above limit it.
    pub(super) cardinality: Option<u64>,
}

pub(super) struct Nodes {
    pub(super) schema: Vec<FieldError>,
    pub(super) rules: Vec<FieldError>,
    pub(super) total: Total,
}

impl Nodes {
    fn node(&mut self, schema: &Map<String, Value>, path: &str, place: &Place) {
        if enough(&self.schema) || enough(&self.rules) {
            return;
        }
        let before = self.schema.len();
        self.keywords(schema, path, place);
        self.children(schema, path, place);
        if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
            let path = format!("{path}.x-kubernetes-preserve-unknown-fields");
            self.schema.push(FieldError::invalid(path, &Value::Bool(false), "must be true or undefined"));
        }
        lists::check(schema, path, &mut self.schema);
        rules::check_form(schema, &place.node, path, &mut self.schema);
        // Of a schema with errors no rule could be judged.
        if place.rules && self.schema.len() == before {
            rules::check(self, schema, path, place);
        }
    }

    fn keywords(&mut self, schema: &Map<String, Value>, path: &str, place: &Place) {
        let kind = text(schema, "type");
        if !kind.is_empty() && !TYPES.contains(&kind) {
            let supported: Vec<Value> = TYPES.iter().map(|known| Value::from(*known)).collect();
            let error = FieldError::not_supported(format!("{path}.type"), &Value::from(kind), supported.iter());
            self.schema.push(error);
        }
        let mut forbid =
            |key: &str, detail: String| self.schema.push(FieldError::forbidden(format!("{path}.{key}"), detail));
        if let Some(reason) = &place.defaults
            && schema.get("default").is_some_and(|default| !default.is_null())
        {
            forbid("default", format!("must not be set {reason}"));
        }
        for key in UNSUPPORTED.iter().filter(|key| set(schema, key)) {
            forbid(key, format!("{key} is not supported"));
        }
        if kind == "null" {
            forbid("type", "type cannot be set to null, use nullable as an alternative".to_owned());
        }
        if schema.get("items").is_some_and(Value::is_array) {
            forbid("items", "items must be a schema object and not an array".to_owned());
        }
        if place.in_metadata && flag(schema, "x-kubernetes-embedded-resource") {
            forbid("x-kubernetes-embedded-resource", "must not be used inside of resource meta".to_owned());
        }
        if flag(schema, "uniqueItems") {
            let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            forbid("uniqueItems", detail.to_owned());
        }
        let additional = schema.get("additionalProperties");
        let limits = additional.is_some_and(|additional| additional.is_object() || *additional == Value::Bool(false));
        if limits && set(schema, "properties") {
            forbid("additionalProperties", "additionalProperties and properties are mutual exclusive".to_owned());
        }
    }

    fn children(&mut self, schema: &Map<String, Value>, path: &str, place: &Place) {
        let below = Place { root: false, cardinality: multiplied(place.cardinality, schema), ..place.clone() };
        if let (Some(additional), Some(node)) = (object(schema, "additionalProperties"), place.node.additional_schema())
        {
            let mut below = Place { node: node.clone(), ..below.clone() };
            if place.in_metadata {
                below.defaults = Some("inside additionalProperties applying to object metadata".to_owned());
            }
            self.node(additional, &format!("{path}.additionalProperties"), &below);
        }
        for (name, property) in object(schema, "properties").into_iter().flatten() {
            let (Value::Object(property), Some(node)) = (property, place.node.property(name)) else { continue };
            let mut below = Place { node: node.clone(), ..below.clone() };
            let resource = place.root || flag(schema, "x-kubernetes-embedded-resource");
            if resource && matches!(name.as_str(), "metadata" | "kind" | "apiVersion") {
                below.in_metadata = true;
                if place.root {
                    below.defaults = Some(format!("in top-level {name}"));
                }
            }
            self.node(property, &place::below(path, format_args!(".properties[{name}]")), &below);
        }
        for ((path, branch), node) in junctors(schema, path).into_iter().zip(junctor_nodes(schema, &place.node)) {
            self.node(branch, &path, &Place { node, rules: false, ..below.clone() });
        }
        if let (Some(items), Some(node)) = (object(schema, "items"), &place.node.items) {
            let mut below = Place { node: node.clone(), ..below };
            if text(schema, "x-kubernetes-list-type") != "map" {
                below.uncorrelated.get_or_insert_with(|| path.to_owned());
            }
            self.node(items, &format!("{path}.items"), &below);
        }
    }
}

/// How many values there can be below a schema of which there can be so many.
fn multiplied(cardinality: Option<u64>, schema: &Map<String, Value>) -> Option<u64> {
    let limit = |key: &str| schema.get(key).and_then(Value::as_i64).map(|limit| u64::try_from(limit).unwrap_or(0));
    let factor = match text(schema, "type") {
        "object" if schema.get("additionalProperties").is_some_and(|additional| !additional.is_null()) => {
            limit("maxProperties")?
        }
        "array" => limit("maxItems")?,
        _ => 1,
    };
    cardinality.map(|cardinality| cardinality.saturating_mul(factor))
}
