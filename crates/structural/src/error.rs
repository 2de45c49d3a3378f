//! What is wrong with one field, worded as Kubernetes words it.

use std::fmt;

use serde_json::Value;

use crate::go;

/// Bytes of a value that an error repeats. Many errors may be about one value, or about one within another.
const LONGEST_SHOWN: usize = 16 << 10;

/// One problem with one field, as it goes into `Status.details.causes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The field's path, such as `spec.replicas`; empty for the object as a whole.
    pub field: String,
    /// The kind of problem.
    pub reason: Reason,
    /// The problem for a reader, such as `Required value`.
    pub message: String,
}

/// The kinds of problems that Kubernetes tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The value does not fit.
    Invalid,
    /// The value has the wrong type.
    TypeInvalid,
    /// A value is missing.
    Required,
    /// The value is none of those allowed.
    NotSupported,
    /// The field may not be set here.
    Forbidden,
    /// The value occurs twice where it may occur once.
    Duplicate,
    /// The string has too many characters.
    TooLong,
    /// The list or object has too many entries.
    TooMany,
    /// The value refers to something that is not there.
    NotFound,
    /// The server could not judge the value.
    Internal,
}

impl Reason {
    /// The reason's name in `Status.details.causes[].reason`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Required => "FieldValueRequired",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::Duplicate => "FieldValueDuplicate",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::NotFound => "FieldValueNotFound",
            Self::Internal => "InternalError",
        }
    }

    /// How a message of this kind begins.
    fn title(self) -> &'static str {
        match self {
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::Required => "Required value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::Duplicate => "Duplicate value",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::NotFound => "Not found",
            Self::Internal => "Internal error",
        }
    }

    /// Whether CEL rules are skipped once such an error was found: they could only fail confusingly.
    pub(crate) fn blocks_rules(self) -> bool {
        matches!(self, Self::NotSupported | Self::Required | Self::TooLong | Self::TooMany | Self::TypeInvalid)
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, reason: _, message } = self;
        if field.is_empty() { formatter.write_str(message) } else { write!(formatter, "{field}: {message}") }
    }
}

impl std::error::Error for FieldError {}

impl FieldError {
    pub(crate) fn invalid(field: impl Into<String>, value: &Value, detail: impl fmt::Display) -> Self {
        Self::with_value(field, Reason::Invalid, value, detail)
    }

    /// For values that the message leaves out.
    pub(crate) fn invalid_without_value(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self::plain(field, Reason::Invalid, detail)
    }

    pub(crate) fn required(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self::plain(field, Reason::Required, detail)
    }

    pub(crate) fn forbidden(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self::plain(field, Reason::Forbidden, detail)
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::with_value(field, Reason::Duplicate, value, "")
    }

    pub(crate) fn not_supported<'a>(
        field: impl Into<String>,
        value: &Value,
        supported: impl Iterator<Item = &'a Value>,
    ) -> Self {
        let supported: Vec<String> = supported
            .map(|value| match value {
                Value::String(text) => go::quote(text),
                // Kubernetes quotes the JSON of whatever is not a string.
                other => go::quote(&go::json(other)),
            })
            .collect();
        Self::with_value(field, Reason::NotSupported, value, format_args!("supported values: {}", supported.join(", ")))
    }

    pub(crate) fn with_value(
        field: impl Into<String>,
        reason: Reason,
        value: &Value,
        detail: impl fmt::Display,
    ) -> Self {
        let shown = format!("{}: {}", reason.title(), go::cut(&go::show(value), LONGEST_SHOWN));
        Self { field: field.into(), reason, message: join(shown, detail) }
    }

    /// For values that are shown in their own way.
    pub(crate) fn with_shown(field: impl Into<String>, reason: Reason, shown: &str, detail: impl fmt::Display) -> Self {
        Self { field: field.into(), reason, message: join(format!("{}: {shown}", reason.title()), detail) }
    }

    pub(crate) fn plain(field: impl Into<String>, reason: Reason, detail: impl fmt::Display) -> Self {
        Self { field: field.into(), reason, message: join(reason.title().to_owned(), detail) }
    }
}

fn join(mut head: String, detail: impl fmt::Display) -> String {
    let detail = detail.to_string();
    if !detail.is_empty() {
        head.push_str(": ");
        head.push_str(&detail);
    }
    head
}
