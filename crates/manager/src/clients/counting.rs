//! How often programs ask the API server for what, under the name that Kubernetes' clients use.

use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::{Method, Request, Response};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// The requests of a program, by verb, resource, subresource and code. Clones share them. Put before a service as a layer,
/// it counts what that one answers.
#[derive(Clone, Debug, Default)]
pub struct RequestMetrics {
    requests: Family<Labels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    verb: &'static str,
    resource: String,
    subresource: String,
    /// As a number; `<error>` if there was no answer.
    code: String,
}

impl RequestMetrics {
    /// Shows them in a registry.
    pub fn register(&self, registry: &mut Registry) {
        // The encoder adds `_total`.
        registry.register("rest_client_requests", "Requests to the API server", self.requests.clone());
    }

    fn answered(&self, asked: Asked, code: Option<u16>) {
        let Asked { verb, resource, subresource } = asked;
        let code = code.map_or_else(|| "<error>".to_owned(), |code| code.to_string());
        self.requests.get_or_create(&Labels { verb, resource, subresource, code }).inc();
    }
}

impl<S> tower::Layer<S> for RequestMetrics {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { inner, metrics: self.clone() }
    }
}

/// A service whose answers are counted.
#[derive(Clone, Debug)]
pub struct Counted<S> {
    inner: S,
    metrics: RequestMetrics,
}

impl<S, B, A> tower::Service<Request<B>> for Counted<S>
where
    S: tower::Service<Request<B>, Response = Response<A>>,
    S::Future: Send + 'static,
{
    type Response = Response<A>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<A>, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let asked = Asked::of(request.method(), request.uri().path(), request.uri().query().unwrap_or_default());
        let (metrics, answer) = (self.metrics.clone(), self.inner.call(request));
        Box::pin(async move {
            let answer = answer.await;
            metrics.answered(asked, answer.as_ref().ok().map(|answer| answer.status().as_u16()));
            answer
        })
    }
}

/// What a request is about. Without a resource it is about the server itself, such as its discovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Asked {
    verb: &'static str,
    resource: String,
    subresource: String,
}

impl Asked {
    fn of(method: &Method, path: &str, query: &str) -> Self {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        // A group's path has one part more than the first group's.
        let known = match parts.next() {
            Some("api") => parts.next().is_some(),
            Some("apis") => parts.next().is_some() && parts.next().is_some(),
            _ => false,
        };
        let parts: Vec<&str> = if known { parts.collect() } else { Vec::new() };
        let within = match parts.as_slice() {
            // A namespace's own parts are not kinds within it.
            ["namespaces", _, "status" | "finalize"] => &parts[..],
            ["namespaces", _, within @ ..] if !within.is_empty() => within,
            all => all,
        };
        let part = |index: usize| within.get(index).copied().unwrap_or_default();
        let watches = query.split('&').any(|one| matches!(one, "watch=true" | "watch=1" | "watch"));
        let of_all = part(1).is_empty() && !part(0).is_empty();
        let verb = match (method.as_str(), of_all) {
            ("GET", true) if watches => "WATCH",
            ("GET", true) => "LIST",
            ("GET", false) => "GET",
            ("POST", _) => "POST",
            ("PUT", _) => "PUT",
            ("PATCH", _) => "PATCH",
            ("DELETE", true) => "DELETECOLLECTION",
            ("DELETE", false) => "DELETE",
            _ => "OTHER",
        };
        Self { verb, resource: part(0).to_owned(), subresource: part(2).to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use tower::{Layer as _, ServiceExt as _, service_fn};

    use super::*;

    fn asked(method: &str, uri: &str) -> String {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let Asked { verb, resource, subresource } = Asked::of(&method.parse().unwrap(), path, query);
        format!("{verb} {resource}/{subresource}")
    }

    #[test]
    fn a_path_tells_what_a_request_is_about() {
        for (method, uri, expected) in [
            ("GET", "/api/v1/pods?watch=true&resourceVersion=0", "WATCH pods/"),
            ("GET", "/api/v1/namespaces/a/pods?limit=5", "LIST pods/"),
            ("GET", "/api/v1/namespaces/a/pods/b", "GET pods/"),
            ("POST", "/api/v1/namespaces/a/pods/b/binding", "POST pods/binding"),
            ("PATCH", "/apis/kubevirt.io/v1/namespaces/a/virtualmachines/b/status", "PATCH virtualmachines/status"),
            ("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/b", "PUT leases/"),
            ("DELETE", "/api/v1/nodes/a", "DELETE nodes/"),
            ("DELETE", "/api/v1/namespaces/a/pods", "DELETECOLLECTION pods/"),
            ("GET", "/api/v1/namespaces/a", "GET namespaces/"),
            ("PUT", "/api/v1/namespaces/a/finalize", "PUT namespaces/finalize"),
            ("GET", "/apis/kubevirt.io/v1", "GET /"),
            ("GET", "/metrics", "GET /"),
            ("GET", "/", "GET /"),
        ] {
            assert_eq!(asked(method, uri), expected, "{method} {uri}");
        }
    }

    #[tokio::test]
    async fn answers_and_their_absence_are_counted() {
        let metrics = RequestMetrics::default();
        let service = metrics.layer(service_fn(async |request: Request<()>| match request.method() {
            &Method::GET => Ok(Response::new(())),
            _ => Err("lost"),
        }));
        for method in ["GET", "GET", "POST"] {
            let request = Request::builder().method(method).uri("/api/v1/pods").body(()).unwrap();
            assert_eq!(service.clone().oneshot(request).await.is_ok(), method == "GET");
        }
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let list = "rest_client_requests_total{verb=\"LIST\",resource=\"pods\",subresource=\"\",code=\"200\"} 2";
        let lost = "rest_client_requests_total{verb=\"POST\",resource=\"pods\",subresource=\"\",code=\"<error>\"} 1";
        assert!(text.contains(list) && text.contains(lost), "{text}");
    }
}
