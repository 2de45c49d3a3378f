//! GET of one object.

use http::{Response, StatusCode};

use super::Call;
use crate::body::Body;
use crate::status::Status;

pub(super) fn run(call: &Call) -> Result<Response<Body>, Status> {
    let current = call.server.store.snapshot().revision;
    if let Some(asked) = super::selection::revision(&call.query)?
        && asked > current
    {
        return Err(Status::too_large_resource_version(asked, current));
    }
    call.answer(StatusCode::OK, &*call.current()?)
}
