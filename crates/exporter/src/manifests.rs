//! Manifests: the objects that import the exported VM elsewhere, and the token as a secret for that import.

use std::io;
use std::path::Path;

use http::{HeaderMap, header};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::TOKEN;
use crate::answer::{self, Answer};
use crate::image::read_small;

/// As large as a secret can be.
const MOST: u64 = 2 << 20;
const YAML: &str = "application/yaml";
const JSON: &str = "application/json";

/// Who reads manifests: where they lead depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    Inside,
    Outside,
}

/// The file of manifests.
#[derive(Deserialize)]
struct Known {
    internal: Vec<Value>,
    /// None where nobody is reached from outside.
    external: Option<Vec<Value>>,
}

/// The VM and what it needs; none if there is no way for this reader.
pub(crate) fn all(path: &Path, reader: Reader, headers: &HeaderMap) -> io::Result<Option<Answer>> {
    let known: Known = serde_json::from_slice(&read_small(path, MOST)?)?;
    let objects = match reader {
        Reader::Inside => Some(known.internal),
        Reader::Outside => known.external,
    };
    objects.map(|objects| written(&objects, headers)).transpose()
}

/// A secret with the header that imports need.
pub(crate) fn secret(export: &str, token: &[u8], headers: &HeaderMap) -> io::Result<Answer> {
    let token = String::from_utf8_lossy(token);
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": format!("header-secret-{export}") },
        "stringData": { "token": format!("{TOKEN}:{token}") },
    });
    written(&[secret], headers)
}

fn written(objects: &[Value], headers: &HeaderMap) -> io::Result<Answer> {
    let wanted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if wanted != YAML {
        let list = json!({ "apiVersion": "v1", "kind": "List", "metadata": {}, "items": objects });
        return Ok(answer::text(JSON, serde_json::to_vec_pretty(&list)?));
    }
    let mut text = String::new();
    for object in objects {
        text.push_str(&serde_saphyr::to_string(object).map_err(io::Error::other)?);
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str("---\n");
    }
    Ok(answer::text(YAML, text))
}
