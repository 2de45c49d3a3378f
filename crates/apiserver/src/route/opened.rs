//! Paths that another service answers for, whoever asks: it knows by itself whom it serves.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use tower::Service as _;

use super::Delegate;
use crate::body::Body;
use crate::places::Caller;
use crate::serve::Known;
use crate::server::Inner;
use crate::status::Status;

/// A service and where its paths begin.
pub(crate) struct Opened {
    pub(crate) prefix: String,
    pub(crate) service: Delegate,
}

/// Whoever answers for a path.
pub(super) fn find<'a>(server: &'a Inner, path: &str) -> Option<&'a Opened> {
    server.opened.iter().find(|one| path.starts_with(&one.prefix))
}

/// Whether another service answers for a path.
pub(crate) fn is_open(server: &Inner, path: &str) -> bool {
    find(server, path).is_some()
}

/// Has a request answered. Its body is not read.
pub(super) async fn call<B>(one: &Opened, caller: &Caller<'_>, request: Request<B>) -> Result<Response<Body>, Status> {
    // A download lasts as long as its client likes, as a watch does.
    let place = caller.last()?;
    let known = request.extensions().get::<Known>().cloned();
    let (parts, _) = request.into_parts();
    let request = Request::from_parts(parts, Empty::<Bytes>::new().map_err(|never| match never {}).boxed_unsync());
    match one.service.clone().call(request).await {
        Ok(mut response) => {
            // Whom the service serves has said who it is, in a way of its own.
            if let Some(known) = known.filter(|_| response.status().is_success()) {
                known.tell();
            }
            response.body_mut().keep(place);
            Ok(response)
        }
        Err(never) => match never {},
    }
}
