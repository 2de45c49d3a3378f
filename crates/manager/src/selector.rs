//! Label selectors, checked once and then matched.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

type Labels = BTreeMap<String, String>;

/// A selector that must not be acted on. Final: only an edit of the object helps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// It would claim every object of the namespace.
    #[error("spec.selector is empty and would match everything in the namespace")]
    Empty,
    /// An operator that Kubernetes does not know.
    #[error(
        "spec.selector.matchExpressions[{index}].operator {operator:?} is not valid; use In, NotIn, Exists or DoesNotExist"
    )]
    UnknownOperator {
        /// Which expression.
        index: usize,
        /// What it says.
        operator: String,
    },
    /// Children would be created for ever, none of them recognised.
    #[error("spec.selector does not match spec.template.metadata.labels")]
    MissesTemplate,
}

/// A selector that was found usable.
#[derive(Debug)]
pub struct Selector<'a> {
    labels: &'a LabelSelector,
    expressions: Vec<Expression<'a>>,
}

#[derive(Debug)]
struct Expression<'a> {
    key: &'a str,
    operator: Operator,
    values: &'a [String],
}

#[derive(Debug)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl<'a> Selector<'a> {
    /// Reads a selector that has to match the labels of the template beside it.
    ///
    /// # Errors
    /// When it does not, or cannot be used.
    pub fn of_template(from: &'a LabelSelector, template: Option<&Labels>) -> Result<Self, SelectorError> {
        let selector = Self::read(from)?;
        if selector.matches(template) { Ok(selector) } else { Err(SelectorError::MissesTemplate) }
    }

    /// Reads a selector that matches something, but not everything.
    ///
    /// # Errors
    /// When it matches everything, or has an operator that nobody knows.
    pub fn read(from: &'a LabelSelector) -> Result<Self, SelectorError> {
        let selector = Self::read_any(from)?;
        if selector.expressions.is_empty() && from.match_labels.as_ref().is_none_or(BTreeMap::is_empty) {
            return Err(SelectorError::Empty);
        }
        Ok(selector)
    }

    /// Reads a selector that may match everything.
    ///
    /// # Errors
    /// When it has an operator that nobody knows.
    pub fn read_any(from: &'a LabelSelector) -> Result<Self, SelectorError> {
        let mut expressions = Vec::new();
        for (index, requirement) in from.match_expressions.iter().flatten().enumerate() {
            let operator = match requirement.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(SelectorError::UnknownOperator { index, operator: other.to_owned() }),
            };
            let values = requirement.values.as_deref().unwrap_or_default();
            expressions.push(Expression { key: &requirement.key, operator, values });
        }
        Ok(Self { labels: from, expressions })
    }

    /// Whether it selects an object with these labels.
    #[must_use]
    pub fn matches(&self, labels: Option<&Labels>) -> bool {
        let value_of = |key: &str| labels.and_then(|labels| labels.get(key));
        let wanted = self.labels.match_labels.iter().flatten();
        wanted.into_iter().all(|(key, value)| value_of(key) == Some(value))
            && self.expressions.iter().all(|expression| {
                let value = value_of(expression.key);
                let listed = value.is_some_and(|value| expression.values.contains(value));
                match expression.operator {
                    Operator::In => listed,
                    Operator::NotIn => !listed,
                    Operator::Exists => value.is_some(),
                    Operator::DoesNotExist => value.is_none(),
                }
            })
    }
}

/// As clients and the scale subresource write selectors: `a=b,c in (d,e),!f`, in the order of the keys.
impl fmt::Display for Selector<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels =
            self.labels.match_labels.iter().flatten().map(|(key, value)| (key.as_str(), format!("{key}={value}")));
        let expressions = self.expressions.iter().map(|Expression { key, operator, values }| {
            let mut values: Vec<&str> = values.iter().map(String::as_str).collect();
            values.sort_unstable();
            let text = match operator {
                Operator::In => format!("{key} in ({})", values.join(",")),
                Operator::NotIn => format!("{key} notin ({})", values.join(",")),
                Operator::Exists => (*key).to_owned(),
                Operator::DoesNotExist => format!("!{key}"),
            };
            (*key, text)
        });
        let mut all: Vec<(&str, String)> = labels.chain(expressions).collect();
        all.sort_by_key(|(key, _)| *key);
        let texts: Vec<String> = all.into_iter().map(|(_, text)| text).collect();
        f.write_str(&texts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_selector_is_written_as_clients_write_it() {
        let from: LabelSelector = serde_json::from_value(json!({
            "matchLabels": { "app": "web", "tier": "a" },
            "matchExpressions": [
                { "key": "zone", "operator": "NotIn", "values": ["c", "b"] },
                { "key": "old", "operator": "DoesNotExist" },
                { "key": "b", "operator": "In", "values": ["y", "x"] },
                { "key": "any", "operator": "Exists" },
            ],
        }))
        .unwrap();
        let text = Selector::read(&from).unwrap().to_string();
        assert_eq!(text, "any,app=web,b in (x,y),!old,tier=a,zone notin (b,c)");
    }
}
