//! Who uses the claims that are exported.

use api::export::VirtualMachineExport as Export;
use k8s_openapi::api::core::v1::Pod;
use manager::cache::{Cache, Keeping};
use manager::caches::Caches;
use manager::context::Context;

use super::{is_exporter, objects};

/// All pods, since any of them may use a claim. Nobody else here asks for more than the pods of instances, so that the watch begins with
/// the first export.
#[derive(Clone)]
pub(super) struct Pods {
    pub(super) all: Cache<Pod>,
    caches: Caches,
    exports: Cache<Export>,
}

impl Pods {
    pub(super) fn new(context: &Context, exports: &Cache<Export>) -> Self {
        let caches = Caches::new(context.caches.reader().clone(), context.chance.clone());
        let all = caches.kept("", Keeping::slim_and_packed(), &[("claim", claims_of_pod)]);
        Self { all, caches, exports: exports.clone() }
    }

    pub(super) async fn run(&self) {
        let mut changes = self.exports.subscribe();
        while changes.next().await.new.is_none() {}
        tracing::info!("watching all pods for the first export");
        self.caches.run().await;
        // The watch ends only with the program.
        std::future::pending::<()>().await;
    }
}

/// The claims of pods that have not ended, as `namespace/claim`. Exporters only read.
fn claims_of_pod(pod: &Pod) -> Vec<String> {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) || is_exporter(pod) {
        return Vec::new();
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    objects::claims_of(pod).into_iter().map(|claim| format!("{namespace}/{claim}")).collect()
}
