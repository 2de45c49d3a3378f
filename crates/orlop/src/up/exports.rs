//! Exports for clients that reach no pod: the API server leads them to the pod that serves an export. KubeVirt has virt-exportproxy.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use apiserver::{Body, Builder, RequestBody};
use exporter::proxy::{self, Asked, ServerOfExport};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use tower::util::BoxCloneSyncService;
use virt_controller::export::{AUTHORITY, exporter_name, is_exporter};
use virt_server::is_same_image;

use super::MACHINE_IMAGE;

/// Where exporters listen.
const PORT: u16 = 8443;

/// The way to exports, which is open once the server has started.
#[derive(Clone, Default)]
pub(super) struct Exports(Arc<OnceLock<Client>>);

impl Exports {
    /// Mounts it.
    pub(super) fn on(&self, builder: Builder) -> Builder {
        let client = self.0.clone();
        let service = tower::service_fn(move |request: Request<RequestBody>| {
            let client = client.get().cloned();
            let (parts, _) = request.into_parts();
            async move { Ok::<_, Infallible>(answer(client, &parts).await) }
        });
        builder.open(proxy::PREFIX, BoxCloneSyncService::new(service))
    }

    /// Finds pods with this client from now on.
    pub(super) fn find_with(&self, client: Client) {
        // Nobody else does so.
        let _ = self.0.set(client);
    }
}

async fn answer(client: Option<Client>, request: &Parts) -> Response<Body> {
    let Some(asked) = Asked::parse(request.uri.path()) else { return empty(StatusCode::NOT_FOUND) };
    let Some(client) = client else { return empty(StatusCode::SERVICE_UNAVAILABLE) };
    let pods: Api<Pod> = Api::namespaced(client, &asked.namespace);
    let pod = match pods.get_opt(&exporter_name(&asked.name)).await {
        Ok(pod) => pod,
        Err(error) => return failed(&error),
    };
    let Some(server) = pod.and_then(|pod| server(&pod, &asked)) else { return empty(StatusCode::NOT_FOUND) };
    let query = request.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let path = format!("{}{query}", asked.path);
    match proxy::ask(&server, &request.method, &path, &request.headers).await {
        Ok(answer) => answer.map(Body::passed),
        Err(error) => failed(&error),
    }
}

/// The server of an export, if this is its pod: whoever may make pods could else have the machine talk to a pod of their own.
fn server(pod: &Pod, asked: &Asked) -> Option<ServerOfExport> {
    let spec = pod.spec.as_ref()?;
    let is_ours = |image: &String| is_same_image(image, MACHINE_IMAGE);
    let is_known = is_exporter(pod)
        && spec.host_network != Some(true)
        && spec.containers.iter().all(|container| container.image.as_ref().is_some_and(is_ours));
    let address = pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()?;
    let authority = pod.metadata.annotations.as_ref()?.get(AUTHORITY)?.clone();
    let name = format!("{}.{}.svc", exporter_name(&asked.name), asked.namespace);
    is_known.then(|| ServerOfExport { address: SocketAddr::new(address, PORT), name, authority })
}

fn failed(error: &(dyn std::error::Error + 'static)) -> Response<Body> {
    tracing::warn!(error, "cannot lead a client to an export");
    empty(StatusCode::BAD_GATEWAY)
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::from(""));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn led(change: &Value) -> bool {
        let mut pod = json!({
            "metadata": {
                "labels": { "kubevirt.io.virt-export-service": "virt-export-e" }, "annotations": { AUTHORITY: "a" },
                "ownerReferences": [{
                    "apiVersion": "export.kubevirt.io/v1", "kind": "VirtualMachineExport", "name": "e", "uid": "u", "controller": true,
                }],
            },
            "spec": { "containers": [{ "name": "exporter", "image": MACHINE_IMAGE }] },
            "status": { "podIP": "10.0.0.1" },
        });
        for (part, fields) in change.as_object().unwrap() {
            for (field, value) in fields.as_object().unwrap() {
                pod[part][field] = value.clone();
            }
        }
        let asked = Asked { namespace: "n".to_owned(), name: "e".to_owned(), path: "/x".to_owned() };
        server(&serde_json::from_value(pod).unwrap(), &asked).is_some()
    }

    #[test]
    fn clients_are_led_to_exporters_and_to_nobody_else() {
        assert!(led(&json!({})));
        for change in [
            json!({ "metadata": { "labels": null } }),
            json!({ "metadata": { "ownerReferences": null } }),
            json!({ "metadata": { "annotations": null } }),
            json!({ "spec": { "containers": [{ "name": "exporter", "image": "mine" }] } }),
            json!({ "spec": { "hostNetwork": true } }),
            json!({ "status": { "podIP": null } }),
        ] {
            assert!(!led(&change), "{change}");
        }
    }
}
