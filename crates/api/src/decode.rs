//! Manifests in, objects out, and errors that say where and what.
//!
//! serde alone answers `invalid type: string "two", expected u32`. Here the same mistake reads
//! `spec.domain.cpu.cores: expected a whole number from 0 to 4294967295, got the string "two"`.

use std::fmt;

use k8s_openapi::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The most text that is read as one manifest; as much as an API server takes in one request.
const MAX_MANIFEST: usize = 3 << 20;

/// An object, and the fields of its manifest that no type knows.
///
/// What to do about unknown fields is up to the caller: to refuse them, to warn, or to let a server prune them.
#[derive(Debug)]
pub struct Decoded<T> {
    /// The object.
    pub object: T,
    /// Paths of fields that were ignored, such as `spec.domain.cpus`.
    pub unknown: Vec<String>,
}

/// Why a manifest is no such object.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The text is not YAML, or not JSON.
    #[error("malformed manifest: {0}")]
    Syntax(String),
    /// It is longer than any server would take.
    #[error("a manifest of {0} bytes is too large; the limit is {MAX_MANIFEST}")]
    Size(usize),
    /// It is an object of another kind.
    #[error("{path}: expected {expected}, got {found}")]
    Kind {
        /// `apiVersion` or `kind`.
        path: &'static str,
        /// What the caller asked for.
        expected: String,
        /// What the manifest says.
        found: String,
    },
    /// A field does not fit its type.
    #[error("{path}: {problem}")]
    Field {
        /// Where, as in `spec.volumes[0].containerDisk.image`.
        path: String,
        /// What was expected and what was found.
        problem: String,
    },
}

/// Reads one object from YAML, of which JSON is a part.
///
/// # Errors
/// When the text is malformed, of another kind, or a field does not fit.
pub fn manifest<T: Resource + DeserializeOwned>(text: &str) -> Result<Decoded<T>, DecodeError> {
    if text.len() > MAX_MANIFEST {
        return Err(DecodeError::Size(text.len()));
    }
    let value = serde_saphyr::from_str(text).map_err(|error| DecodeError::Syntax(error.to_string()))?;
    object(value)
}

/// Reads one object from JSON and checks that it is of kind `T`, in any version.
///
/// # Errors
/// When it is of another kind, or a field does not fit.
pub fn object<T: Resource + DeserializeOwned>(json: Value) -> Result<Decoded<T>, DecodeError> {
    expect_text(&json, "kind", T::KIND, |found| found == T::KIND)?;
    let expected = format!("a version of {}, such as {}", T::GROUP, T::API_VERSION);
    expect_text(&json, "apiVersion", &expected, |found| {
        found.rsplit_once('/').is_some_and(|(group, version)| group == T::GROUP && !version.is_empty())
    })?;
    part(json)
}

/// Reads any part of an object, or a body without a kind.
///
/// # Errors
/// When a field does not fit.
pub fn part<T: DeserializeOwned>(json: Value) -> Result<Decoded<T>, DecodeError> {
    let mut unknown = Vec::new();
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(json, &mut track);
    let decoded = serde_ignored::deserialize(tracked, |path| unknown.push(readable(&path)));
    match decoded {
        Ok(object) => Ok(Decoded { object, unknown }),
        Err(error) => {
            let problem = explain(&error.to_string());
            Err(match track.path().to_string().as_str() {
                "." => DecodeError::Field { path: "the object itself".to_owned(), problem },
                path => DecodeError::Field { path: path.to_owned(), problem },
            })
        }
    }
}

fn expect_text(
    json: &Value,
    path: &'static str,
    expected: &str,
    fits: impl Fn(&str) -> bool,
) -> Result<(), DecodeError> {
    let found = match json.get(path) {
        Some(Value::String(found)) if fits(found) => return Ok(()),
        Some(Value::String(found)) => found.clone(),
        Some(other) => other.to_string(),
        None => "nothing".to_owned(),
    };
    Err(DecodeError::Kind { path, expected: expected.to_owned(), found })
}

/// `serde_ignored` marks options with `?` and lists with numbers; users know `spec.disks[0].name`.
fn readable(path: &serde_ignored::Path<'_>) -> String {
    use serde_ignored::Path;

    struct Readable<'a>(&'a Path<'a>);

    impl fmt::Display for Readable<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self.0 {
                Path::Root => Ok(()),
                Path::Seq { parent, index } => write!(f, "{}[{index}]", Self(parent)),
                Path::Map { parent, key } => {
                    let parent = Readable(parent).to_string();
                    if parent.is_empty() { f.write_str(key) } else { write!(f, "{parent}.{key}") }
                }
                Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
                    Readable(parent).fmt(f)
                }
            }
        }
    }

    Readable(path).to_string()
}

/// Says in words of the API what serde says in words of Rust.
fn explain(message: &str) -> String {
    if let Some(field) = message.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
        return format!("the field {field} is required");
    }
    if let Some((found, expected)) =
        message.strip_prefix("unknown variant `").and_then(|rest| rest.split_once("`, expected "))
    {
        return format!("expected {}, got {found:?}", expected.replace('`', ""));
    }
    // Times are read by `jiff`, the only parser here with words of its own.
    if message.starts_with("failed to parse") {
        return format!("expected a time such as 2006-01-02T15:04:05Z; {message}");
    }
    let stripped = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    let Some((found, expected)) = stripped.and_then(|rest| rest.rsplit_once(", expected ")) else {
        return message.to_owned();
    };
    format!("expected {}, got {}", in_words(expected), found_in_words(found))
}

fn in_words(expected: &str) -> &str {
    match expected {
        "u32" => "a whole number from 0 to 4294967295",
        "i32" => "a whole number from -2147483648 to 2147483647",
        "i64" | "integer `i64`" => "a whole number",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "an object",
        other if other.starts_with("struct ") => "an object",
        other => other,
    }
}

fn found_in_words(found: &str) -> String {
    if let Some(number) = found.strip_prefix("integer `").and_then(|rest| rest.strip_suffix('`')) {
        return format!("the number {number}");
    }
    if let Some(number) = found.strip_prefix("floating point `").and_then(|rest| rest.strip_suffix('`')) {
        return format!("the number {number}");
    }
    if let Some(flag) = found.strip_prefix("boolean `").and_then(|rest| rest.strip_suffix('`')) {
        return flag.to_owned();
    }
    match found {
        "sequence" => "a list".to_owned(),
        "map" => "an object".to_owned(),
        "null" => "null".to_owned(),
        other => format!("the {other}"),
    }
}
