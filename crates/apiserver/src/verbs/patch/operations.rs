//! JSON patch: one operation after the other. A few bytes of it can ask for much: to copy the whole into itself, to move
//! every item of a long list. Each operation is weighed before it is done.

use http::StatusCode;
use json_patch::jsonptr::Pointer;
use json_patch::{AddOperation, Patch, PatchOperation};
use serde_json::Value;

use super::unprocessable;
use crate::bounds::{DEEPEST, LARGEST_BODY, Measure, depth, measure};
use crate::status::Status;

/// A patch of more operations is refused: each may have to find its way through the whole object.
const MOST_OPERATIONS: usize = 10_000;
/// What the copies may weigh together: a copy of the whole into itself doubles it each time.
const MOST_COPIED: usize = LARGEST_BODY;
/// What is measured because it moves to a deeper place, all such moves together.
const MOST_MEASURED: usize = 16 << 20;
/// Items that make room in their list or close ranks, all operations together.
const MOST_SHIFTED: usize = 10_000_000;

/// Reads the operations of a patch.
pub(super) fn read(body: &[u8]) -> Result<Patch, Status> {
    let operations: Vec<Value> =
        serde_json::from_slice(body).map_err(|error| Status::bad_request(format!("error decoding patch: {error}")))?;
    if operations.len() > MOST_OPERATIONS {
        let count = operations.len();
        let message = format!("The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {count}");
        return Err(Status::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message));
    }
    let read = operations.into_iter().map(serde_json::from_value).collect::<Result<Vec<_>, _>>();
    read.map(Patch).map_err(|error| unprocessable(&error.to_string()))
}

/// Applies a patch. What it adds comes from its body, what it copies is bounded: so is the result.
pub(super) fn apply(object: &mut Value, patch: &Patch) -> Result<(), Status> {
    let mut work = Work::default();
    for operation in &patch.0 {
        work.add(object, operation)?;
        apply_one(object, operation).map_err(|error| unprocessable(&error))?;
    }
    Ok(())
}

/// What the operations so far have cost.
#[derive(Default)]
struct Work {
    copied: usize,
    measured: usize,
    shifted: usize,
}

impl Work {
    /// Adds an operation that is about to be applied.
    fn add(&mut self, object: &Value, operation: &PatchOperation) -> Result<(), Status> {
        match operation {
            PatchOperation::Add(add) => {
                self.shift(object, &add.path)?;
                check_depth(&add.path, depth(&add.value))
            }
            PatchOperation::Replace(replace) => check_depth(&replace.path, depth(&replace.value)),
            PatchOperation::Copy(copy) => {
                self.shift(object, &copy.path)?;
                let Measure { bytes, depth } = object.pointer(copy.from.as_str()).map(measure).unwrap_or_default();
                self.copied += bytes;
                if self.copied > MOST_COPIED {
                    return Err(too_much(&format!("the patch copies more than {MOST_COPIED} bytes")));
                }
                check_depth(&copy.path, depth)
            }
            PatchOperation::Move(moved) => {
                self.shift(object, &moved.from)?;
                self.shift(object, &moved.path)?;
                if moved.path.count() <= moved.from.count() {
                    return Ok(());
                }
                let Measure { bytes, depth } = object.pointer(moved.from.as_str()).map(measure).unwrap_or_default();
                self.measured += bytes;
                if self.measured > MOST_MEASURED {
                    return Err(too_much(&format!("the patch moves more than {MOST_MEASURED} bytes")));
                }
                check_depth(&moved.path, depth)
            }
            PatchOperation::Remove(remove) => self.shift(object, &remove.path),
            PatchOperation::Test(_) => Ok(()),
        }
    }

    /// Counts what follows a place in a list.
    fn shift(&mut self, object: &Value, path: &Pointer) -> Result<(), Status> {
        let Some((parent, last)) = path.split_back() else { return Ok(()) };
        let Some(Value::Array(items)) = object.pointer(parent.as_str()) else { return Ok(()) };
        // Behind the last there is nothing, and what is no number is refused later.
        let index = last.decoded().parse().unwrap_or(items.len());
        self.shifted += items.len().saturating_sub(index);
        if self.shifted <= MOST_SHIFTED {
            return Ok(());
        }
        Err(too_much(&format!("the patch moves more than {MOST_SHIFTED} list items; replace the lists instead")))
    }
}

