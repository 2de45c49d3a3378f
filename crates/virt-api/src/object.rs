//! Objects of a request, read into their types.

use api::decode::{self, DecodeError, Root};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{Metadata, Resource};
use serde::Serialize;
use serde_json::Value;

use crate::change;
use crate::denial::{Denial, Problems, Reason};
use crate::request::{Operation, Request, Response};

/// A kind that admission knows the inside of.
pub(crate) trait Object: Root + Metadata<Ty = ObjectMeta> + Serialize + Clone + PartialEq {}

impl<T: Root + Metadata<Ty = ObjectMeta> + Serialize + Clone + PartialEq> Object for T {}

/// Reads an object of any version.
pub(crate) fn read<T: Object>(json: Option<&Value>) -> Result<T, Denial> {
    let json = json.ok_or_else(|| Denial::forbidden("the request has no object"))?;
    decode::root(json.clone()).map(|decoded| decoded.object).map_err(|error| {
        let name = json.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let (field, message) = match error {
            DecodeError::Field { path, problem } => (path, problem),
            other => ("the object itself".to_owned(), other.to_string()),
        };
        let mut problems = Problems::default();
        problems.add(Reason::Invalid, field, message);
        denial::<T>(problems, name)
    })
}

/// Ends a check: admits the object as it has become, or refuses it.
pub(crate) fn decided<T: Object>(json: Option<&Value>, before: &T, after: &T, problems: Problems) -> Response {
    let name = display_name(after.metadata());
    if let Err(denial) = problems.into_result(&kind::<T>(), name) {
        return Response::denied(denial);
    }
    let changed = json.and_then(|json| change::carried_over(json, before, after));
    Response { outcome: Ok(changed), warnings: Vec::new(), mark: None }
}

/// Admission of a kind whose specification never changes after creation; a change is refused in these words.
pub(crate) fn unchanging<T: Object, S: PartialEq>(
    request: &Request<'_>,
    spec: fn(&T) -> &S,
    refusal: &str,
    create: impl FnOnce() -> Response,
) -> Response {
    match request.operation {
        Operation::Create => create(),
        Operation::Update if !request.is_about_status() => keep(request, spec, refusal),
        Operation::Update | Operation::Delete => Response::allowed(),
    }
}

fn keep<T: Object, S: PartialEq>(request: &Request<'_>, spec: fn(&T) -> &S, refusal: &str) -> Response {
    let (sent, old) = match (read::<T>(request.object), read::<T>(request.old)) {
        (Ok(sent), Ok(old)) => (sent, old),
        (Err(denial), _) | (_, Err(denial)) => return Response::denied(denial),
    };
    let mut problems = Problems::default();
    if spec(&sent) != spec(&old) {
        problems.invalid("spec", refusal);
    }
    decided(request.object, &sent, &sent, problems)
}

fn denial<T: Object>(problems: Problems, name: &str) -> Denial {
    match problems.into_result(&kind::<T>(), name) {
        Err(denial) => denial,
        Ok(()) => Denial::forbidden("cannot decode the object"),
    }
}

/// `VirtualMachine.kubevirt.io`.
fn kind<T: Resource>() -> String {
    format!("{}.{}", T::KIND, T::GROUP)
}

fn display_name(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().or(metadata.generate_name.as_deref()).unwrap_or_default()
}

/// Adds a finalizer that is not there yet.
pub(crate) fn add_finalizer(metadata: &mut ObjectMeta, finalizer: &str) {
    let finalizers = metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|set| set == finalizer) {
        finalizers.push(finalizer.to_owned());
    }
}

/// Adds an annotation that is not there yet.
pub(crate) fn add_annotation(metadata: &mut ObjectMeta, key: &str, value: &str) {
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.entry(key.to_owned()).or_insert_with(|| value.to_owned());
}

/// The fields in which two parts of an object differ, as paths, at most `most` of them.
pub(crate) fn differences(path: &str, old: &Value, new: &Value, most: usize) -> Vec<String> {
    let mut paths = Vec::new();
    differ(path, old, new, &mut paths);
    paths.truncate(most);
    paths
}

fn differ(path: &str, old: &Value, new: &Value, paths: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let added = new.keys().filter(|key| !old.contains_key(*key));
            for key in old.keys().chain(added) {
                let nothing = &Value::Null;
                let inner = format!("{path}.{key}");
                differ(&inner, old.get(key).unwrap_or(nothing), new.get(key).unwrap_or(nothing), paths);
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (index, (old, new)) in old.iter().zip(new).enumerate() {
                differ(&format!("{path}[{index}]"), old, new, paths);
            }
        }
        (old, new) => {
            if old != new {
                paths.push(path.to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_told_by_their_paths() {
        let old = json!({ "a": 1, "list": [{ "x": 1 }, { "x": 2 }], "gone": true, "same": {} });
        let new = json!({ "a": 2, "list": [{ "x": 1 }, { "x": 3 }], "new": [], "same": {} });
        let paths = differences("spec", &old, &new, 9);
        assert_eq!(paths, ["spec.a", "spec.gone", "spec.list[1].x", "spec.new"]);
        assert_eq!(differences("spec", &old, &new, 1), ["spec.a"]);
    }
}
