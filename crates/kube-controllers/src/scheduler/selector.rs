//! Selectors over labels, read once: of nodes by their labels and name, of pods and namespaces by their labels.
//!
//! What does not make sense selects nothing, as in Kubernetes: an unknown operator, `In` without values, `Gt` with
//! something other than one number.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

pub(super) type Labels = BTreeMap<String, String>;

/// The only field of a node that a selector may name.
const NAME_FIELD: &str = "metadata.name";

/// All requirements hold; `None` selects nothing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Selector(Option<Vec<Requirement>>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Test {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    DoesNotExist,
    Above(i64),
    Below(i64),
}

impl Selector {
    /// Without a selector nothing is selected; with an empty one, everything.
    pub(super) fn of_labels(selector: Option<&LabelSelector>) -> Self {
        let Some(selector) = selector else { return Self(None) };
        let exact = selector.match_labels.iter().flatten().map(|(key, value)| Some(Requirement::equal(key, value)));
        let expressions = selector.match_expressions.iter().flatten();
        let expressions = expressions.map(|wanted| Requirement::read(&wanted.key, &wanted.operator, &wanted.values));
        Self(exact.chain(expressions).collect())
    }

    /// A pod's `nodeSelector`.
    pub(super) fn equal<'a>(labels: impl Iterator<Item = (&'a String, &'a String)>) -> Self {
        Self(Some(labels.map(|(key, value)| Requirement::equal(key, value)).collect()))
    }

    pub(super) fn matches(&self, labels: &Labels) -> bool {
        let Some(requirements) = &self.0 else { return false };
        requirements.iter().all(|requirement| requirement.test.holds(labels.get(&requirement.key).map(String::as_str)))
    }
}

/// One term of a node affinity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeTerm {
    labels: Selector,
    /// Wanted (`true`) or unwanted names.
    names: Vec<(bool, String)>,
}

impl NodeTerm {
    pub(super) fn read(term: &NodeSelectorTerm) -> Self {
        let expressions = term.match_expressions.as_deref().unwrap_or_default();
        let fields = term.match_fields.as_deref().unwrap_or_default();
        let mut labels = expressions
            .iter()
            .map(|wanted| Requirement::read(&wanted.key, &wanted.operator, &wanted.values))
            .collect::<Option<Vec<_>>>();
        let names = fields.iter().map(read_field).collect::<Option<Vec<_>>>();
        // A term that says nothing selects nothing.
        if names.is_none() || (expressions.is_empty() && fields.is_empty()) {
            labels = None;
        }
        Self { labels: Selector(labels), names: names.unwrap_or_default() }
    }

    pub(super) fn matches(&self, name: &str, labels: &Labels) -> bool {
        self.names.iter().all(|(wanted, other)| *wanted == (name == other)) && self.labels.matches(labels)
    }

    /// The names that every node of this term must bear; `None` if it does not go by name.
    pub(super) fn node_names(&self) -> Option<BTreeSet<String>> {
        let mut wanted = self.names.iter().filter(|(wanted, _)| *wanted).map(|(_, name)| name);
        let first = wanted.next()?;
        Some(if wanted.all(|name| name == first) { BTreeSet::from([first.clone()]) } else { BTreeSet::new() })
    }
}

fn read_field(wanted: &NodeSelectorRequirement) -> Option<(bool, String)> {
    let [name] = wanted.values.as_deref()? else { return None };
    match (wanted.key.as_str(), wanted.operator.as_str()) {
        (NAME_FIELD, "In") => Some((true, name.clone())),
        (NAME_FIELD, "NotIn") => Some((false, name.clone())),
        _ => None,
    }
}

impl Requirement {
    fn equal(key: &str, value: &str) -> Self {
        Self { key: key.to_owned(), test: Test::In(BTreeSet::from([value.to_owned()])) }
    }

    fn read(key: &str, operator: &str, values: &Option<Vec<String>>) -> Option<Self> {
        let values = values.as_deref().unwrap_or_default();
        let set = || values.iter().cloned().collect();
        let test = match (operator, values) {
            ("In", [_, ..]) => Test::In(set()),
            ("NotIn", [_, ..]) => Test::NotIn(set()),
            ("Exists", []) => Test::Exists,
            ("DoesNotExist", []) => Test::DoesNotExist,
            ("Gt", [bound]) => Test::Above(bound.parse().ok()?),
            ("Lt", [bound]) => Test::Below(bound.parse().ok()?),
            _ => return None,
        };
        Some(Self { key: key.to_owned(), test })
    }
}

impl Test {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::In(values) => value.is_some_and(|value| values.contains(value)),
            Self::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
            Self::Above(bound) => number().is_some_and(|number| number > *bound),
            Self::Below(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}
