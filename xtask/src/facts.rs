//! Writes the facts about Kubernetes' built-in kinds in the project's own form, from descriptions of its API in JSON:
//! the resources, the OpenAPI schemas and the protobuf fields. Needed when the Kubernetes version moves.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::{Map, Value};

const HEADER: &str = "# Written by `cargo xtask facts`; do not edit. The form is described in src/facts.rs.\n";

/// Reads `resources.json`, `schemas.json` and `protobuf.json` in `from`, writes the tables of the API server.
pub(crate) fn write(root: &Path, from: &Path) -> Result<()> {
    let read = |name: &str| -> Result<Value> {
        let path = from.join(name);
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("parse {}", path.display()))
    };
    let to = root.join("crates/apiserver/facts");
    fs::write(to.join("types.txt"), types(&read("schemas.json")?, &read("protobuf.json")?)?)?;
    fs::write(to.join("resources.txt"), resources(&read("resources.json")?)?)?;
    Ok(())
}

fn resources(groups: &Value) -> Result<String> {
    let mut out = HEADER.to_owned();
    for group in groups.as_array().context("a list of groups")? {
        writeln!(out, "\ngroup {}/{}", text(group, "group"), text(group, "version"))?;
        for resource in group["resources"].as_array().context("resources")? {
            let scope = if resource["namespaced"] == true { "namespaced" } else { "cluster" };
            write!(out, "{} {} {scope}", text(resource, "name"), text(resource, "kind"))?;
            write!(out, " verbs={}", joined(&resource["verbs"]))?;
            for (key, value) in [
                ("singular", text(resource, "singularName").to_owned()),
                ("short", joined(&resource["shortNames"])),
                ("in", joined(&resource["categories"])),
            ] {
                if !value.is_empty() {
                    write!(out, " {key}={value}")?;
                }
            }
            if resource.get("version").is_some() {
                write!(out, " of={}/{}", text(resource, "group"), text(resource, "version"))?;
            }
            out.push('\n');
        }
    }
    Ok(out)
}

fn types(schemas: &Value, messages: &Value) -> Result<String> {
    let schemas = schemas.as_object().context("schemas")?;
    let messages = messages.as_object().context("messages")?;
    let mut sorted = BTreeMap::new();
    for (name, schema) in schemas {
        sorted.insert(short(name), (name.as_str(), schema));
    }
    let mut out = HEADER.to_owned();
    for (name, (long, schema)) in sorted {
        write!(out, "\ntype {name}")?;
        if let [kind] = schema["x-kubernetes-group-version-kind"].as_array().map_or(&[][..], |list| list) {
            write!(out, " kind={}/{}/{}", text(kind, "group"), text(kind, "version"), text(kind, "kind"))?;
        }
        if schema["x-kubernetes-map-type"] == "atomic" {
            out.push_str(" atomic");
        }
        out.push('\n');
        let message = message_of(messages, long);
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for (field, property) in schema["properties"].as_object().unwrap_or(&Map::new()) {
            let number = message.and_then(|message| number(messages, long, message, field)).unwrap_or_default();
            writeln!(out, "  {}", line(field, &number, property, required.contains(&field.as_str()))?)?;
        }
    }
    Ok(out)
}

/// `name number type`, then what else is known of the field.
fn line(field: &str, number: &str, property: &Value, required: bool) -> Result<String> {
    let number = if number.is_empty() { "-" } else { number };
    let mut out = format!("{field} {number} {}", shape(property)?);
    if required {
        out.push_str(" required");
    }
    if property["x-kubernetes-map-type"] == "atomic" {
        out.push_str(" atomic");
    }
    if let Some(kind) = property["x-kubernetes-list-type"].as_str() {
        match kind {
            "map" => write!(out, " list=map:{}", joined(&property["x-kubernetes-list-map-keys"]))?,
            other => write!(out, " list={other}")?,
        }
    }
    if let Some(strategy) = property["x-kubernetes-patch-strategy"].as_str() {
        let key = text(property, "x-kubernetes-patch-merge-key");
        let colon = if key.is_empty() { "" } else { ":" };
        write!(out, " patch={strategy}{colon}{key}")?;
    }
    // The last word of a line: it may hold anything.
    if let Some(default) = property.get("default") {
        write!(out, " default={default}")?;
    }
    Ok(out)
}

