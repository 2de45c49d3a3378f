//! Disruption budgets: one of two limits, each a number or a percentage.

use serde_json::Value;
use structural::FieldError;

use super::{Strategy, invalid, negative};

const NO_PERCENTAGE: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used \
                             for validation is '[0-9]+%')";

pub(super) struct Budget;

impl Strategy for Budget {
    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        let spec = &object["spec"];
        let limits = ["minAvailable", "maxUnavailable"];
        if limits.iter().all(|limit| !spec[limit].is_null()) {
            return vec![invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")];
        }
        limits.iter().filter_map(|limit| wrong_with(&format!("spec.{limit}"), &spec[limit])).collect()
    }

    /// What an earlier release accepted can still be labelled, and deleted by whoever takes its finalizers.
    fn validate_update(&self, old: &Value, new: &Value, subresource: Option<&str>) -> Vec<FieldError> {
        if subresource.is_some() || old["spec"] == new["spec"] { Vec::new() } else { self.validate_create(new) }
    }
}

fn wrong_with(field: &str, limit: &Value) -> Option<FieldError> {
    let Some(text) = limit.as_str() else { return negative(field, limit) };
    let digits = text.strip_suffix('%').filter(|digits| !digits.is_empty());
    match digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit())) {
        None => Some(invalid(field, limit, NO_PERCENTAGE)),
        // More digits than a number has are more than a hundred as well.
        Some(digits) if digits.parse::<u64>().map_or(true, |percent| percent > 100) => {
            Some(invalid(field, limit, "must not be greater than 100%"))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_budget_that_nobody_can_keep_is_refused_by_its_path() {
        let table = [
            (json!({ "minAvailable": 0 }), ""),
            (json!({ "maxUnavailable": "100%" }), ""),
            (json!({}), ""),
            (json!({ "minAvailable": 1, "maxUnavailable": 1 }), "spec"),
            (json!({ "minAvailable": -1 }), "spec.minAvailable"),
            (json!({ "maxUnavailable": "101%" }), "spec.maxUnavailable"),
            (json!({ "maxUnavailable": "99999999999999999999999%" }), "spec.maxUnavailable"),
            (json!({ "maxUnavailable": "some" }), "spec.maxUnavailable"),
            (json!({ "minAvailable": "%" }), "spec.minAvailable"),
        ];
        for (spec, field) in table {
            let object = json!({ "spec": spec });
            let wrong = Budget.validate_create(&object);
            let found: Vec<&str> = wrong.iter().map(|one| one.field.as_str()).collect();
            assert_eq!(found.concat(), field, "{spec}");
            let before = json!({ "spec": { "minAvailable": 7 } });
            assert_eq!(Budget.validate_update(&before, &object, None), wrong);
            assert_eq!(Budget.validate_update(&before, &object, Some("status")), []);
            assert_eq!(Budget.validate_update(&object, &object, None), []);
        }
    }
}
