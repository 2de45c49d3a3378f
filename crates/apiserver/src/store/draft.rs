//! An object's content, as it is kept: bytes, and the few values that selectors ask for.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::bounds::{self, DEEPEST_READ};

/// The way to a field that can be selected by, such as `["spec", "nodeName"]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldPath {
    /// As selectors write it.
    pub(crate) name: Arc<str>,
    pub(crate) steps: Arc<[String]>,
    /// What is looked at where that is empty.
    instead: Option<&'static str>,
    /// What a field that is not there counts as.
    absent: &'static str,
}

impl FieldPath {
    /// From `spec.nodeName` or `.spec.nodeName`.
    pub(crate) fn new(name: &str) -> Self {
        let name = name.trim_start_matches('.');
        Self { name: name.into(), steps: name.split('.').map(str::to_owned).collect(), instead: None, absent: "" }
    }

    /// Selectors know it by another name.
    pub(crate) fn called(self, name: &str) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Where it is empty, another field of the object counts.
    pub(crate) fn or(self, field: &'static str) -> Self {
        Self { instead: Some(field), ..self }
    }

    pub(crate) fn absent_as(self, absent: &'static str) -> Self {
        Self { absent, ..self }
    }

    /// What selectors compare with.
    pub(crate) fn text(&self, value: &Value) -> Box<str> {
        let found = self.steps.iter().try_fold(value, |value, step| value.get(step));
        let is_empty = found.is_none_or(|found| found.as_str() == Some(""));
        let found = self.instead.filter(|_| is_empty).map_or(found, |field| value.get(field));
        match found {
            Some(Value::String(text)) => text.as_str().into(),
            Some(Value::Bool(flag)) => flag.to_string().into(),
            Some(Value::Number(number)) => number.to_string().into(),
            _ => self.absent.into(),
        }
    }
}

/// How every text starts. What follows the version in an answer is kept without it, so that neither the version nor
/// the revision is ever written into an object: an answer is a head for both, then [`Draft::rest`].
const START: &str = "{\"metadata\":{";

/// Content without apiVersion, kind and resourceVersion.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    text: Bytes,
    /// Where the metadata ends: behind its brace.
    metadata_end: usize,
    labels: Box<[(Box<str>, Box<str>)]>,
    /// In the order of the table's selectable fields.
    fields: Box<[Box<str>]>,
    /// Why nobody can read it. Only what was loaded may be so.
    problem: Option<Box<str>>,
}

