//! `subresources.kubevirt.io` in the process of the API server: the one adapter of virt-api's service. The other, behind
//! Kubernetes' aggregator, takes who asks from the front proxy's headers instead.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use apiserver::{Body, Builder, Delegate, Delegation, Identity, RequestBody, StreamPlace};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use tower::util::BoxCloneSyncService;
use virt_api::subresources::{Caller, GROUP, Guests, Lasting, Subresources, VERSIONS, paths, resources};

/// The service, which can answer once the server that it is mounted on has started.
pub(crate) struct Mounted {
    guests: Arc<dyn Guests>,
    service: Arc<OnceLock<Subresources>>,
}

impl Mounted {
    pub(crate) fn new(guests: Arc<dyn Guests>) -> Self {
        Self { guests, service: Arc::default() }
    }

    /// Mounts both versions.
    pub(crate) fn on(&self, builder: Builder) -> Builder {
        VERSIONS.into_iter().fold(builder, |builder, version| {
            let says = Delegation { resources: resources(), paths: paths(version) };
            builder.delegate(GROUP, version, says, delegate(self.service.clone()))
        })
    }

    /// Answers from now on, with the rights of this client.
    pub(crate) fn answer_with(self, client: Client) {
        // Nobody else does so.
        let _ = self.service.set(Subresources::new(client, self.guests));
    }
}

fn delegate(service: Arc<OnceLock<Subresources>>) -> Delegate {
    BoxCloneSyncService::new(tower::service_fn(move |request: Request<RequestBody>| {
        let service = service.get().cloned();
        async move { Ok::<_, Infallible>(answer(service, request).await) }
    }))
}

async fn answer(service: Option<Subresources>, mut request: Request<RequestBody>) -> Response<Body> {
    let Some(service) = service else {
        let mut response = Response::new(Body::from("the server starts\n"));
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        return response;
    };
    let extensions = request.extensions_mut();
    if let Some(Identity { user, groups, uid, extra }) = extensions.remove::<Identity>() {
        extensions.insert(Caller { user, groups, uid, extra });
    }
    if let Some(place) = extensions.remove::<StreamPlace>() {
        extensions.insert(Lasting::until(move || {
            let place = place.clone();
            Box::pin(async move { place.stopping().await })
        }));
    }
    let (parts, body) = service.answer(request).await.into_parts();
    // It is whole: there is nothing to wait for.
    let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    Response::from_parts(parts, Body::from(bytes))
}

#[cfg(test)]
mod tests;
