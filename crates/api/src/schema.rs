//! From Rust types to the structural schemas that CRDs carry.
//!
//! `schemars` reads types, field names and comments; [`structural`] turns its answer into the dialect of Kubernetes.
//! The types below stand in for foreign ones whose schema a derive cannot see.

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};

pub mod core;

/// The structural schema of a root type.
#[must_use]
pub fn structural<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    simplify(&mut schema);
    if let Value::Object(root) = &mut schema {
        root.remove("title");
    }
    // The API server knows the metadata of a root itself, and takes nothing from the CRD about it.
    if let Some(Value::Object(metadata)) = schema.pointer_mut("/properties/metadata") {
        metadata.retain(|key, _| key == "type");
    }
    schema
}

/// Rewrites what `schemars` says and Kubernetes does not take, from the leaves up.
fn simplify(schema: &mut Value) {
    let Value::Object(object) = schema else { return };
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        properties.values_mut().for_each(simplify);
    }
    for nested in ["items", "additionalProperties"] {
        if let Some(inner) = object.get_mut(nested) {
            simplify(inner);
            // What a field is for stands on the field; on its elements it would only cost bytes.
            if let Value::Object(inner) = inner {
                inner.remove("description");
            }
        }
    }
    if object.get("default") == Some(&Value::Null) {
        object.remove("default");
    }
    drop_null(object);
    unsign(object);
    if object.get("additionalProperties") == Some(&Value::Bool(false)) {
        object.remove("additionalProperties");
    }
}

/// An absent field is how Kubernetes spells `None`; `null` is taken only where `nullable` says so.
fn drop_null(object: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            object.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(allowed)) = object.get_mut("enum") {
        allowed.retain(|value| !value.is_null());
    }
    let Some(Value::Array(choices)) = object.get("anyOf") else { return };
    let [choice, null] = choices.as_slice() else { return };
    if null.get("type") != Some(&Value::from("null")) {
        return;
    }
    let mut choice = choice.clone();
    simplify(&mut choice);
    object.remove("anyOf");
    if let Value::Object(choice) = choice {
        for (key, value) in choice {
            object.entry(key).or_insert(value);
        }
    }
}

/// Kubernetes knows signed formats only, and states a lower bound where it means one.
fn unsign(object: &mut Map<String, Value>) {
    if object.get("format") == Some(&Value::from("uint32")) {
        object.insert("format".to_owned(), Value::from("int32"));
        if object.get("minimum") == Some(&Value::from(0)) {
            object.remove("minimum");
        }
    } else if object.get("format") == Some(&Value::from("double")) {
        object.remove("format");
    }
}

/// Declares a stand-in type and its schema.
macro_rules! stand_in {
    ($(#[$meta:meta])* $name:ident => $schema:tt) => {
        $(#[$meta])*
        pub enum $name {}

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

stand_in! {
    /// An object whose fields the API server itself knows: `metadata`.
    AnyObject => { "type": "object" }
}

stand_in! {
    /// A reference to an object of any kind, with the fields of Kubernetes' own type.
    ObjectReference => { "type": "object", "properties": {
        "apiVersion": { "type": "string", "description": "API version of the object." },
        "fieldPath": { "type": "string", "description": "Part of the object that is meant." },
        "kind": { "type": "string", "description": "Kind of the object." },
        "name": { "type": "string", "description": "Name of the object." },
        "namespace": { "type": "string", "description": "Namespace of the object." },
        "resourceVersion": { "type": "string", "description": "Version of the object that is meant." },
        "uid": { "type": "string", "description": "UID of the object." },
    } }
}

stand_in! {
    /// A whole number of no particular width.
    Integer => { "type": "integer" }
}

stand_in! {
    /// A number, or a string such as a percentage or a port name.
    IntOrString => { "anyOf": [{ "type": "integer" }, { "type": "string" }], "x-kubernetes-int-or-string": true }
}

stand_in! {
    /// A moment in RFC 3339.
    Time => { "type": "string", "format": "date-time" }
}