/// `string`, `integer`, a type's name, `[list]` or `{map}`.
fn shape(property: &Value) -> Result<String> {
    if let Some(name) = property["$ref"].as_str() {
        return Ok(short(name));
    }
    Ok(match (property["type"].as_str(), property["format"].as_str()) {
        (Some("array"), _) => format!("[{}]", shape(&property["items"])?),
        (Some("object"), _) => match property.get("additionalProperties") {
            Some(value) => format!("{{{}}}", shape(value)?),
            None => "object".to_owned(),
        },
        (Some("string"), Some("byte")) => "bytes".to_owned(),
        (Some("integer"), Some(format @ ("int32" | "int64"))) => format.to_owned(),
        (Some("integer"), None) => "int64".to_owned(),
        (Some(plain @ ("string" | "boolean" | "number")), _) => plain.to_owned(),
        other => bail!("no shape for {other:?}"),
    })
}

/// The field's number, or the numbers on the way to it where JSON inlines what protobuf nests.
fn number(messages: &Map<String, Value>, scope: &str, message: &Value, field: &str) -> Option<String> {
    if let Some(number) = own_number(message, field) {
        return Some(number.to_string());
    }
    message.as_object()?.values().find_map(|nested| {
        let label = nested[2].as_str()?;
        let name = nested[1].as_str().filter(|_| label != "repeated")?;
        let nested_message = messages.get(&qualified(scope, name))?;
        let rest = own_number(nested_message, field).map(|number| number.to_string()).or_else(|| {
            // One level more, and only into messages that JSON does not show as a field of their own.
            nested_message.as_object()?.values().find_map(|deeper| {
                let message = messages.get(&qualified(scope, deeper[1].as_str()?))?;
                Some(format!("{}.{}", deeper[0].as_u64()?, own_number(message, field)?))
            })
        })?;
        Some(format!("{}.{rest}", nested[0].as_u64()?))
    })
}

/// Protobuf writes some names in another case and without signs: `aPIGroup`, `xKubernetesListType`.
fn own_number(message: &Value, field: &str) -> Option<u64> {
    let plain = |name: &str| name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    let exact = message.get(field);
    let found = exact
        .or_else(|| message.as_object()?.iter().find(|(name, _)| plain(name) == plain(field)).map(|(_, value)| value));
    found?[0].as_u64()
}

fn message_of<'a>(messages: &'a Map<String, Value>, long: &str) -> Option<&'a Value> {
    messages.get(&protobuf_name(long))
}

/// Full names start with a dot; others are of the same package.
fn qualified(scope: &str, name: &str) -> String {
    match name.strip_prefix('.') {
        Some(full) => full.to_owned(),
        None => {
            let own = protobuf_name(scope);
            let package = own.rsplit_once('.').map_or("", |(package, _)| package);
            format!("{package}.{name}")
        }
    }
}

fn protobuf_name(long: &str) -> String {
    long.replacen("io.k8s.", "k8s.io.", 1).replace("-apiserver", "_apiserver").replace("kube-", "kube_")
}

/// `io.k8s.api.core.v1.Pod` is `core.v1.Pod`; types without a version keep their last name alone.
fn short(long: &str) -> String {
    let parts: Vec<&str> = long.split('.').collect();
    match parts.as_slice() {
        [.., group, version, name] if version.starts_with('v') => format!("{group}.{version}.{name}"),
        [.., name] => (*name).to_owned(),
        [] => String::new(),
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn joined(list: &Value) -> String {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
}
