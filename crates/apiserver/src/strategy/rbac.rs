//! Roles and bindings: rules that mean something, and what a binding binds stays.

use serde_json::{Value, json};
use structural::{FieldError, Reason};

use super::Strategy;
use crate::names::{self, NameRule};
use crate::rbac::GROUP;

pub(super) struct Role;
pub(super) struct ClusterRole;
pub(super) struct RoleBinding;
pub(super) struct ClusterRoleBinding;

impl Strategy for Role {
    fn prepare_create(&self, object: &mut Value) {
        show_rules(object);
    }

    fn prepare_update(&self, _old: &Value, new: &mut Value, _subresource: Option<&str>) {
        show_rules(new);
    }

    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        rules(object, true)
    }

    fn validate_update(&self, _old: &Value, new: &Value, _subresource: Option<&str>) -> Vec<FieldError> {
        rules(new, true)
    }

    fn create_on_update(&self) -> bool {
        true
    }
}

impl Strategy for ClusterRole {
    fn prepare_create(&self, object: &mut Value) {
        show_rules(object);
    }

    fn prepare_update(&self, _old: &Value, new: &mut Value, _subresource: Option<&str>) {
        show_rules(new);
    }

    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        cluster_role(object)
    }

    fn validate_update(&self, _old: &Value, new: &Value, _subresource: Option<&str>) -> Vec<FieldError> {
        cluster_role(new)
    }

    fn create_on_update(&self) -> bool {
        true
    }
}

impl Strategy for RoleBinding {
    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        binding(object, true)
    }

    fn validate_update(&self, old: &Value, new: &Value, _subresource: Option<&str>) -> Vec<FieldError> {
        rebinding(old, new, true)
    }

    fn create_on_update(&self) -> bool {
        true
    }
}

impl Strategy for ClusterRoleBinding {
    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        binding(object, false)
    }

    fn validate_update(&self, old: &Value, new: &Value, _subresource: Option<&str>) -> Vec<FieldError> {
        rebinding(old, new, false)
    }

    fn create_on_update(&self) -> bool {
        true
    }
}

/// Rules are always shown; none of them is null.
fn show_rules(object: &mut Value) {
    if list(object, "rules").is_empty() {
        object["rules"] = Value::Null;
    }
}

fn cluster_role(object: &Value) -> Vec<FieldError> {
    let mut errors = rules(object, false);
    let Some(aggregation) = object.get("aggregationRule").filter(|rule| !rule.is_null()) else { return errors };
    let field = "aggregationRule.clusterRoleSelectors";
    let selectors = list(aggregation, "clusterRoleSelectors");
    if selectors.is_empty() {
        errors.push(required(field, "at least one clusterRoleSelector required if aggregationRule is non-nil"));
    }
    for (index, selector) in selectors.iter().enumerate() {
        errors.extend(label_selector(&format!("{field}[{index}]"), selector));
    }
    errors
}

/// What is wrong with a selector of labels.
fn label_selector(field: &str, selector: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, expression) in list(selector, "matchExpressions").iter().enumerate() {
        let field = format!("{field}.matchExpressions[{index}]");
        let values = !list(expression, "values").is_empty();
        match text(expression, "operator") {
            "In" | "NotIn" if !values => {
                let problem = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(required(&format!("{field}.values"), problem));
            }
            "Exists" | "DoesNotExist" if values => {
                let problem = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(super::forbidden(&format!("{field}.values"), problem));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.push(invalid(&format!("{field}.operator"), &other.into(), "not a valid selector operator")),
        }
    }
    if !errors.is_empty() {
        errors.push(invalid(field, &Value::Null, "invalid label selector."));
    }
    errors
}

fn rules(object: &Value, namespaced: bool) -> Vec<FieldError> {
    let each = list(object, "rules").iter().enumerate();
    each.flat_map(|(index, one)| rule(&format!("rules[{index}]"), one, namespaced)).collect()
}

