//! Definitions of custom resources: checked whole when they come, so that nothing is left to fail later.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use structural::{FieldError, Reason, Schema};

use super::{Strategy, immutable, member};
use crate::bounds::{LONGEST_TOLD, MOST_COLUMNS, MOST_SELECTABLE, MOST_STEPS, MOST_TOLD, cut_at, shown};
use crate::names;
use crate::registry::Registry;

/// Versions of one definition: each is compared with the others.
const MOST_VERSIONS: usize = 100;

/// Short names of one definition, and categories.
const MOST_NAMES: usize = 100;

/// Keeps a definition until its objects are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

pub(super) struct Definition;

impl Strategy for Definition {
    fn prepare_create(&self, object: &mut Value) {
        let mut stored: Vec<Value> =
            versions(object).filter(|one| one["storage"] == true).map(|one| one["name"].clone()).collect();
        stored.truncate(1);
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
            let mut names: BTreeSet<String> = known.iter().map(Value::to_string).collect();
            known.extend(stored.into_iter().filter(|name| names.insert(name.to_string())));
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
    if name != expected && old.is_none() {
        errors.push(invalid("metadata.name", name, "must be spec.names.plural+\".\"+spec.group"));
    }
    if Registry::built_in().get(group, plural).is_some() {
        errors.push(invalid("metadata.name", name, "is the name of a built-in resource"));
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
    for name in ["plural", "kind", "listKind", "singular"] {
        let field = format!("spec.names.{name}");
        match given[name].as_str() {
            None | Some("") => errors.push(required(&field, "")),
            Some(text) => {
                let is_kind = name.to_lowercase().contains("kind");
                let checked = if is_kind { text.to_lowercase() } else { text.to_owned() };
                if let Some(problem) = names::name(names::NameRule::Dns1035, &checked).first() {
                    errors.push(invalid(&field, text, problem));
                }
            }
        }
    }
    for list in ["shortNames", "categories"] {
        check_further_names(items(&given[list]), &format!("spec.names.{list}"), errors);
    }
    if given["kind"].is_string() && given["kind"] == given["listKind"] {
        let kind = given["kind"].as_str().unwrap_or_default();
        errors.push(invalid("spec.names.listKind", kind, "kind and listKind may not be the same"));
    }
}

/// Each is compared with those of all other definitions of its group.
fn check_further_names(given: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    if given.len() > MOST_NAMES {
        errors.push(too_many(path, given.len(), MOST_NAMES));
        return;
    }
    for (index, name) in given.iter().enumerate() {
        let name = name.as_str().unwrap_or_default();
        if let Some(problem) = names::name(names::NameRule::Dns1035, name).first() {
            errors.push(invalid(&format!("{path}[{index}]"), name, problem));
        }
    }
}

fn check_versions(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut stored = 0;
    let all: Vec<&Value> = versions(object).collect();
    if all.len() > MOST_VERSIONS {
        errors.push(too_many("spec.versions", all.len(), MOST_VERSIONS));
        return;
    }
    let mut twice = false;
    for (index, version) in all.iter().enumerate() {
        let path = format!("spec.versions[{index}]");
        let name = version["name"].as_str().unwrap_or_default();
        if let Some(problem) = names::name(names::NameRule::Dns1035, name).first() {
            errors.push(invalid(&format!("{path}.name"), name, problem));
        }
        twice |= !seen.insert(name);
        stored += usize::from(version["storage"] == true);
        let unchanged = old.is_some_and(|old| versions(old).any(|before| before == *version));
        if !unchanged {
            check_version(version, &Paths::new(&all, index), errors);
        }
    }
    if twice {
        let text = shown(&object["spec"]["versions"]);
        let message = format!("Invalid value: {text}: must contain unique version names");
        errors.push(FieldError { field: "spec.versions".to_owned(), reason: Reason::Invalid, message });
    }
    check_conversion(object, errors);
    if stored != 1 {
        let text = shown(&object["spec"]["versions"]);
        let message = format!("Invalid value: {text}: must have exactly one version marked as storage version");
        errors.push(FieldError { field: "spec.versions".to_owned(), reason: Reason::Invalid, message });
    }
    let listed = object["status"]["storedVersions"].as_array().map_or(&[][..], |list| list);
    let stored_last =
        all.iter().rfind(|version| version["storage"] == true).and_then(|version| version["name"].as_str());
    if let Some(name) = stored_last.filter(|name| !listed.is_empty() && !listed.iter().any(|one| one == name)) {
        let text = serde_json::to_string(listed).unwrap_or_default();
        let message = format!("Invalid value: {text}: must have the storage version {name}");
        errors.push(FieldError { field: "status.storedVersions".to_owned(), reason: Reason::Invalid, message });
    }
    if listed.is_empty() {
        let message = "Invalid value: null: must have at least one stored version".to_owned();
        errors.push(FieldError { field: "status.storedVersions".to_owned(), reason: Reason::Invalid, message });
    }
    let named = listed.iter().enumerate().filter_map(|(index, one)| Some((index, one.as_str()?)));
    for (index, name) in named {
        if !seen.contains(name) && errors.len() < MOST_TOLD {
            let field = format!("status.storedVersions[{index}]");
            errors.push(invalid(&field, name, "missing from spec.versions; v1 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 from status.storedVersions".replace("v1", name).as_str()));
        }
    }
}

fn check_conversion(object: &Value, errors: &mut Vec<FieldError>) {
    let conversion = &object["spec"]["conversion"];
    match conversion["strategy"].as_str().unwrap_or("None") {
        "None" => {}
        // Served by nobody yet: a definition that is accepted and not acted on would be a lie.
        "Webhook" => errors.push(FieldError {
            field: "spec.conversion.strategy".to_owned(),
            reason: Reason::NotSupported,
            message: "Unsupported value: \"Webhook\": supported values: \"None\"".to_owned(),
        }),
        other => errors.push(FieldError {
            field: "spec.conversion.strategy".to_owned(),
            reason: Reason::NotSupported,
            message: format!("Unsupported value: \"{other}\": supported values: \"None\", \"Webhook\""),
        }),
    }
    if object["spec"]["preserveUnknownFields"] == true {
        errors.push(FieldError {
            field: "spec.preserveUnknownFields".to_owned(),
            reason: Reason::Invalid,
            message: "Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                      spec.versions[*].schema instead"
                .to_owned(),
        });
    }
}

/// Where a part of a version is told to be: what all versions share, Kubernetes takes for a part of the whole.
struct Paths<'a> {
    all: &'a [&'a Value],
    index: usize,
}

