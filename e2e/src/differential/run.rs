//! Runs a script on one server.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::script::{Script, Step, Stop};
use crate::http::{Connection, Server};

/// How long one answer, or the frames that a step waits for, may take.
const PATIENCE: Duration = Duration::from_secs(60);
const FRAMES: Duration = Duration::from_secs(60);
/// How often a request with `until` is repeated, and the pause between.
const TRIES: usize = 2400;
const PAUSE: Duration = Duration::from_millis(50);
/// The headers that are part of the API.
const HEADERS: [&str; 4] = ["allow", "content-type", "retry-after", "warning"];

/// One server, and what its answers gave so far.
pub struct Runner {
    server: Server,
    connection: Option<Connection>,
    variables: BTreeMap<String, String>,
    watches: BTreeMap<String, Watch>,
}

/// An open watch.
struct Watch {
    body: Incoming,
    buffer: Vec<u8>,
    // The stream ends with its connection.
    _connection: Connection,
}

impl Runner {
    /// A runner that asked nothing yet.
    #[must_use]
    pub fn new(server: Server) -> Self {
        Self { server, connection: None, variables: BTreeMap::new(), watches: BTreeMap::new() }
    }

    /// Runs all steps in a fresh namespace and returns one value per step.
    ///
    /// # Errors
    /// When the server does not answer at all, or never as a step waits for.
    pub async fn run(mut self, script: &Script) -> Result<Vec<Value>> {
        self.variables.clone_from(&script.variables);
        let namespace = format!("diff-{}", script.name);
        self.variables.insert("ns".to_owned(), namespace.clone());
        let create = Step {
            request: Some("POST /api/v1/namespaces".to_owned()),
            body: Some(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})),
            ..Step::default()
        };
        let created = self.ask(&create).await?;
        if created["status"] != 201 {
            bail!("the namespace is not created: {created}");
        }
        let mut answers = Vec::new();
        for step in &script.steps {
            answers.push(self.step(step).await.with_context(|| format!("step {:?}", step.name))?);
        }
        Ok(answers)
    }

    async fn step(&mut self, step: &Step) -> Result<Value> {
        if let Some(name) = &step.read {
            return self.read(name, step.stop.as_ref().context("a read without a stop")?).await;
        }
        let answer = awaited(step, async || self.ask(step).await).await?;
        for (name, pointer) in &step.capture {
            if let Some(value) = answer["body"].pointer(pointer) {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                self.variables.insert(name.clone(), text);
            }
        }
        Ok(answer)
    }

    async fn ask(&mut self, step: &Step) -> Result<Value> {
        let request = self.fill(step.request.as_deref().context("a step without a request")?);
        let (method, path) = request.split_once(' ').context("a request is a method and a path")?;
        let method: Method = method.parse()?;
        let path = self.with_query(path, &step.query);
        let body = match (&step.body, &step.text) {
            (Some(body), _) => Some(self.fill_value(body).to_string()),
            (None, Some(text)) => Some(self.fill(text)),
            (None, None) => None,
        };
        let mut headers: Vec<(&str, String)> = Vec::new();
        if body.is_some() && !step.media().is_empty() {
            headers.push(("content-type", step.media().to_owned()));
        }
        headers.extend(step.user.iter().map(|user| ("impersonate-user", self.fill(user))));
        headers.extend(step.groups.iter().map(|group| ("impersonate-group", self.fill(group))));
        headers.extend(step.headers.iter().map(|(name, value)| (name.as_str(), self.fill(value))));
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let body = Bytes::from(body.unwrap_or_default());
        let mut connection = match self.connection.take() {
            Some(connection) if step.watch.is_none() => connection,
            kept => {
                self.connection = kept;
                self.server.connect().await?
            }
        };
        let answer = timeout(PATIENCE, connection.send(method, &path, &headers, body)).await??;
        let (head, body) = answer.into_parts();
        let mut shown = json!({ "status": head.status.as_u16(), "headers": interesting(&head.headers) });
        if let Some(name) = step.watch.as_ref().filter(|_| head.status.is_success()) {
            let watch = Watch { body, buffer: Vec::new(), _connection: connection };
            self.watches.insert(name.clone(), watch);
            return Ok(shown);
        }
        let bytes = timeout(PATIENCE, body.collect()).await?.context("the answer broke off")?.to_bytes();
        shown["body"] = decode(&head.headers, &bytes);
        self.connection = Some(connection);
        Ok(shown)
    }

    async fn read(&mut self, name: &str, stop: &Stop) -> Result<Value> {
        let stop = match stop {
            Stop::Name(name) => Stop::Name(self.fill(name)),
            other => other.clone(),
        };
        let Some(watch) = self.watches.get_mut(name) else {
            // It was refused when it was opened, which that step shows.
            return Ok(json!({ "frames": [], "end": "never opened" }));
        };
        let mut frames: Vec<Value> = Vec::new();
        let end = loop {
            if reached(&stop, &frames) {
                break "as wanted";
            }
            match timeout(FRAMES, watch.next()).await {
                Err(_) => bail!("neither {stop:?} nor an end came after {}", Value::from(frames)),
                Ok(None) => break "by the server",
                Ok(Some(frame)) => frames.push(frame),
            }
        };
        Ok(json!({ "frames": frames, "end": end }))
    }

    fn with_query(&self, path: &str, query: &BTreeMap<String, String>) -> String {
        let mut path = path.to_owned();
        for (name, value) in query {
            path.push(if path.contains('?') { '&' } else { '?' });
            let value = self.fill(value);
            path.push_str(&format!("{name}={}", utf8_percent_encode(&value, NON_ALPHANUMERIC)));
        }
        path
    }

    fn fill_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.fill(text)),
            Value::Array(items) => items.iter().map(|item| self.fill_value(item)).collect(),
            Value::Object(map) => {
                Value::Object(map.iter().map(|(key, value)| (self.fill(key), self.fill_value(value))).collect())
            }
            other => other.clone(),
        }
    }

    /// Replaces `${name}`; a variable that no answer gave becomes a text that says so.
    fn fill(&self, text: &str) -> String {
        let mut result = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let Some((name, after)) = after.split_once('}') else { break };
            result.push_str(before);
            match (self.variables.get(name), name.strip_prefix("repeat:").and_then(|rest| rest.rsplit_once(':'))) {
                (Some(value), _) => result.push_str(value),
                (None, Some((text, times))) => result.push_str(&text.repeat(times.parse().unwrap_or(0))),
                (None, None) => result.push_str(&format!("unknown-{name}")),
            }
            rest = after;
        }
        result.push_str(rest);
        result
    }
}