fn rule(field: &str, rule: &Value, namespaced: bool) -> Vec<FieldError> {
    let has = |name: &str| !list(rule, name).is_empty();
    let mut errors = Vec::new();
    if !has("verbs") {
        errors.push(required(&format!("{field}.verbs"), "verbs must contain at least one value"));
    }
    if has("nonResourceURLs") {
        let (place, urls) = (format!("{field}.nonResourceURLs"), &rule["nonResourceURLs"]);
        if namespaced {
            errors.push(invalid(&place, urls, "namespaced rules cannot apply to non-resource URLs"));
        }
        if has("apiGroups") || has("resources") || has("resourceNames") {
            errors.push(invalid(&place, urls, "rules cannot apply to both regular resources and non-resource URLs"));
        }
        return errors;
    }
    if !has("apiGroups") {
        let problem = "resource rules must supply at least one api group";
        errors.push(required(&format!("{field}.apiGroups"), problem));
    }
    if !has("resources") {
        errors.push(required(&format!("{field}.resources"), "resource rules must supply at least one resource"));
    }
    errors
}

fn binding(object: &Value, namespaced: bool) -> Vec<FieldError> {
    let mut errors = role_ref(&object["roleRef"], namespaced);
    let each = list(object, "subjects").iter().enumerate();
    errors.extend(each.flat_map(|(index, one)| subject(&format!("subjects[{index}]"), one, namespaced)));
    errors
}

fn rebinding(old: &Value, new: &Value, namespaced: bool) -> Vec<FieldError> {
    let mut errors = binding(new, namespaced);
    let role = &new["roleRef"];
    if old["roleRef"] != *role {
        let shown = json!({ "APIGroup": role["apiGroup"], "Kind": role["kind"], "Name": role["name"] });
        errors.push(invalid("roleRef", &shown, "cannot change roleRef"));
    }
    errors
}

fn role_ref(role: &Value, namespaced: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    errors.extend(one_of("roleRef.apiGroup", text(role, "apiGroup"), &[GROUP]));
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    errors.extend(one_of("roleRef.kind", text(role, "kind"), kinds));
    let name = text(role, "name");
    if name.is_empty() {
        errors.push(required("roleRef.name", ""));
    }
    let problems = names::name(NameRule::PathSegment, name);
    errors.extend(problems.iter().map(|problem| invalid("roleRef.name", &name.into(), problem)));
    errors
}

fn subject(field: &str, subject: &Value, namespaced: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = text(subject, "name");
    if name.is_empty() {
        errors.push(required(&format!("{field}.name"), ""));
    }
    let group = |allowed: &str| one_of(&format!("{field}.apiGroup"), text(subject, "apiGroup"), &[allowed]);
    match text(subject, "kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                let problems = names::subdomain(name);
                errors.extend(problems.iter().map(|problem| invalid(&format!("{field}.name"), &name.into(), problem)));
            }
            errors.extend(group(""));
            if !namespaced && text(subject, "namespace").is_empty() {
                errors.push(required(&format!("{field}.namespace"), ""));
            }
        }
        "User" | "Group" => errors.extend(group(GROUP)),
        other => errors.extend(one_of(&format!("{field}.kind"), other, &["ServiceAccount", "User", "Group"])),
    }
    errors
}

fn list<'a>(object: &'a Value, field: &str) -> &'a [Value] {
    object[field].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

fn one_of(field: &str, value: &str, allowed: &[&str]) -> Option<FieldError> {
    if allowed.contains(&value) {
        return None;
    }
    let allowed: Vec<String> = allowed.iter().map(|one| format!("{one:?}")).collect();
    let message = format!("Unsupported value: {value:?}: supported values: {}", allowed.join(", "));
    Some(FieldError { field: field.to_owned(), reason: Reason::NotSupported, message })
}

fn invalid(field: &str, value: &Value, problem: &str) -> FieldError {
    let message = format!("Invalid value: {value}: {problem}");
    FieldError { field: field.to_owned(), reason: Reason::Invalid, message }
}

fn required(field: &str, detail: &str) -> FieldError {
    let message = if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
    FieldError { field: field.to_owned(), reason: Reason::Required, message }
}