impl<'a> Paths<'a> {
    fn new(all: &'a [&'a Value], index: usize) -> Self {
        Self { all, index }
    }

    fn of(&self, part: &str, shared: &str) -> String {
        let first = self.all.first().map(|version| &version[part]);
        if self.all.iter().all(|version| Some(&version[part]) == first) {
            format!("spec.{shared}")
        } else {
            format!("spec.versions[{}].{part}", self.index)
        }
    }
}

fn check_version(version: &Value, paths: &Paths<'_>, errors: &mut Vec<FieldError>) {
    let source = &version["schema"]["openAPIV3Schema"];
    if !source.is_object() {
        errors.push(required(&format!("spec.versions[{}].schema.openAPIV3Schema", paths.index), ""));
        return;
    }
    let schema_path = format!("{}.openAPIV3Schema", paths.of("schema", "validation"));
    let schema = match Schema::compile(source, &schema_path) {
        Ok(schema) => schema,
        Err(problems) => {
            errors.extend(problems);
            return;
        }
    };
    // Told once where they are: to compare what versions share takes as long as it is.
    let columns = paths.of("additionalPrinterColumns", "additionalPrinterColumns");
    check_columns(items(&version["additionalPrinterColumns"]), &columns, errors);
    let fields = paths.of("selectableFields", "selectableFields");
    check_selectable(items(&version["selectableFields"]), &schema, &fields, errors);
    let scale = &version["subresources"]["scale"];
    if scale.is_object() {
        check_scale(scale, &format!("{}.scale", paths.of("subresources", "subresources")), errors);
    }
}

fn check_scale(scale: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (name, start) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status."), ("labelSelectorPath", "")]
    {
        let text = scale[name].as_str().unwrap_or_default();
        let path = format!("{path}.{name}");
        if text.split('.').count() > MOST_STEPS + 1 {
            errors.push(invalid(&path, text, &format!("must have at most {MOST_STEPS} steps")));
        } else if text.is_empty() && !start.is_empty() {
            errors.push(required(&path, ""));
        } else if !text.starts_with(start) {
            errors.push(invalid(&path, text, &format!("should be a json path under {}", start.trim_end_matches('.'))));
        }
    }
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], |list| list)
}

fn check_columns(columns: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    if columns.len() > MOST_COLUMNS {
        errors.push(too_many(path, columns.len(), MOST_COLUMNS));
        return;
    }
    for (index, column) in columns.iter().enumerate() {
        check_column(column, &format!("{path}[{index}]"), errors);
    }
}

/// Objects are stored with a text for each: none is taken twice.
fn check_selectable(fields: &[Value], schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    for (index, field) in fields.iter().enumerate() {
        if errors.len() >= MOST_TOLD {
            return;
        }
        let text = field["jsonPath"].as_str().unwrap_or_default();
        let path = format!("{path}[{index}].jsonPath");
        if !matches!(schema.type_at(text), Some("string" | "integer" | "boolean")) {
            errors.push(invalid(&path, text, "is an invalid path: does not refer to a valid field"));
        } else if !seen.insert(text) {
            let message = format!("Duplicate value: \"{}\"", cut_at(text, LONGEST_TOLD / 2));
            errors.push(FieldError { field: path, reason: Reason::Duplicate, message });
        }
    }
    if seen.len() > MOST_SELECTABLE {
        errors.push(too_many(path, seen.len(), MOST_SELECTABLE));
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
        errors.push(required(&format!("{path}.JSONPath"), ""));
    } else if let Err(problem) = crate::jsonpath::Path::parse(text) {
        errors.push(invalid(&format!("{path}.JSONPath"), text, &problem));
    }
}

fn invalid(field: &str, value: &str, problem: &str) -> FieldError {
    // Cut here, so that what is wrong with a long one is told after it.
    let message = format!("Invalid value: \"{}\": {problem}", cut_at(value, LONGEST_TOLD / 2));
    FieldError { field: field.to_owned(), reason: Reason::Invalid, message }
}

fn required(field: &str, detail: &str) -> FieldError {
    let message = if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
    FieldError { field: field.to_owned(), reason: Reason::Required, message }
}

fn too_many(field: &str, count: usize, most: usize) -> FieldError {
    let message = format!("Too many: {count}: must have at most {most} items");
    FieldError { field: field.to_owned(), reason: Reason::TooMany, message }
}
