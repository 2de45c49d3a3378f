//! Where our server differs from the reference on purpose, one by one, each with its reason.

use std::cell::Cell;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::compare::fits;

/// The list.
#[derive(Debug, Clone, Default)]
pub struct Deviations(Vec<Entry>);

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    script: String,
    step: String,
    path: String,
    reason: String,
    #[serde(skip)]
    used: Cell<bool>,
}

impl Deviations {
    /// Reads the list.
    ///
    /// # Errors
    /// When it cannot be read, or an entry has no reason.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{}", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let entries: Vec<Entry> = serde_saphyr::from_str(text)?;
        for entry in &entries {
            ensure!(!entry.reason.trim().is_empty(), "a deviation of {} has no reason", entry.script);
        }
        Ok(Self(entries))
    }

    /// Whether a difference is a known one. Every entry that says so counts as used.
    pub fn explains(&self, script: &str, step: &str, path: &str) -> bool {
        let mut explained = false;
        for entry in &self.0 {
            if fits(&entry.script, script) && fits(&entry.step, step) && fits(&entry.path, path) {
                entry.used.set(true);
                explained = true;
            }
        }
        explained
    }

    /// The entries, among those whose script is wanted, that explained nothing.
    pub fn unused(&self, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let unused = self.0.iter().filter(|entry| !entry.used.get() && wanted(&entry.script));
        unused.map(|entry| format!("{} / {} / {}", entry.script, entry.step, entry.path)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "[{script: crud, step: '**', path: /body/message, reason: shorter text}]";

    #[test]
    fn an_entry_that_explains_nothing_is_told() {
        let list = Deviations::parse(LIST).unwrap();
        assert_eq!(list.unused(|_| true).len(), 1);
        assert!(list.explains("crud", "a bad name / twice", "/body/message"));
        assert!(!list.explains("crud", "a bad name", "/body/reason"));
        assert_eq!(list.unused(|_| true), Vec::<String>::new());
    }

    #[test]
    fn a_deviation_needs_a_reason() {
        assert!(Deviations::parse("[{script: a, step: b, path: c, reason: ''}]").is_err());
    }

    #[test]
    fn the_list_can_be_read() {
        Deviations::read(&crate::differential::folder().join("deviations.yaml")).unwrap();
    }
}