fn check_depth(path: &Pointer, depth: usize) -> Result<(), Status> {
    if path.count() + depth > DEEPEST { Err(Status::too_deep()) } else { Ok(()) }
}

fn too_much(problem: &str) -> Status {
    let message = format!("Request entity too large: {problem}");
    Status::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
}

/// One operation. Clients test for null to learn that nothing is there; by the letter of the RFC that test would fail.
fn apply_one(object: &mut Value, operation: &PatchOperation) -> Result<(), String> {
    if let PatchOperation::Test(test) = operation
        && test.value.is_null()
        && object.pointer(test.path.as_str()).is_none()
    {
        return Ok(());
    }
    // A replacement of what is not there adds it, where there is a place for it.
    if let PatchOperation::Replace(replace) = operation
        && object.pointer(replace.path.as_str()).is_none()
    {
        let add = AddOperation { path: replace.path.clone(), value: replace.value.clone() };
        return json_patch::patch(object, &[PatchOperation::Add(add)]).map_err(|error| error.to_string());
    }
    json_patch::patch(object, std::slice::from_ref(operation)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(object: &Value, operations: &Value) -> Result<Value, Status> {
        let mut object = object.clone();
        apply(&mut object, &read(operations.to_string().as_bytes())?)?;
        Ok(object)
    }

    /// `a` within `a`, so many times.
    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!(1), |inner, _| json!({ "a": inner }))
    }

    fn path(levels: usize) -> String {
        "/a".repeat(levels)
    }

    #[test]
    fn every_way_to_a_deeper_place_ends_at_the_limit() {
        let half = json!({ "a": nested(49), "b": nested(50) });
        for (operation, allowed) in [
            (json!({ "op": "copy", "from": "/b", "path": format!("{}/x", path(49)) }), true),
            (json!({ "op": "copy", "from": "/b", "path": format!("{}/a/x", path(49)) }), false),
            (json!({ "op": "move", "from": "/b", "path": format!("{}/x", path(49)) }), true),
            (json!({ "op": "add", "path": format!("{}/x", path(49)), "value": nested(50) }), true),
            (json!({ "op": "add", "path": format!("{}/x", path(49)), "value": nested(51) }), false),
            (json!({ "op": "replace", "path": path(49), "value": nested(52) }), false),
        ] {
            let answer = patched(&half, &json!([operation]));
            match answer {
                Ok(object) => assert!(allowed && depth(&object) <= DEEPEST, "{operation}"),
                Err(status) => assert!(!allowed && status.code.is_client_error(), "{operation}: {status}"),
            }
        }
        let deeper =
            json!([{ "op": "add", "path": "/c", "value": {} }, { "op": "move", "from": "/b", "path": "/c/b" }]);
        let deepest = json!({ "b": nested(99) });
        assert_eq!(patched(&deepest, &deeper).unwrap_err(), Status::too_deep());
    }

    #[test]
    fn doubling_ends_early() {
        let mut operations = vec![json!({ "op": "add", "path": "/a", "value": nested(1) })];
        for _ in 0..16 {
            operations.push(json!({ "op": "copy", "from": "", "path": format!("{}/a", path(2)) }));
            operations.push(json!({ "op": "copy", "from": "/a", "path": "/b" }));
        }
        let refused = patched(&json!({}), &Value::from(operations)).unwrap_err();
        assert!(refused.code.is_client_error(), "{refused}");
    }

    #[test]
    fn the_items_that_operations_move_are_counted() {
        let list: Value = std::iter::repeat_n(json!(0), 10_000).collect();
        let first: Value = std::iter::repeat_n(json!({ "op": "remove", "path": "/0" }), 900).collect();
        assert_eq!(patched(&list, &first).unwrap().as_array().map(Vec::len), Some(9100));
        let last: Value = (0..9000).rev().map(|index| json!({ "op": "remove", "path": format!("/{index}") })).collect();
        let longer: Value = std::iter::repeat_n(json!(0), 9000).collect();
        assert_eq!(patched(&longer, &last).unwrap(), json!([]));
        let many: Value = std::iter::repeat_n(json!({ "op": "remove", "path": "/0" }), 5000).collect();
        assert_eq!(patched(&list, &many).unwrap_err().code, StatusCode::PAYLOAD_TOO_LARGE);
    }
}
