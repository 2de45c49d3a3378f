//! A CEL rule of a node.

use std::hash::{Hash, Hasher};
use std::sync::OnceLock;

use serde_json::Value;

use crate::cel::{Fault, Program};
use crate::error::Reason;

/// One entry of `x-kubernetes-validations`; its expressions are compiled when they are first used.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) source: Box<str>,
    pub(crate) message: Option<Box<str>>,
    pub(crate) message_source: Option<Box<str>>,
    pub(crate) reason: Reason,
    pub(crate) field_path: Option<Box<str>>,
    pub(crate) optional_old: bool,
    program: OnceLock<Result<Program, Fault>>,
    message_program: OnceLock<Result<Program, Fault>>,
}

impl Rule {
    pub(crate) fn parse(value: &Value) -> Option<Self> {
        let text = |key: &str| value.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(Into::into);
        Some(Self {
            source: text("rule")?,
            message: text("message"),
            message_source: text("messageExpression"),
            reason: match value.get("reason").and_then(Value::as_str) {
                Some("FieldValueForbidden") => Reason::Forbidden,
                Some("FieldValueRequired") => Reason::Required,
                Some("FieldValueDuplicate") => Reason::Duplicate,
                _ => Reason::Invalid,
            },
            field_path: text("fieldPath"),
            optional_old: value.get("optionalOldSelf") == Some(&Value::Bool(true)),
            program: OnceLock::new(),
            message_program: OnceLock::new(),
        })
    }

    pub(crate) fn program(&self) -> &Result<Program, Fault> {
        self.program.get_or_init(|| Program::parse(&self.source))
    }

    pub(crate) fn message_program(&self) -> Option<&Result<Program, Fault>> {
        let source = self.message_source.as_ref()?;
        Some(self.message_program.get_or_init(|| Program::parse(source)))
    }

    /// What stands for the rule in messages: its message, or its text.
    pub(crate) fn shown(&self) -> &str {
        self.message.as_deref().unwrap_or(&self.source).trim()
    }

    fn content(&self) -> impl Hash + PartialEq + '_ {
        let Self { source, message, message_source, reason, field_path, optional_old, .. } = self;
        (source, message, message_source, reason.as_str(), field_path, optional_old)
    }
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.content() == other.content()
    }
}

impl Eq for Rule {}

impl Hash for Rule {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.content().hash(state);
    }
}
