//! Where our server differs from the reference on purpose, one by one, each with its reason.
//!
//! An entry exempts no more than it names. What an answer comes to (its status, its reason) is exempt only by an entry that
//! says what both servers answer. A text is exempt only in steps that are named, or where the entry says what it contains.

use std::cell::Cell;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::compare::{Difference, fits};

/// What an answer comes to: no pattern exempts it.
pub(super) const VERDICT: [&str; 7] = ["", "/status", "/end", "/body", "/body/kind", "/body/code", "/body/reason"];

/// The list.
#[derive(Debug, Clone, Default)]
pub struct Deviations(Vec<Entry>);

/// As the file has it: several steps may share a reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    script: String,
    step: Names,
    path: Names,
    /// What our server has there, as a pattern over the text or the JSON of the value; `absent` where it has none.
    ours: Option<Value>,
    /// What the reference has there.
    theirs: Option<Value>,
    reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Names {
    One(String),
    Several(Vec<String>),
}

impl Names {
    fn list(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        }
    }
}

#[derive(Debug, Clone)]
struct Entry {
    script: String,
    step: String,
    path: String,
    ours: Option<String>,
    theirs: Option<String>,
    used: Cell<bool>,
}

impl Deviations {
    /// Reads the list.
    ///
    /// # Errors
    /// When it cannot be read, or an entry has no reason or exempts more than it names.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{}", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let lines: Vec<Line> = serde_saphyr::from_str(text)?;
        let mut entries = Vec::new();
        for line in lines {
            let Line { script, step, path, ours, theirs, reason } = line;
            ensure!(!reason.trim().is_empty(), "a deviation of {script} has no reason");
            let (ours, theirs) = (ours.map(plain), theirs.map(plain));
            for step in step.list() {
                for path in path.list() {
                    let (script, step, path, used) = (script.clone(), step.clone(), path.clone(), Cell::new(false));
                    let entry = Entry { script, step, path, ours: ours.clone(), theirs: theirs.clone(), used };
                    entry.check().with_context(|| entry.shown())?;
                    entries.push(entry);
                }
            }
        }
        Ok(Self(entries))
    }

    /// Whether a difference is a known one. Every entry that says so counts as used.
    pub fn explains(&self, script: &str, step: &str, difference: &Difference) -> bool {
        let mut explained = false;
        for entry in &self.0 {
            if entry.explains(script, step, difference) {
                entry.used.set(true);
                explained = true;
            }
        }
        explained
    }

    /// The entries, among those whose script is wanted, that explained nothing.
    pub fn unused(&self, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let unused = self.0.iter().filter(|entry| !entry.used.get() && wanted(&entry.script));
        unused.map(Entry::shown).collect()
    }
}

impl Entry {
    /// Whether it exempts no more than it names.
    fn check(&self) -> Result<()> {
        let is_pair = self.ours.is_some() && self.theirs.is_some();
        if VERDICT.contains(&self.path.as_str()) {
            ensure!(is_pair, "what an answer comes to needs what both servers answer: ours and theirs");
        }
        if self.path.ends_with("message") {
            let is_named = !self.step.contains('*') || self.ours.is_some() || self.theirs.is_some();
            ensure!(
                is_named,
                "the texts of all these steps would be exempt: name the steps, or what the text contains"
            );
        }
        Ok(())
    }

    fn explains(&self, script: &str, step: &str, difference: &Difference) -> bool {
        let Difference { path, ours, theirs } = difference;
        let is_at = if VERDICT.contains(&path.as_str()) { self.path == *path } else { fits(&self.path, path) };
        let has = |wanted: Option<&String>, value: &str| wanted.is_none_or(|wanted| fits(wanted, &unquoted(value)));
        is_at
            && fits(&self.script, script)
            && fits(&self.step, step)
            && has(self.ours.as_ref(), ours)
            && has(self.theirs.as_ref(), theirs)
    }

    fn shown(&self) -> String {
        format!("{} / {} / {}", self.script, self.step, self.path)
    }
}

