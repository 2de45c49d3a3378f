//! Manifests in, objects out, and errors that say where and what.
//!
//! serde alone answers `invalid type: string "two", expected u32`. Here the same mistake reads
//! `spec.domain.cpu.cores: expected a whole number from 0 to 4294967295, got the string "two"`.

mod tree;
mod words;

use std::cell::RefCell;

use k8s_openapi::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use tree::{Misfit, Tree};
use words::explain;

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

/// A type that is an object of its own. Its tree of types is compiled once, for [`Tree`], in this crate.
pub trait Root: Resource + Sized {
    /// Reads one from a tree.
    ///
    /// # Errors
    /// When a field does not fit.
    fn read(tree: Tree<'_>) -> Result<Self, Misfit>;
}

/// Reads one object from YAML, of which JSON is a part.
///
/// # Errors
/// When the text is malformed, of another kind, or a field does not fit.
pub fn manifest<T: Root>(text: &str) -> Result<Decoded<T>, DecodeError> {
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
pub fn object<T: Root>(json: Value) -> Result<Decoded<T>, DecodeError> {
    expect_text(&json, "kind", T::KIND, |found| found == T::KIND)?;
    let expected = format!("a version of {}, such as {}", T::GROUP, T::API_VERSION);
    expect_text(&json, "apiVersion", &expected, |found| {
        found.rsplit_once('/').is_some_and(|(group, version)| group == T::GROUP && !version.is_empty())
    })?;
    root(json)
}

/// Reads one object from JSON, whatever kind it says it is.
///
/// # Errors
/// When a field does not fit.
pub fn root<T: Root>(json: Value) -> Result<Decoded<T>, DecodeError> {
    with(json, T::read)
}

/// Reads a part of an object, or a body without a kind.
///
/// # Errors
/// When a field does not fit.
pub fn part<T: DeserializeOwned>(json: Value) -> Result<Decoded<T>, DecodeError> {
    with(json, |tree| T::deserialize(tree))
}

fn with<T>(json: Value, read: impl FnOnce(Tree<'_>) -> Result<T, Misfit>) -> Result<Decoded<T>, DecodeError> {
    let unknown = RefCell::default();
    let read = read(Tree::new(json, &unknown));
    match read {
        Ok(object) => Ok(Decoded { object, unknown: unknown.into_inner() }),
        Err(Misfit { place, problem }) => {
            let path = place.filter(|place| !place.is_empty()).unwrap_or_else(|| "the object itself".to_owned());
            Err(DecodeError::Field { path, problem: explain(&problem) })
        }
    }
}

/// For a root type that is read from any format, as serde asks for it.
pub(crate) fn any<T: Root>(json: Value) -> Result<T, Misfit> {
    T::read(Tree::new(json, &RefCell::default()))
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
