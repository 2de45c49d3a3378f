//! What a pod's namespace and cluster say about it, beside its instance.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace as KubernetesNamespace, ResourceQuota};
use kube::{Client, ResourceExt as _};
use manager::cache::{Cache, Key, namespace_of};
use manager::context::Context;
use tokio::sync::OnceCell;

use crate::render::Namespace;

/// The first Kubernetes whose nodes mount images as volumes without being told to.
const IMAGE_VOLUMES_SINCE: (u32, u32) = (1, 35);

/// Namespaces, their quotas, and what nodes can mount. Clones share it.
#[derive(Clone)]
pub(crate) struct Surroundings {
    namespaces: Cache<KubernetesNamespace>,
    quotas: Cache<ResourceQuota>,
    image_volumes: Arc<OnceCell<bool>>,
}

impl Surroundings {
    /// `image_volumes` is whether nodes can mount images as volumes, if somebody knows; otherwise the server's version tells.
    pub(crate) fn new(context: &Context, image_volumes: Option<bool>) -> Self {
        Self {
            namespaces: context.caches.of(&[]),
            quotas: context.caches.of(&[("namespace", namespace_of)]),
            image_volumes: Arc::new(OnceCell::new_with(image_volumes)),
        }
    }

    pub(crate) fn namespaces(&self) -> &Cache<KubernetesNamespace> {
        &self.namespaces
    }

    pub(crate) fn quotas(&self) -> &Cache<ResourceQuota> {
        &self.quotas
    }

    /// Whether nodes can mount images as volumes.
    pub(crate) async fn mounts_images(&self, client: &Client) -> Result<bool, kube::Error> {
        let ask = || async {
            let version = client.apiserver_version().await?;
            let number =
                |text: &str| text.trim_end_matches(|letter: char| !letter.is_ascii_digit()).parse().unwrap_or(0);
            Ok((number(&version.major), number(&version.minor)) >= IMAGE_VOLUMES_SINCE)
        };
        self.image_volumes.get_or_try_init(ask).await.copied()
    }

    /// What matters of a namespace.
    pub(crate) fn namespace(&self, name: &str) -> Namespace {
        let labels = self.namespaces.get(&Key::cluster(name)).map(|namespace| namespace.labels().clone());
        let quotas = self.quotas.find("namespace", name);
        let bounds = |what: &str| {
            quotas.iter().any(|quota| {
                let hard = quota.spec.as_ref().and_then(|spec| spec.hard.as_ref());
                hard.is_some_and(|hard| hard.contains_key(what))
            })
        };
        Namespace {
            labels: labels.unwrap_or_default(),
            quota_on_cpu_limits: bounds("limits.cpu"),
            quota_on_memory_limits: bounds("limits.memory"),
        }
    }
}
