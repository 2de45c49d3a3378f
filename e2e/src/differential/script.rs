//! A list of steps, as the YAML files have it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::compare::{fits, sort_arrays, without};
use super::deviations::VERDICT;

/// Steps on one subject, in a namespace of their own.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The file's name without its ending.
    #[serde(skip)]
    pub name: String,
    /// What is compared, in one sentence.
    pub subject: String,
    /// Variables that are known from the start. `ns`, a fresh namespace, always is.
    #[serde(default)]
    pub variables: BTreeMap<String, String>,
    /// What is done, in this order.
    pub steps: Vec<Step>,
}

/// One request, or one look at a watch. Every string may name variables: `${rv}`; `${repeat:x:100}` is a long text.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Step {
    /// What it shows; unique in its script.
    pub name: String,
    /// A method and a path: `GET /api/v1/namespaces/${ns}/pods`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// Query parameters, not encoded.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub query: BTreeMap<String, String>,
    /// Headers beside those that every request has.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Who asks, where it is not the administrator: the administrator, in the name of this user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The groups of that user.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// The body's media type, JSON when not given. `merge`, `json` and `strategic` are the patches.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub media: Option<String>,
    /// The body, sent as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
    /// The body as it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Variables to take from the answer's body, by JSON pointers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub capture: BTreeMap<String, String>,
    /// The request is repeated until the answer has these values at these JSON pointers; `null` is no value at all. If it
    /// never has, the script is wrong or the server is.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub until: BTreeMap<String, Value>,
    /// The status that the reference gives, where a script would be worth nothing with another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expect: Option<u16>,
    /// The answer is a watch, kept under this name for later steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch: Option<String>,
    /// The watch whose frames are read in this step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<String>,
    /// Where reading stops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
    /// Parts of the answer that are not compared, by patterns over paths.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<String>,
    /// Arrays are compared as sets.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unordered: bool,
    /// Only what the answer comes to is compared: its status, and the reason of a refusal.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub status_only: bool,
}

/// Where the reading of a watch stops.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stop {
    /// After so many frames.
    Frames(usize),
    /// After the frame whose object has this name.
    Name(String),
    /// After a bookmark.
    Bookmark,
    /// When the server ends the stream.
    End,
}

impl Script {
    /// The scripts of a directory, in the order of their names.
    ///
    /// # Errors
    /// When one cannot be read, or has two steps of one name.
    pub fn all(folder: &Path) -> Result<Vec<Self>> {
        let mut scripts = Vec::new();
        for entry in std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
            let path = entry?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if name != "deviations" {
                let text = std::fs::read_to_string(&path)?;
                scripts.push(Self::parse(&name, &text).with_context(|| format!("{}", path.display()))?);
            }
        }
        scripts.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(scripts)
    }

    /// Reads one script.
    ///
    /// # Errors
    /// When it is no script.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let mut script: Self =
            serde_saphyr::from_str_with_options(text, serde_saphyr::options! { strict_booleans: true })?;
        name.clone_into(&mut script.name);
        let mut names = std::collections::BTreeSet::new();
        for step in &script.steps {
            ensure!(names.insert(&step.name), "two steps are named {:?}", step.name);
            ensure!(step.request.is_some() != step.read.is_some(), "{:?} is neither request nor read", step.name);
            let exempt = VERDICT.iter().find(|path| step.ignore.iter().any(|pattern| fits(pattern, path)));
            ensure!(exempt.is_none(), "{:?} does not compare what the answer comes to: {exempt:?}", step.name);
        }
        Ok(script)
    }
}

impl Step {
    /// What of an answer is compared.
    #[must_use]
    pub fn view(&self, answer: &Value) -> Value {
        if self.status_only {
            let is_refusal = answer["body"]["kind"] == "Status";
            let reason = if is_refusal { answer["body"]["reason"].clone() } else { Value::Null };
            return json!({ "status": answer["status"], "body": { "reason": reason } });
        }
        let mut view = without(answer, &self.ignore);
        if self.unordered {
            sort_arrays(&mut view);
        }
        view
    }

    /// Whether an answer has what the step waits for.
    #[must_use]
    pub fn is_awaited(&self, answer: &Value) -> bool {
        self.until.iter().all(|(pointer, wanted)| answer.pointer(pointer).unwrap_or(&Value::Null) == wanted)
    }

    /// The body's media type.
    #[must_use]
    pub fn media(&self) -> &str {
        match self.media.as_deref() {
            None => "application/json",
            Some("merge") => "application/merge-patch+json",
            Some("json") => "application/json-patch+json",
            Some("strategic") => "application/strategic-merge-patch+json",
            Some(other) => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_can_be_read() {
        let scripts = Script::all(&crate::differential::directory()).unwrap();
        assert!(!scripts.is_empty());
    }

    #[test]
    fn step_names_are_unique() {
        let twice = "subject: x\nsteps: [{name: a, request: GET /}, {name: a, request: GET /}]";
        assert!(Script::parse("x", twice).is_err());
    }

    #[test]
    fn no_step_leaves_out_what_an_answer_comes_to() {
        for pattern in ["/**", "/status", "/body", "/body/*", "**/reason"] {
            let script = format!("subject: x\nsteps: [{{name: a, request: GET /, ignore: ['{pattern}']}}]");
            assert!(Script::parse("x", &script).is_err(), "{pattern}");
        }
        let step = Step { status_only: true, ..Step::default() };
        let refusal =
            |reason: &str| json!({"status": 403, "body": {"kind": "Status", "reason": reason, "message": reason}});
        assert_ne!(step.view(&refusal("Forbidden")), step.view(&refusal("Invalid")));
    }

    #[test]
    fn what_is_awaited_may_be_that_nothing_is_there() {
        let until = [("/body/a".to_owned(), json!(null)), ("/status".to_owned(), json!(200))];
        let step = Step { until: until.into(), ..Step::default() };
        assert!(step.is_awaited(&json!({"status": 200, "body": {}})));
        assert!(!step.is_awaited(&json!({"status": 200, "body": {"a": false}})));
        assert!(!step.is_awaited(&json!({"body": {}})));
    }
}