/// A value as patterns are written over it.
fn plain(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// The text of a string, or the JSON of anything else.
fn unquoted(shown: &str) -> String {
    match serde_json::from_str(shown) {
        Ok(Value::String(text)) => text,
        _ => shown.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::differential::compare::differences;

    const LIST: &str =
        "[{script: crud, step: [a bad name / twice, another], path: /body/message, reason: shorter text}]";

    fn explains(list: &str, ours: Value, theirs: Value) -> bool {
        let list = Deviations::parse(list).unwrap();
        let found = differences(ours, theirs);
        assert!(!found.is_empty());
        found.iter().all(|difference| list.explains("crud", "a bad name", difference))
    }

    #[test]
    fn an_entry_that_explains_nothing_is_told_step_by_step() {
        let list = Deviations::parse(LIST).unwrap();
        assert_eq!(list.unused(|_| true).len(), 2);
        let at = |path: &str| Difference { path: path.into(), ours: "1".into(), theirs: "2".into() };
        assert!(list.explains("crud", "a bad name / twice", &at("/body/message")));
        assert!(!list.explains("crud", "a bad name / twice", &at("/body/reason")));
        assert_eq!(list.unused(|_| true), ["crud / another / /body/message"]);
        assert_eq!(list.unused(|script| script != "crud"), Vec::<String>::new());
    }

    #[test]
    fn no_pattern_exempts_what_an_answer_comes_to() {
        let all = "[{script: '**', step: '**', path: '**', reason: everything}]";
        let answer = |status: u16, reason: &str| json!({"status": status, "body": {"reason": reason, "code": status}});
        assert!(!explains(all, answer(400, "BadRequest"), answer(500, "BadRequest")));
        assert!(!explains(all, answer(400, "BadRequest"), answer(400, "Invalid")));
        assert!(!explains(all, json!({"status": 200, "body": {"a": 1}}), json!({"status": 200, "body": "text"})));
        assert!(!explains(all, json!({"end": "as wanted"}), json!({"end": "by the server"})));
        assert!(explains(all, json!({"body": {"details": 1}}), json!({"body": {"details": 2}})));
    }

    #[test]
    fn a_status_is_exempt_only_between_the_two_that_are_named() {
        let list =
            "[{script: crud, step: a bad name, path: [/status, /body/code], ours: 400, theirs: 500, reason: a mistake},
            {script: crud, step: a bad name, path: /body/reason, ours: BadRequest, theirs: absent, reason: a mistake}]";
        let ours = json!({"status": 400, "body": {"code": 400, "reason": "BadRequest"}});
        assert!(explains(list, ours.clone(), json!({"status": 500, "body": {"code": 500}})));
        assert!(!explains(list, ours.clone(), json!({"status": 503, "body": {"code": 503}})));
        assert!(!explains(list, ours, json!({"status": 400, "body": {"code": 400, "reason": "Invalid"}})));
        assert!(Deviations::parse("[{script: a, step: b, path: /status, theirs: 500, reason: c}]").is_err());
    }

    #[test]
    fn texts_are_exempt_by_step_or_by_what_they_contain() {
        assert!(Deviations::parse("[{script: a, step: '**', path: /body/message, reason: b}]").is_err());
        assert!(Deviations::parse("[{script: a, step: '*', path: '**/message', reason: b}]").is_err());
        let list = "[{script: '**', step: '**', path: /body/message, theirs: '**Key: /registry**', reason: keys}]";
        let message = |text: &str| json!({"body": {"message": text}});
        assert!(explains(list, message("conflict"), message("conflict, Key: /registry/pods/a/b, UID: 1")));
        assert!(!explains(list, message("conflict"), message("another conflict")));
    }

    #[test]
    fn a_deviation_needs_a_reason() {
        assert!(Deviations::parse("[{script: a, step: b, path: c, reason: ''}]").is_err());
    }

    #[test]
    fn the_lists_can_be_read() {
        for list in ["e2e/differential/deviations.yaml", "e2e/controllers/deviations.yaml"] {
            Deviations::read(&crate::root().join(list)).unwrap();
        }
    }
}
