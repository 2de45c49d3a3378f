//! One line of the log. Whatever a value holds, it stays on its line: nobody who chooses a value can write a line.

use std::fmt::{self, Write as _};

use jiff::Timestamp;
use serde_json::Value;
use tracing::Level;
use tracing::field::{Field, Visit};

/// The field that says what happened.
const MESSAGE: &str = "message";
/// The field that says which component it happened in.
const COMPONENT: &str = "component";
/// The field that says which controller worked at it.
const CONTROLLER: &str = "controller";

/// How lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people: time, level, component, part and message, then key=value.
    #[default]
    Text,
    /// For programs: one JSON object per line.
    Json,
}

/// What is known, in the order in which it was told; of a key that is told twice, the later value.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    pub(super) fn set(&mut self, key: &'static str, value: Value) {
        match self.0.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => *known = value,
            None => self.0.push((key, value)),
        }
    }

    pub(super) fn extend(&mut self, others: &Self) {
        for (key, value) in &others.0 {
            self.set(key, value.clone());
        }
    }

    pub(super) fn controller(&self) -> Option<&str> {
        self.0.iter().find(|(key, _)| *key == CONTROLLER).and_then(|(_, value)| value.as_str())
    }

    fn take(&mut self, key: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| *known == key)?;
        match self.0.remove(at).1 {
            Value::String(text) => Some(text),
            other => Some(other.to_string()),
        }
    }
}

impl Visit for Fields {
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field.name(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field.name(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field.name(), value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field.name(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field.name(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field.name(), format!("{value:?}").into());
    }
}

/// All that a line says.
pub(super) struct Line {
    pub(super) time: Timestamp,
    pub(super) level: Level,
    /// Where no field says which.
    pub(super) component: &'static str,
    pub(super) part: &'static str,
    pub(super) fields: Fields,
}

impl Line {
    /// The line with its end.
    pub(super) fn render(mut self, format: Format) -> String {
        let message = self.fields.take(MESSAGE).unwrap_or_default();
        let component = self.fields.take(COMPONENT).unwrap_or_else(|| self.component.to_owned());
        // What has nothing to say is left out.
        self.fields.0.retain(|(_, value)| !value.is_null() && value.as_str() != Some(""));
        match format {
            Format::Text => self.text(&message, &component),
            Format::Json => self.json(&message, &component),
        }
    }

    fn text(&self, message: &str, component: &str) -> String {
        let Self { time, level, part, fields, .. } = self;
        let mut line = format!("{time:.6} {level:5} {component}");
        if part != &component {
            line.push('/');
            line.push_str(part);
        }
        line.push_str(": ");
        for letter in message.chars() {
            push(&mut line, letter);
        }
        for (key, value) in &fields.0 {
            line.push(' ');
            line.push_str(key);
            line.push('=');
            match value {
                Value::String(text) => quote(&mut line, text),
                // Writing to memory cannot fail.
                other => drop(write!(line, "{other}")),
            }
        }
        line.push('\n');
        line
    }

    fn json(&self, message: &str, component: &str) -> String {
        let Self { time, level, part, fields, .. } = self;
        let time = format!("{time:.6}");
        let level = level.as_str().to_lowercase();
        let fixed = [("time", time.as_str()), ("level", &level), (COMPONENT, component), ("part", part)];
        let fixed = fixed.into_iter().chain([(MESSAGE, message)]).map(|(key, value)| (key, Value::from(value)));
        let own = ["time", "level", "part"];
        let others = fields.0.iter().filter(|(key, _)| !own.contains(key)).cloned();
        let items = fixed.chain(others).map(|(key, value)| format!("{}:{value}", Value::from(key)));
        format!("{{{}}}\n", items.collect::<Vec<_>>().join(","))
    }
}

/// A value as one word.
fn quote(line: &mut String, text: &str) {
    let plain = |letter: char| letter.is_ascii_graphic() && !matches!(letter, '"' | '\\' | '=');
    if text.chars().all(plain) {
        return line.push_str(text);
    }
    line.push('"');
    for letter in text.chars() {
        if matches!(letter, '"' | '\\') {
            line.push('\\');
        }
        push(line, letter);
    }
    line.push('"');
}

/// A letter; one that would end the line or steer a terminal is spelled out.
fn push(line: &mut String, letter: char) {
    if letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}') {
        line.extend(letter.escape_default());
    } else {
        line.push(letter);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn line(message: &str, more: &[(&'static str, Value)]) -> Line {
        let mut fields = Fields::default();
        fields.set("message", message.into());
        for (key, value) in more {
            fields.set(key, value.clone());
        }
        let time = "2026-01-02T03:04:05.678901Z".parse().unwrap();
        Line { time, level: Level::INFO, component: "virt-controller", part: "vm", fields }
    }

    #[test]
    fn people_read_time_level_and_where_then_what_then_the_rest() {
        let more = [("namespace", json!("default")), ("attempt", json!(2)), ("error", json!("no \"x\""))];
        assert_eq!(
            line("created the instance", &more).render(Format::Text),
            "2026-01-02T03:04:05.678901Z INFO  virt-controller/vm: created the instance namespace=default attempt=2 \
             error=\"no \\\"x\\\"\"\n"
        );
    }

    #[test]
    fn the_component_of_a_span_is_the_lines() {
        let more = [("component", json!("vm")), ("uid", json!(""))];
        assert_eq!(line("x", &more).render(Format::Text), "2026-01-02T03:04:05.678901Z INFO  vm: x\n");
    }

    #[test]
    fn of_a_key_that_is_told_twice_the_later_value_counts() {
        let more = [("name", json!("outer")), ("ms", json!(1)), ("name", json!("inner"))];
        assert!(line("x", &more).render(Format::Text).ends_with(": x name=inner ms=1\n"));
    }

    #[test]
    fn programs_read_an_object() {
        let text = line("done", &[("ms", json!(7)), ("time", json!("mine"))]).render(Format::Json);
        let expected = json!({
            "time": "2026-01-02T03:04:05.678901Z", "level": "info", "component": "virt-controller", "part": "vm",
            "message": "done", "ms": 7,
        });
        assert!(text.starts_with("{\"time\":"), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
    }

    proptest! {
        /// A guest, a user or a registry may choose a value; none of them may write a line of ours.
        #[test]
        fn whatever_a_value_holds_it_stays_on_its_line(message in ".{0,40}\\PC{0,5}", value in any::<String>()) {
            for format in [Format::Text, Format::Json] {
                let text = line(&message, &[("value", value.clone().into())]).render(format);
                let body = text.strip_suffix('\n').unwrap();
                prop_assert!(!body.contains(|letter: char| letter.is_control() && format == Format::Text), "{text:?}");
                prop_assert!(!body.contains(['\n', '\r']), "{text:?}");
            }
            let text = line(&message, &[("value", value.clone().into())]).render(Format::Json);
            let read: Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(read.get("value").and_then(Value::as_str).unwrap_or_default(), value);
        }
    }
}
