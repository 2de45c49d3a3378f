//! The command line under construction, and what was refused on the way.

use std::ffi::OsString;
use std::path::Path;

use serde_json::Value;

use super::CommandLine;
use crate::Refusal;
use crate::keyval::Keyval;

/// The longest text of a user that reaches QEMU: names, serials and the like are far shorter, kernel arguments fit.
const MOST_TEXT: usize = 2048;

#[derive(Default)]
pub(super) struct Line {
    arguments: Vec<OsString>,
    environment: Vec<(String, String)>,
    refusals: Vec<Refusal>,
}

impl Line {
    pub(super) fn flag(&mut self, name: &str) {
        self.arguments.push(name.into());
    }

    /// An option whose value is fixed or has no syntax of its own.
    pub(super) fn option(&mut self, name: &str, value: impl Into<OsString>) {
        self.arguments.push(name.into());
        self.arguments.push(value.into());
    }

    pub(super) fn keyval(&mut self, name: &str, value: Keyval) {
        self.option(name, value.into_string());
    }

    /// `-device`, `-blockdev` and `-object` take JSON, in which nothing needs escaping by hand.
    pub(super) fn json(&mut self, name: &str, value: &Value) {
        self.option(name, value.to_string());
    }

    pub(super) fn variable(&mut self, name: &str, value: String) {
        self.environment.push((name.to_owned(), value));
    }

    pub(super) fn refuse(&mut self, path: impl Into<String>, problem: impl Into<String>) {
        self.refusals.push(Refusal { path: path.into(), problem: problem.into() });
    }

    /// Refuses a field that no builder acts on yet, if it was set.
    pub(super) fn unsupported(&mut self, path: &str, set: bool) {
        if set {
            self.refuse(path, "is not supported yet; remove it");
        }
    }

    /// A text of the user that may go into an option: refused if it is overlong or has control characters, which end
    /// lines and strings somewhere further down.
    pub(super) fn text<'a>(&mut self, path: &str, value: &'a str) -> Option<&'a str> {
        if value.chars().any(char::is_control) {
            self.refuse(path, "has control characters");
            return None;
        }
        if value.len() > MOST_TEXT {
            self.refuse(path, format!("has {} bytes, the most is {MOST_TEXT}", value.len()));
            return None;
        }
        Some(value)
    }

    /// A path as text; QEMU reads file names as text.
    pub(super) fn path<'a>(&mut self, field: &str, path: &'a Path) -> Option<&'a str> {
        match path.to_str() {
            Some(text) => self.text(field, text),
            None => {
                self.refuse(field, format!("the path {} is not UTF-8", path.display()));
                None
            }
        }
    }

    pub(super) fn finish(self) -> Result<CommandLine, Vec<Refusal>> {
        let Self { arguments, environment, refusals } = self;
        if refusals.is_empty() { Ok(CommandLine { arguments, environment }) } else { Err(refusals) }
    }
}
