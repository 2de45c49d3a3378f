//! Definitions of custom resources: checked whole when they come, so that nothing is left to fail later.

use serde_json::{Value, json};
use structural::{FieldError, Reason, Schema};

use super::{Strategy, immutable, member};
use crate::names;

/// Keeps a definition until its objects are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

pub(super) struct Definition;

impl Strategy for Definition {
    fn prepare_create(&self, object: &mut Value) {
        let stored: Vec<Value> =
            versions(object).filter(|one| one["storage"] == true).map(|one| one["name"].clone()).collect();
        object["status"] = json!({
            "conditions": null,
            "acceptedNames": { "plural": "", "kind": "" },
            "storedVersions": stored,
        });
    }

    fn prepare_update(&self, _old: &Value, new: &mut Value, subresource: Option<&str>) {
        if subresource.is_some() {
            return;
        }
        let stored: Vec<Value> =
            versions(new).filter(|one| one["storage"] == true).map(|one| one["name"].clone()).collect();
        if let Some(known) = new["status"]["storedVersions"].as_array_mut() {
            known.extend(stored.into_iter().filter(|name| !known.contains(name)).collect::<Vec<_>>());
        }
    }

    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        validate(object, None)
    }

    fn validate_update(&self, old: &Value, new: &Value, subresource: Option<&str>) -> Vec<FieldError> {
        if subresource.is_some() {
            return Vec::new();
        }
        let mut errors = validate(new, Some(old));
        let established = is_true(old, "Established");
        for (pointer, field) in [
            ("/spec/group", "spec.group"),
            ("/spec/names/plural", "spec.names.plural"),
            ("/spec/names/kind", "spec.names.kind"),
            ("/spec/scope", "spec.scope"),
        ] {
            let fixed = established || field == "spec.group" || field == "spec.names.plural";
            if fixed && old.pointer(pointer) != new.pointer(pointer) {
                errors.push(immutable(field, new.pointer(pointer).unwrap_or(&Value::Null)));
            }
        }
        errors
    }

    fn deleting(&self, object: &mut Value) {
        if let Some(metadata) = member(object, "metadata") {
            let list = metadata.entry("finalizers").or_insert_with(|| json!([]));
            if let Some(list) = list.as_array_mut()
                && !list.iter().any(|one| one == CLEANUP)
            {
                list.push(CLEANUP.into());
            }
        }
    }
}

fn versions(object: &Value) -> impl Iterator<Item = &Value> {
    object["spec"]["versions"].as_array().into_iter().flatten()
}

pub(crate) fn is_true(object: &Value, condition: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|one| one["type"] == condition && one["status"] == "True")
}

fn validate(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &object["spec"];
    let text = |pointer: &str| spec.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (group, plural) = (text("/group"), text("/names/plural"));
    let expected = format!("{plural}.{group}");
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if name != expected {
        errors.push(invalid("metadata.name", name, "must be spec.names.plural+\".\"+spec.group"));
    }
    check_group(group, &mut errors);
    check_names(&spec["names"], &mut errors);
    match text("/scope") {
        "Namespaced" | "Cluster" => {}
        "" => errors.push(required("spec.scope", "")),
        other => errors.push(FieldError {
            field: "spec.scope".to_owned(),
            reason: Reason::NotSupported,
            message: format!("Unsupported value: \"{other}\": supported values: \"Cluster\", \"Namespaced\""),
        }),
    }
    check_versions(object, old, &mut errors);
    errors
}

fn check_group(group: &str, errors: &mut Vec<FieldError>) {
    let field = "spec.group";
    if group.is_empty() {
        errors.push(required(field, ""));
    } else if let Some(problem) = names::subdomain(group).first() {
        errors.push(invalid(field, group, problem));
    } else if !group.contains('.') {
        errors.push(invalid(field, group, "should be a domain with at least one dot"));
    }
}

fn check_names(given: &Value, errors: &mut Vec<FieldError>) {
    for name in ["plural", "singular", "kind", "listKind"] {
        let field = format!("spec.names.{name}");
        match given[name].as_str() {
            None | Some("") => errors.push(required(&field, "")),
            Some(text) => {
                let lower = text.to_lowercase();
                let problems = names::name(names::NameRule::Dns1035, &lower);
                let problem = problems.first().map(String::as_str);
                let capital = (lower != text && !name.to_lowercase().contains("kind")).then_some("must be lower case");
                if let Some(problem) = problem.or(capital) {
                    errors.push(invalid(&field, text, problem));
                }
            }
        }
    }
    if given["kind"].is_string() && given["kind"] == given["listKind"] {
        let kind = given["kind"].as_str().unwrap_or_default();
        errors.push(invalid("spec.names.listKind", kind, "kind and listKind may not be the same"));
    }
}

