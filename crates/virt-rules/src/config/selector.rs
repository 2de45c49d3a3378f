//! Label selectors: does an object with these labels match?

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// Whether labels fit a selector. An empty selector matches everything; an operator nobody knows matches nothing.
#[must_use]
pub fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let exact = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    exact && selector.match_expressions.iter().flatten().all(|requirement| fits(requirement, labels))
}

fn fits(requirement: &LabelSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let value = labels.get(&requirement.key);
    let listed = value.is_some_and(|value| requirement.values.iter().flatten().any(|one| one == value));
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selects(operator: &str, values: &[&str], label: Option<&str>) -> bool {
        let requirement = LabelSelectorRequirement {
            key: "tier".into(),
            operator: operator.into(),
            values: Some(values.iter().map(ToString::to_string).collect()),
        };
        let labels = label.map(|value| ("tier".to_owned(), value.to_owned())).into_iter().collect();
        matches(&LabelSelector { match_expressions: Some(vec![requirement]), ..Default::default() }, &labels)
    }

    #[test]
    fn operators_mean_what_kubernetes_says() {
        assert!(selects("In", &["a", "b"], Some("b")) && !selects("In", &["a"], None));
        assert!(selects("NotIn", &["a"], None) && !selects("NotIn", &["a"], Some("a")));
        assert!(selects("Exists", &[], Some("x")) && !selects("Exists", &[], None));
        assert!(selects("DoesNotExist", &[], None) && !selects("DoesNotExist", &[], Some("x")));
        assert!(!selects("Near", &["a"], Some("a")));
    }

    #[test]
    fn an_empty_selector_matches_everything() {
        assert!(matches(&LabelSelector::default(), &BTreeMap::new()));
    }
}
