//! Label selectors, checked once and then matched.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

type Labels = BTreeMap<String, String>;

/// A selector that must not be acted on. Final: only an edit of the object helps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// It would claim every object of the namespace.
    #[error("spec.selector is empty and would match everything in the namespace")]
    Empty,
    /// An operator that Kubernetes does not know.
    #[error("spec.selector.matchExpressions[{index}].operator {operator:?} is none of In, NotIn, Exists, DoesNotExist")]
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
pub(crate) struct Selector<'a> {
    labels: &'a LabelSelector,
    expressions: Vec<Expression<'a>>,
}

struct Expression<'a> {
    key: &'a str,
    operator: Operator,
    values: &'a [String],
}

enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl<'a> Selector<'a> {
    /// Reads a selector that has to match the labels of the template beside it.
    pub(crate) fn of_template(from: &'a LabelSelector, template: Option<&Labels>) -> Result<Self, SelectorError> {
        let selector = Self::read(from)?;
        if selector.matches(template) { Ok(selector) } else { Err(SelectorError::MissesTemplate) }
    }

    /// Reads a selector that matches something, but not everything.
    pub(crate) fn read(from: &'a LabelSelector) -> Result<Self, SelectorError> {
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
        if expressions.is_empty() && from.match_labels.as_ref().is_none_or(BTreeMap::is_empty) {
            return Err(SelectorError::Empty);
        }
        Ok(Self { labels: from, expressions })
    }

    pub(crate) fn matches(&self, labels: Option<&Labels>) -> bool {
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
