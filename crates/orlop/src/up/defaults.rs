//! Objects that a machine of its own begins with. What is there already is the user's.

use anyhow::Context as _;
use api::kubevirt::KubeVirt;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::PostParams;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Where the configuration is, as KubeVirt's users know it.
const NAMESPACE: &str = "kubevirt";

/// Makes what is missing.
pub(crate) async fn install(client: &Client, emulated: bool, provisioner: &str) -> anyhow::Result<()> {
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    create::<Namespace>(Api::all(client.clone()), namespace).await?;
    // Its controller makes one, too; whoever is faster than that is not refused.
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default" } });
    create::<ServiceAccount>(Api::namespaced(client.clone(), "default"), account).await?;
    create::<StorageClass>(
        Api::all(client.clone()),
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {
                "name": "local",
                "annotations": { "storageclass.kubernetes.io/is-default-class": "true" },
            },
            "provisioner": provisioner, "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
        }),
    )
    .await?;
    let developer = if emulated { json!({ "useEmulation": true }) } else { json!({}) };
    // The only binding that this node has: whoever asks for none gets it, and a bridge is refused at once.
    let network = json!({ "defaultNetworkInterface": "masquerade", "permitBridgeInterfaceOnPodNetwork": false });
    create::<KubeVirt>(
        Api::namespaced(client.clone(), NAMESPACE),
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
            "metadata": { "name": "kubevirt", "namespace": NAMESPACE },
            "spec": { "configuration": { "developerConfiguration": developer, "network": network } },
        }),
    )
    .await
}

async fn create<K>(api: Api<K>, object: Value) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let object: K = serde_json::from_value(object).context("read a default")?;
    // Looked for first: admission may refuse a second one for another reason than its name.
    if api.get_opt(&object.name_any()).await.context("look for the defaults")?.is_some() {
        return Ok(());
    }
    match api.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        made => made.map(drop).with_context(|| format!("create {} {}", K::kind(&()), object.name_any())),
    }
}
