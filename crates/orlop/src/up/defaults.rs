//! The objects that a new machine starts with. Existing objects belong to the user and are not changed.

use anyhow::Context as _;
use api::kubevirt::KubeVirt;
use api::volume_snapshot::{DEFAULT_CLASS, VolumeSnapshotClass};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Where the configuration is, as KubeVirt's users know it.
pub(super) const NAMESPACE: &str = "kubevirt";

/// Makes what is missing.
pub(crate) async fn install(client: &Client, provisioner: &str) -> anyhow::Result<()> {
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
            "allowVolumeExpansion": true,
        }),
    )
    .await?;
    create::<VolumeSnapshotClass>(
        Api::all(client.clone()),
        json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
            "metadata": { "name": "local", "annotations": { DEFAULT_CLASS: "true" } },
            "driver": provisioner, "deletionPolicy": "Delete",
        }),
    )
    .await?;
    // The only binding that this node has: whoever asks for none gets it, and a bridge is refused at once.
    let network = json!({ "defaultNetworkInterface": "masquerade", "permitBridgeInterfaceOnPodNetwork": false });
    create::<KubeVirt>(
        Api::namespaced(client.clone(), NAMESPACE),
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
            "metadata": { "name": "kubevirt", "namespace": NAMESPACE },
            "spec": { "configuration": { "network": network } },
        }),
    )
    .await?;
    thaw(&Api::namespaced(client.clone(), NAMESPACE)).await
}

/// Earlier releases wrote down what ran guests at their first start, and a machine that had changed since was not believed.
/// What nobody has touched since then is theirs, not a person's.
async fn thaw(api: &Api<KubeVirt>) -> anyhow::Result<()> {
    let Some(object) = api.get_opt("kubevirt").await.context("list the default objects")? else { return Ok(()) };
    let developer = &json!(object.spec)["configuration"]["developerConfiguration"];
    let is_applied = object.annotations().contains_key(crate::apply::LAST_APPLIED);
    if is_applied || object.metadata.generation != Some(1) || *developer != json!({ "useEmulation": true }) {
        return Ok(());
    }
    let patch = json!({
        "metadata": { "resourceVersion": object.metadata.resource_version },
        "spec": { "configuration": { "developerConfiguration": null } },
    });
    let patched = api.patch("kubevirt", &PatchParams::default(), &Patch::Merge(&patch)).await;
    patched.map(drop).context("remove useEmulation from the KubeVirt object")
}

async fn create<K>(api: Api<K>, object: Value) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let object: K = serde_json::from_value(object).context("read a default")?;
    // Looked for first: admission may refuse a second one for another reason than its name.
    if api.get_opt(&object.name_any()).await.context("list the default objects")?.is_some() {
        return Ok(());
    }
    match api.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        made => made.map(drop).with_context(|| format!("create {} {}", K::kind(&()), object.name_any())),
    }
}

#[cfg(test)]
mod tests {
    use apiserver::{ApiServer, Identity, Place};
    use manager::context::Chance;

    use super::*;

    #[tokio::test]
    async fn what_an_earlier_release_froze_is_thawed_and_what_a_person_wrote_stays() {
        let settings = virt_server::Settings::new(Chance::seeded(1)).unwrap();
        let server = virt_server::start(ApiServer::builder(Place::Memory), settings).await.unwrap();
        let client = Client::new(server.for_identity(Identity::admin()), "default");
        install(&client, "p").await.unwrap();
        let api: Api<KubeVirt> = Api::namespaced(client.clone(), NAMESPACE);
        let emulation = async || api.get("kubevirt").await.unwrap().spec.configuration.unwrap().developer_configuration;
        assert_eq!(emulation().await, None);

        // As an earlier release made it, and as a person changes it.
        let mut old = api.get("kubevirt").await.unwrap();
        api.delete("kubevirt", &kube::api::DeleteParams::default()).await.unwrap();
        old.metadata = kube::core::ObjectMeta { name: Some("kubevirt".into()), ..Default::default() };
        old.spec.configuration.get_or_insert_default().developer_configuration =
            Some(serde_json::from_value(json!({ "useEmulation": true })).unwrap());
        api.create(&PostParams::default(), &old).await.unwrap();
        install(&client, "p").await.unwrap();
        assert_eq!(emulation().await, None);
        let patch = json!({ "spec": { "configuration": { "developerConfiguration": { "useEmulation": true } } } });
        api.patch("kubevirt", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        install(&client, "p").await.unwrap();
        assert_eq!(emulation().await.unwrap().use_emulation, Some(true));
    }
}
