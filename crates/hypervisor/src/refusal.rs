//! Refusals: what is not supported, with the path of the field that asked for it.

use std::fmt;

use api::vmi::VirtualMachineInstance;
use virt_rules::support;

/// The longest text of a user that reaches QEMU: names, serials and the like are far shorter, kernel arguments fit.
const MOST_TEXT: usize = 2048;

/// A field that cannot be honoured.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Refusal {
    /// Where, as in `spec.domain.devices.gpus[0]`.
    pub path: String,
    /// Why, and what to do instead.
    pub problem: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.problem)
    }
}

impl From<support::Refusal> for Refusal {
    fn from(refusal: support::Refusal) -> Self {
        Self { path: refusal.path().to_owned(), problem: refusal.problem() }
    }
}

/// Whether a text may reach QEMU: control characters end lines and strings somewhere further down.
pub(crate) fn is_text(value: &str) -> bool {
    value.len() <= MOST_TEXT && !value.chars().any(char::is_control)
}

/// All that was refused so far: a user is told everything at once, and of each field once.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Vec<Refusal>);

impl Refusals {
    /// Begins with what the table of supported fields refuses. Whoever builds on it meets only what the table lets through.
    pub(crate) fn of(vmi: &VirtualMachineInstance) -> Self {
        Self(support::unsupported(vmi).into_iter().map(Refusal::from).collect())
    }

    pub(crate) fn refuse(&mut self, path: impl Into<String>, problem: impl Into<String>) {
        let (path, problem) = (path.into(), problem.into());
        if self.0.iter().all(|told| told.path != path) {
            self.0.push(Refusal { path, problem });
        }
    }

    /// A value that has no meaning here. The table has refused it already, or there is a hole in the table.
    pub(crate) fn meaningless(&mut self, path: impl Into<String>, value: &str) {
        self.refuse(path, format!("{value:?} is not supported"));
    }

    /// A text of the user that may reach QEMU: refused if it is overlong or has control characters, which end lines and strings
    /// somewhere further down.
    pub(crate) fn text(&mut self, path: &str, value: &str) -> Option<String> {
        if value.chars().any(char::is_control) {
            self.refuse(path, "must not contain control characters");
            return None;
        }
        if value.len() > MOST_TEXT {
            self.refuse(path, format!("has {} bytes; the limit is {MOST_TEXT}", value.len()));
            return None;
        }
        Some(value.to_owned())
    }

    /// A path as text; QEMU reads file names as text.
    pub(crate) fn path(&mut self, field: &str, path: &std::path::Path) -> Option<String> {
        match path.to_str() {
            Some(text) => self.text(field, text),
            None => {
                self.refuse(field, format!("the path {} is not valid UTF-8", path.display()));
                None
            }
        }
    }

    /// `Ok` if nothing was refused.
    pub(crate) fn or<T>(self, value: Option<T>) -> Result<T, Vec<Refusal>> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(self.0),
        }
    }
}
