//! A schema in memory: what pruning, defaulting and validation need of it, and nothing else.
//!
//! Nodes are immutable and shared: equal subtrees are one node (see `intern`). Children are therefore compared and
//! hashed by address.

mod rule;

use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use regex::Regex;
use serde_json::{Number, Value};

pub(crate) use self::rule::Rule;
use crate::formats::Format;

/// How deep a schema may nest. Kubernetes has no such limit, but objects that arrive are bounded, so that what lies
/// deeper could never be used.
pub(crate) const DEPTH: usize = 128;

/// A shared node.
#[derive(Clone, Debug)]
pub(crate) struct Shared(pub(crate) Arc<Node>);

impl Deref for Shared {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.0
    }
}

impl PartialEq for Shared {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Shared {}

impl Hash for Shared {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

/// One schema, without its descriptions.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub(crate) kind: Option<Type>,
    pub(crate) nullable: bool,
    pub(crate) preserve: bool,
    pub(crate) embedded: bool,
    /// Sorted by name.
    pub(crate) properties: Box<[(Box<str>, Shared)]>,
    pub(crate) additional: Additional,
    pub(crate) items: Option<Shared>,
    pub(crate) default: Option<Box<Value>>,
    pub(crate) list: ListType,
    pub(crate) limits: Option<Box<Limits>>,
    pub(crate) junctors: Option<Box<Junctors>>,
    pub(crate) rules: Box<[Rule]>,
    pub(crate) below: Below,
    /// The least number of bytes that a value takes as JSON.
    pub(crate) smallest: u64,
}

/// What a node or anything below it has, so that walks can turn back early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Below {
    pub(crate) rules: bool,
    pub(crate) unique_lists: bool,
    pub(crate) embedded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
}

/// What an object may hold beside its properties.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Additional {
    /// Nothing is said: unknown fields are pruned.
    #[default]
    Unset,
    /// `true` and `false` are the same to pruning; only validation refuses what `false` does not name.
    Bool(bool),
    Schema(Shared),
}

#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum ListType {
    #[default]
    Atomic,
    Set,
    Map(Box<[Box<str>]>),
}

/// Limits on values. Most nodes have none.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Limits {
    pub(crate) minimum: Option<Number>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) maximum: Option<Number>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) multiple_of: Option<Number>,
    pub(crate) min_length: Option<i64>,
    pub(crate) max_length: Option<i64>,
    pub(crate) min_items: Option<i64>,
    pub(crate) max_items: Option<i64>,
    pub(crate) min_properties: Option<i64>,
    pub(crate) max_properties: Option<i64>,
    pub(crate) pattern: Option<Arc<Pattern>>,
    pub(crate) format: Option<Format>,
    pub(crate) required: Box<[Box<str>]>,
    pub(crate) allowed: Box<[Value]>,
}

#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Junctors {
    pub(crate) all_of: Box<[Shared]>,
    pub(crate) any_of: Box<[Shared]>,
    pub(crate) one_of: Box<[Shared]>,
    pub(crate) not: Option<Shared>,
}

/// A regular expression, compiled when it is first used.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) source: Box<str>,
    regex: OnceLock<Option<Regex>>,
}

impl Type {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }

    /// The name in messages; of int-or-string it is both.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::IntOrString => "integer,string",
        }
    }
}

impl Node {
    pub(crate) fn property(&self, name: &str) -> Option<&Shared> {
        let index = self.properties.binary_search_by(|(key, _)| (**key).cmp(name)).ok()?;
        self.properties.get(index).map(|(_, node)| node)
    }

    /// The schema of a field: its property, or what additional properties have.
    pub(crate) fn field(&self, name: &str) -> Option<&Shared> {
        self.property(name).or(match &self.additional {
            Additional::Schema(node) => Some(node),
            Additional::Unset | Additional::Bool(_) => None,
        })
    }

    pub(crate) fn additional_schema(&self) -> Option<&Shared> {
        match &self.additional {
            Additional::Schema(node) => Some(node),
            Additional::Unset | Additional::Bool(_) => None,
        }
    }

    /// The type's name as CRDs spell it.
    pub(crate) fn type_name(&self) -> &'static str {
        match self.kind {
            None | Some(Type::IntOrString) => "",
            Some(kind) => kind.as_str(),
        }
    }

    /// Fills in `below` and `smallest` from the children.
    pub(crate) fn summed_up(mut self) -> Self {
        let mut below = Below {
            rules: !self.rules.is_empty(),
            unique_lists: self.list != ListType::Atomic,
            embedded: self.embedded,
        };
        let properties = self.properties.iter().map(|(_, node)| node);
        for child in properties.chain(&self.items).chain(self.additional_schema()) {
            below.rules |= child.below.rules;
            below.unique_lists |= child.below.unique_lists;
            below.embedded |= child.below.embedded;
        }
        self.below = below;
        self.smallest = self.least();
        self
    }

    fn least(&self) -> u64 {
        match self.kind {
            Some(Type::Boolean) => 4,
            Some(Type::Integer | Type::Number | Type::IntOrString) => 1,
            Some(Type::Object) if !self.properties.is_empty() => {
                let required = self.limits.as_deref().map_or(&[][..], |limits| &limits.required);
                let fields = required.iter().filter_map(|name| {
                    let inner = self.property(name).filter(|inner| inner.default.is_none())?;
                    Some((u64::try_from(name.len()).unwrap_or(0) + 4).saturating_add(inner.smallest))
                });
                fields.fold(2, u64::saturating_add)
            }
            _ => 2,
        }
    }
}

impl Pattern {
    pub(crate) fn new(source: &str) -> Self {
        Self { source: source.into(), regex: OnceLock::new() }
    }

    /// Whether the pattern occurs in a text; `None` when it is no regular expression.
    pub(crate) fn matches(&self, text: &str) -> Option<bool> {
        self.regex().map(|regex| regex.is_match(text))
    }

    /// The compiled pattern; `None` when it is no regular expression.
    pub(crate) fn regex(&self) -> Option<&Regex> {
        self.regex.get_or_init(|| compile(&self.source).ok()).as_ref()
    }
}

/// Compiles a pattern; both its parse and what it becomes are bounded, and matching takes linear time.
pub(crate) fn compile(pattern: &str) -> Result<Regex, regex::Error> {
    regex::RegexBuilder::new(pattern).size_limit(1 << 20).nest_limit(100).build()
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for Pattern {}

impl Hash for Pattern {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.source.hash(state);
    }
}