fn check_versions(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let mut seen = Vec::new();
    let mut stored = 0;
    let all: Vec<&Value> = versions(object).collect();
    for (index, version) in all.iter().enumerate() {
        let path = format!("spec.versions[{index}]");
        let name = version["name"].as_str().unwrap_or_default();
        if let Some(problem) = names::name(names::NameRule::Dns1035, name).first() {
            errors.push(invalid(&format!("{path}.name"), name, problem));
        }
        if seen.contains(&name) {
            errors.push(invalid(&path, name, "must contain unique version names"));
        }
        seen.push(name);
        stored += usize::from(version["storage"] == true);
        let unchanged = old.is_some_and(|old| versions(old).any(|before| before == *version));
        if !unchanged {
            check_version(version, &path, errors);
        }
    }
    if stored != 1 {
        let text = serde_json::to_string(&object["spec"]["versions"]).unwrap_or_default();
        let message = format!("Invalid value: {text}: must have exactly one version marked as storage version");
        errors.push(FieldError { field: "spec.versions".to_owned(), reason: Reason::Invalid, message });
    }
    for name in object["status"]["storedVersions"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !seen.contains(&name) {
            let index =
                object["status"]["storedVersions"].as_array().and_then(|all| all.iter().position(|one| one == name));
            let field = format!("status.storedVersions[{}]", index.unwrap_or_default());
            errors.push(invalid(&field, name, "missing from spec.versions; v1 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 from status.storedVersions".replace("v1", name).as_str()));
        }
    }
}

fn check_version(version: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let schema_path = format!("{path}.schema.openAPIV3Schema");
    let source = &version["schema"]["openAPIV3Schema"];
    if !source.is_object() {
        errors.push(required(&schema_path, "schemas are required"));
        return;
    }
    let schema = match Schema::compile(source, &schema_path) {
        Ok(schema) => schema,
        Err(problems) => {
            errors.extend(problems);
            return;
        }
    };
    for (index, column) in version["additionalPrinterColumns"].as_array().into_iter().flatten().enumerate() {
        let path = format!("{path}.additionalPrinterColumns[{index}]");
        check_column(column, &path, errors);
    }
    for (index, field) in version["selectableFields"].as_array().into_iter().flatten().enumerate() {
        let text = field["jsonPath"].as_str().unwrap_or_default();
        let path = format!("{path}.selectableFields[{index}].jsonPath");
        if !matches!(schema.type_at(text), Some("string" | "integer" | "boolean")) {
            errors.push(invalid(
                &path,
                text,
                "is an invalid path: must point to a string, boolean or integer field of the schema",
            ));
        }
    }
    let scale = &version["subresources"]["scale"];
    if scale.is_object() {
        for (name, start) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
            let text = scale[name].as_str().unwrap_or_default();
            let path = format!("{path}.subresources.scale.{name}");
            if text.is_empty() {
                errors.push(required(&path, ""));
            } else if !text.starts_with(start) {
                errors.push(invalid(
                    &path,
                    text,
                    &format!("should be a json path under {}", start.trim_end_matches('.')),
                ));
            }
        }
    }
}

fn check_column(column: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if column["name"].as_str().is_none_or(str::is_empty) {
        errors.push(required(&format!("{path}.name"), ""));
    }
    match column["type"].as_str().unwrap_or_default() {
        "" => errors.push(required(&format!("{path}.type"), "must be one of boolean,date,integer,number,string")),
        "boolean" | "date" | "integer" | "number" | "string" => {}
        other => {
            errors.push(invalid(&format!("{path}.type"), other, "must be one of boolean,date,integer,number,string"));
        }
    }
    let text = column["jsonPath"].as_str().unwrap_or_default();
    if text.is_empty() {
        errors.push(required(&format!("{path}.jsonPath"), ""));
    } else if let Err(problem) = crate::jsonpath::Path::parse(text) {
        errors.push(invalid(&format!("{path}.jsonPath"), text, &problem));
    }
}

fn invalid(field: &str, value: &str, problem: &str) -> FieldError {
    let message = format!("Invalid value: \"{value}\": {problem}");
    FieldError { field: field.to_owned(), reason: Reason::Invalid, message }
}

fn required(field: &str, detail: &str) -> FieldError {
    let message = if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
    FieldError { field: field.to_owned(), reason: Reason::Required, message }
}