/// Asks until the answer is what the step waits for. One that never comes is an error: two servers that both never give it
/// would look equal.
async fn awaited(step: &Step, mut ask: impl AsyncFnMut() -> Result<Value>) -> Result<Value> {
    let mut answer = ask().await?;
    let mut tries = 1;
    while !step.is_awaited(&answer) {
        ensure!(tries < TRIES, "{:?} never holds: {answer}", step.until);
        tokio::time::sleep(PAUSE).await;
        answer = ask().await?;
        tries += 1;
    }
    Ok(answer)
}

impl Watch {
    /// The next frame, or none when the stream ended.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(json_or_text(&line));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.buffer.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new())),
                Some(Err(_)) | None if self.buffer.is_empty() => return None,
                Some(Err(_)) | None => return Some(json_or_text(&std::mem::take(&mut self.buffer))),
            }
        }
    }
}

fn reached(stop: &Stop, frames: &[Value]) -> bool {
    match stop {
        Stop::Frames(count) => frames.len() >= *count,
        Stop::Name(name) => frames.last().is_some_and(|frame| frame["object"]["metadata"]["name"] == **name),
        Stop::Bookmark => frames.last().is_some_and(|frame| frame["type"] == "BOOKMARK"),
        Stop::End => false,
    }
}

fn interesting(headers: &HeaderMap) -> Value {
    let mut shown = Map::new();
    for name in HEADERS {
        let values: Vec<Value> =
            headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into()).collect();
        if !values.is_empty() {
            shown.insert(name.to_owned(), Value::Array(values));
        }
    }
    Value::Object(shown)
}

fn decode(headers: &HeaderMap, body: &[u8]) -> Value {
    let media = headers.get("content-type").map(|value| String::from_utf8_lossy(value.as_bytes()));
    if media.is_some_and(|media| media.starts_with("application/yaml"))
        && let Ok(value) = serde_saphyr::from_slice(body)
    {
        return value;
    }
    json_or_text(body)
}

fn json_or_text(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|_| String::from_utf8_lossy(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until_ready() -> Step {
        Step { until: [("/body/ready".to_owned(), json!(true))].into(), ..Step::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn what_never_comes_is_an_error_that_tells_the_last_answer() {
        let mut asked = 0;
        let ask = async || {
            asked += 1;
            Ok(json!({ "body": { "ready": false, "asked": asked } }))
        };
        let error = awaited(&until_ready(), ask).await.unwrap_err().to_string();
        assert_eq!(asked, TRIES);
        assert!(error.contains("/body/ready") && error.contains(&format!("\"asked\":{TRIES}")), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_ends_with_the_first_answer_that_it_waits_for() {
        let mut asked = 0;
        let ask = async || {
            asked += 1;
            Ok(json!({ "body": { "ready": asked > 2, "asked": asked } }))
        };
        let answer = awaited(&until_ready(), ask).await.unwrap();
        assert_eq!(answer["body"]["asked"], 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_that_waits_for_nothing_asks_once() {
        let mut asked = 0;
        let ask = async || {
            asked += 1;
            Ok(json!({ "body": asked }))
        };
        assert_eq!(awaited(&Step::default(), ask).await.unwrap()["body"], 1);
    }
}