impl Draft {
    /// From an object.
    pub(crate) fn new(object: &Value, fields: &[FieldPath]) -> Result<Self, serde_json::Error> {
        let empty = Map::new();
        let map = object.as_object().unwrap_or(&empty);
        let metadata = map.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
        let mut text = Vec::with_capacity(1024);
        text.extend_from_slice(START.as_bytes());
        entries(&mut text, metadata, &["resourceVersion"])?;
        text.push(b'}');
        let metadata_end = text.len();
        let start = text.len();
        text.push(b',');
        entries(&mut text, map, &["metadata", "apiVersion", "kind"])?;
        if text.len() == start + 1 {
            text.pop();
        }
        text.push(b'}');
        text.shrink_to_fit();
        let labels = metadata.get("labels").and_then(Value::as_object).into_iter().flatten();
        let labels = labels.filter_map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into()))).collect();
        let fields = fields.iter().map(|field| field.text(object)).collect();
        Ok(Self { text: text.into(), metadata_end, labels, fields, problem: None })
    }

    /// From the text of an earlier one. One that cannot be read is kept as well, so that it can be deleted.
    pub(crate) fn from_text(text: Bytes, fields: &[FieldPath]) -> Self {
        match Self::read(text.clone(), fields) {
            Ok(draft) => draft,
            Err(error) => Self::unreadable(text, &error.to_string()),
        }
    }

    /// From bytes that are not those that were written. Whatever they say, nobody relies on it.
    pub(crate) fn damaged(text: Bytes) -> Self {
        Self::unreadable(text, "its checksum is wrong: its bytes have changed on disk")
    }

    fn unreadable(text: Bytes, problem: &str) -> Self {
        // Its metadata may be good all the same, and tells its UID then.
        let metadata_end = serde_json::from_slice::<Head<'_>>(&text).map_or(0, |head| head.end());
        Self { text, metadata_end, labels: Box::default(), fields: Box::default(), problem: Some(problem.into()) }
    }

    fn read(text: Bytes, fields: &[FieldPath]) -> Result<Self, serde_json::Error> {
        if !text.starts_with(START.as_bytes()) {
            return Err(serde_json::Error::custom("it does not begin with its metadata"));
        }
        if bounds::depth_of_text(&text) > DEEPEST_READ {
            return Err(serde_json::Error::custom(format!("it is nested deeper than {DEEPEST_READ} levels")));
        }
        let head: Head<'_> = serde_json::from_slice(&text)?;
        let labels: Labels = serde_json::from_str(head.metadata.get())?;
        let metadata_end = head.end();
        let fields = if fields.is_empty() {
            Box::default()
        } else {
            let value: Value = serde_json::from_slice(&text)?;
            fields.iter().map(|field| field.text(&value)).collect()
        };
        let labels = labels.labels.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        Ok(Self { text, metadata_end, labels, fields, problem: None })
    }

    /// As it goes to disk: JSON on its own.
    pub(crate) fn text(&self) -> &Bytes {
        &self.text
    }

    /// What follows `"metadata":{"resourceVersion":"1",` in an answer.
    pub(crate) fn rest(&self) -> &[u8] {
        self.text.get(START.len()..).unwrap_or_default()
    }

    /// The same of the metadata alone, its brace included.
    pub(crate) fn metadata_rest(&self) -> &[u8] {
        self.text.get(START.len()..self.metadata_end).unwrap_or_default()
    }

    pub(crate) fn value(&self) -> Result<Value, serde_json::Error> {
        match &self.problem {
            None => serde_json::from_slice(&self.text),
            Some(problem) => {
                Err(serde_json::Error::custom(format!("it is unreadable and can only be deleted: {problem}")))
            }
        }
    }

    /// Why nobody can read it.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    pub(crate) fn is_readable(&self) -> bool {
        self.problem.is_none()
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| &**name == key).map(|(_, value)| &**value)
    }

    pub(crate) fn field(&self, index: usize) -> &str {
        self.fields.get(index).map_or("", |text| text)
    }

    /// Content is equal when its text is: keys are sorted.
    pub(crate) fn same_content(&self, other: &Self) -> bool {
        self.text == other.text
    }

    /// Bytes of its JSON.
    pub(crate) fn size(&self) -> u64 {
        self.text.len().try_into().unwrap_or(u64::MAX)
    }

    /// Whether it has more bytes than an object may have.
    pub(crate) fn is_too_large(&self) -> bool {
        self.text.len() > super::LARGEST_OBJECT
    }

    /// The UID, and whether it is being deleted, without a look at the rest.
    pub(crate) fn life(&self) -> Option<Life> {
        serde_json::from_slice(self.text.get(START.len() - 1..self.metadata_end)?).ok()
    }

    /// The metadata alone; null, where it cannot be read.
    pub(crate) fn metadata(&self) -> Value {
        let text = self.text.get(START.len() - 1..self.metadata_end);
        text.and_then(|text| serde_json::from_slice(text).ok()).unwrap_or_default()
    }

    /// What it weighs in memory, roughly.
    pub(crate) fn weight(&self) -> usize {
        self.text.len() + 256
    }
}

/// What its metadata tells of an object's life.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Life {
    #[serde(default)]
    pub(crate) uid: String,
    pub(crate) deletion_timestamp: Option<String>,
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

impl Head<'_> {
    /// Where the metadata ends, which every text starts with.
    fn end(&self) -> usize {
        START.len() - 1 + self.metadata.get().len()
    }
}

#[derive(Deserialize)]
struct Labels {
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// `"key":value,"key":value`, without those that are kept elsewhere.
fn entries(out: &mut Vec<u8>, map: &Map<String, Value>, without: &[&str]) -> Result<(), serde_json::Error> {
    let mut first = true;
    for (key, value) in map.iter().filter(|(key, _)| !without.contains(&key.as_str())) {
        if !first {
            out.push(b',');
        }
        first = false;
        serde_json::to_writer(&mut *out, key)?;
        out.push(b':');
        serde_json::to_writer(&mut *out, value)?;
    }
    Ok(())
}
