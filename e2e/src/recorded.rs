//! What a real kube-apiserver answered, kept in files that tests without one read; asked for again here.
//!
//! A file has one case per line: what is asked, and what was answered. A case whose answer is another today is stale, which is
//! an error; with `ORLOP_RECORD=1` its line is written anew instead.

mod schemas;
mod tables;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::Method;
use serde_json::Value;

use crate::http::Connection;
use crate::root;

pub use schemas::schemas;
pub use tables::tables;

/// Whether stale lines are written anew.
const RECORD: &str = "ORLOP_RECORD";

/// A file of recorded answers.
struct Recording {
    /// From the root.
    path: String,
    lines: Vec<String>,
    stale: Vec<String>,
}

impl Recording {
    fn read(path: &str) -> Result<Self> {
        let text = std::fs::read_to_string(root().join(path)).with_context(|| format!("read {path}"))?;
        Ok(Self { path: path.to_owned(), lines: text.lines().map(str::to_owned).collect(), stale: Vec::new() })
    }

    /// The lines that are JSON of their own once they are put between these, with their numbers.
    fn entries(&self, is_entry: impl Fn(&str) -> bool, around: [&str; 2]) -> Result<Vec<(usize, Value)>> {
        let entries = self.lines.iter().enumerate().filter(|(_, line)| is_entry(line));
        entries
            .map(|(number, line)| {
                let text = format!("{}{}{}", around[0], line.trim_end_matches(','), around[1]);
                let entry = serde_json::from_str(&text).with_context(|| format!("{}:{}", self.path, number + 1))?;
                Ok((number, entry))
            })
            .collect()
    }

    /// The cases.
    fn cases(&self) -> Result<Vec<(usize, Value)>> {
        self.entries(|line| line.starts_with("{\""), ["", ""])
    }

    /// Another text for a line than it has, and why.
    fn replace(&mut self, number: usize, text: &str, why: &str) {
        let comma = if self.lines[number].ends_with(',') { "," } else { "" };
        self.lines[number] = format!("{text}{comma}");
        self.stale.push(format!("{}:{}: {why}", self.path, number + 1));
    }

    /// Writes what is stale, if that is wanted; gives what is left to tell.
    fn finish(self) -> Result<Vec<String>> {
        if self.stale.is_empty() || std::env::var_os(RECORD).is_none() {
            return Ok(self.stale);
        }
        let text = self.lines.join("\n") + "\n";
        std::fs::write(root().join(&self.path), text).with_context(|| format!("write {}", self.path))?;
        Ok(Vec::new())
    }
}

/// Fails if anything is stale.
fn judge(stale: &[String]) -> Result<()> {
    let how = format!("{RECORD}=1 .ci/suites peers_recorded --include-ignored records them");
    ensure!(stale.is_empty(), "these answers are others today; {how}\n{}", stale.join("\n"));
    Ok(())
}

/// Sends a request; gives the status, the warnings and the body.
async fn ask(
    connection: &mut Connection,
    request: (Method, &str),
    headers: &[(&str, &str)],
    body: &Value,
) -> Result<Answer> {
    let bytes = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    let mut headers = headers.to_vec();
    if !body.is_null() && !headers.iter().any(|(name, _)| *name == "content-type") {
        headers.push(("content-type", "application/json"));
    }
    let (method, path) = request;
    let answer = connection.ask(method, path, &headers, bytes).await?;
    let warnings = answer.headers().get_all("warning").iter();
    let warnings = warnings.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect();
    let body = serde_json::from_slice(answer.body()).with_context(|| format!("the answer to {path}"))?;
    Ok(Answer { status: answer.status().as_u16(), warnings, body })
}

struct Answer {
    status: u16,
    warnings: Vec<String>,
    body: Value,
}

impl Answer {
    /// The body of a success.
    fn good(self) -> Result<Value> {
        ensure!((200..300).contains(&self.status), "{}: {}", self.status, self.body);
        Ok(self.body)
    }
}

/// JSON with a space after commas and colons, as the files have it.
fn spaced(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(spaced).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let entries = map.iter().map(|(key, value)| format!("{}: {}", Value::from(key.as_str()), spaced(value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn recording(text: &str) -> Recording {
        Recording { path: "a.json".into(), lines: text.lines().map(str::to_owned).collect(), stale: Vec::new() }
    }

    #[test]
    fn a_stale_line_is_told_by_its_number_and_the_others_stay() {
        let mut kept = recording("[\n{\"a\": 1},\n{\"a\": 2}\n]");
        let cases = kept.cases().unwrap();
        assert_eq!(cases, [(1, json!({"a": 1})), (2, json!({"a": 2}))]);
        kept.replace(1, &spaced(&json!({"a": [3, {"b": "c"}]})), "it is 3");
        assert_eq!(kept.lines, ["[", "{\"a\": [3, {\"b\": \"c\"}]},", "{\"a\": 2}", "]"]);
        assert_eq!(kept.stale, ["a.json:2: it is 3"]);
        let said = judge(&kept.finish().unwrap()).unwrap_err().to_string();
        assert!(said.contains("a.json:2: it is 3") && said.contains("ORLOP_RECORD=1"), "{said}");
        judge(&recording("[]").finish().unwrap()).unwrap();
    }
}
