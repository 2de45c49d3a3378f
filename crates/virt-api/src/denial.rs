//! Refusals: all problems of an object, each by its field.

use std::collections::BTreeSet;
use std::fmt;

/// Why a write is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Denial {
    /// The HTTP status: 422 for an object that is wrong, 403 for one that may not be written now, 429 where the client should
    /// ask again.
    pub code: u16,
    /// All of it in one text.
    pub message: String,
    /// One by one.
    pub causes: Vec<Cause>,
    /// The kind of the object, where it is wrong.
    pub kind: String,
    pub name: String,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The field, as in `spec.domain.devices.disks[0].name`.
    pub field: String,
    /// What is wrong with it, and what to do.
    pub message: String,
    /// The kind of problem.
    pub reason: Reason,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// Kinds of problems, as clients of Kubernetes know them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is missing.
    Required,
    /// It is there twice.
    Duplicate,
    /// It refers to something that does not exist.
    NotFound,
    /// It is not done here.
    NotSupported,
    /// It is wrong in another way.
    Invalid,
}

impl Reason {
    /// The word in a `Status`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotFound => "FieldValueNotFound",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Invalid => "FieldValueInvalid",
        }
    }
}

impl Denial {
    /// Refuses a write that is not possible now, whatever the object says.
    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self { code: 403, message: message.into(), causes: Vec::new(), kind: String::new(), name: String::new() }
    }

    /// Refuses an eviction, such that whoever drains a node asks again.
    pub(crate) fn again(message: impl Into<String>) -> Self {
        Self { code: 429, ..Self::forbidden(message) }
    }

    /// The answer to an eviction whose mark could not be written; the client's next attempt may do better.
    #[must_use]
    pub fn unmarked(error: impl fmt::Display) -> Self {
        Self::again(format!("kubevirt failed marking the vmi for eviction: {error}"))
    }

    /// Refuses an object for its fields.
    fn invalid(kind: &str, name: &str, causes: Vec<Cause>) -> Self {
        let texts: Vec<String> = causes.iter().map(ToString::to_string).collect();
        let all = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let message = format!("{kind} {name:?} is invalid: {all}");
        let bare = kind.split_once('.').map_or(kind, |(bare, _group)| bare);
        Self { code: 422, message, causes, kind: bare.to_owned(), name: name.to_owned() }
    }
}

/// Problems as they are found.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<Cause>);

impl Problems {
    pub(crate) fn add(&mut self, reason: Reason, field: impl Into<String>, message: impl Into<String>) {
        self.0.push(Cause { field: field.into(), message: message.into(), reason });
    }

    pub(crate) fn invalid(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.add(Reason::Invalid, field, message);
    }

    pub(crate) fn required(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.add(Reason::Required, field, message);
    }

    pub(crate) fn duplicate(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.add(Reason::Duplicate, field, message);
    }

    pub(crate) fn not_found(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.add(Reason::NotFound, field, message);
    }

    pub(crate) fn unsupported(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.add(Reason::NotSupported, field, message);
    }

    /// Takes over what was found in a part, whose paths begin elsewhere.
    pub(crate) fn append(&mut self, prefix: &str, part: Self) {
        self.0.extend(part.0.into_iter().map(|cause| Cause { field: format!("{prefix}{}", cause.field), ..cause }));
    }

    /// Takes over what was found of fields that have no problem yet.
    pub(crate) fn append_untold(&mut self, others: Self) {
        let told: BTreeSet<String> = self.0.iter().map(|cause| cause.field.clone()).collect();
        self.0.extend(others.0.into_iter().filter(|cause| !told.contains(&cause.field)));
    }

    /// Takes over a text of another crate that begins with its field.
    pub(crate) fn told(&mut self, reason: Reason, field: impl Into<String>, text: &str) {
        let field = field.into();
        let message = text.strip_prefix(&format!("{field}: ")).unwrap_or(text).to_owned();
        self.add(reason, field, message);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Nothing found, or the refusal of the object.
    pub(crate) fn into_result(self, kind: &str, name: &str) -> Result<(), Denial> {
        if self.0.is_empty() { Ok(()) } else { Err(Denial::invalid(kind, name, self.0)) }
    }
}
