//! Claims that come and are bound late, and data volumes that fill slowly, where there is such a kind.

use api::data_volume::{DataVolume, DataVolumePhase};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::super::{read, told, tolerate};
use super::User;
use crate::kinds;

/// Claims that guests may name.
pub(super) const CLAIMS: [&str; 2] = ["data-0", "data-1"];

/// The data volume of a VM or an instance.
pub(super) fn data_volume_of(name: &str) -> String {
    format!("{name}-disk")
}

/// What a VM makes its data volume from.
pub(super) fn template(name: &str) -> Value {
    let storage = json!({ "resources": { "requests": { "storage": "1Gi" } } });
    json!({ "metadata": { "name": data_volume_of(name) }, "spec": { "source": { "blank": {} }, "storage": storage } })
}

impl User {
    pub(super) async fn tend_volumes(&mut self, namespace: &str) -> Result<String, kube::Error> {
        let claim = self.chance.one_of(&CLAIMS).copied().unwrap_or_default();
        self.let_claims_go(namespace).await?;
        match self.chance.below(6) {
            0 => {
                let done = self.define_data_volumes().await?;
                Ok(format!("make the kind of data volumes: {done}"))
            }
            1 => {
                let made = self.make_claim(namespace, claim, None).await?;
                Ok(format!("make claim {namespace}/{claim}: {made}"))
            }
            2 => {
                let bound = self.bind(namespace, claim).await?;
                Ok(format!("bind claim {namespace}/{claim}: {bound}"))
            }
            _ => self.fill(namespace).await,
        }
    }

    pub(super) async fn define_data_volumes(&self) -> Result<&'static str, kube::Error> {
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let made = tolerate(api.create(&PostParams::default(), &read(kinds::data_volumes())?).await)?;
        Ok(told(&made))
    }

    fn claims(&self, namespace: &str) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn make_claim(
        &self,
        namespace: &str,
        name: &str,
        of: Option<&DataVolume>,
    ) -> Result<&'static str, kube::Error> {
        let owner = of.map(|volume| {
            json!([{
                "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "controller": true,
                "name": volume.name_any(), "uid": volume.uid(),
            }])
        });
        let claim = json!({
            "metadata": { "name": name, "ownerReferences": owner },
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
        });
        let made = tolerate(self.claims(namespace).create(&PostParams::default(), &read(claim)?).await)?;
        Ok(told(&made))
    }

    async fn bind(&self, namespace: &str, name: &str) -> Result<&'static str, kube::Error> {
        let bound = json!({ "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } } });
        let written = self.claims(namespace).patch_status(name, &PatchParams::default(), &Patch::Merge(&bound)).await;
        Ok(told(&tolerate(written)?))
    }

    /// Plays the protection of claims, which ends when no pod uses them; here nothing can be lost.
    async fn let_claims_go(&self, namespace: &str) -> Result<(), kube::Error> {
        let api = self.claims(namespace);
        let claims = api.list(&ListParams::default()).await?;
        for claim in claims.iter().filter(|claim| claim.metadata.deletion_timestamp.is_some()) {
            let others = claim.finalizers().iter().filter(|one| *one != "kubernetes.io/pvc-protection");
            let patch = json!({ "metadata": { "uid": claim.uid(), "finalizers": others.collect::<Vec<_>>() } });
            tolerate(api.patch(&claim.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await)?;
        }
        Ok(())
    }

    async fn data_volumes(&self, namespace: &str) -> Result<Vec<DataVolume>, kube::Error> {
        let api: Api<DataVolume> = Api::namespaced(self.client.clone(), namespace);
        Ok(tolerate(api.list(&ListParams::default()).await)?.map(|list| list.items).unwrap_or_default())
    }

    async fn set_phase(&self, namespace: &str, volume: &DataVolume, phase: &str) -> Result<(), kube::Error> {
        let api: Api<DataVolume> = Api::namespaced(self.client.clone(), namespace);
        let name = volume.name_any();
        let patch = json!({ "metadata": { "uid": volume.uid() }, "status": { "phase": phase, "claimName": name } });
        tolerate(api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await).map(drop)
    }

    /// Plays the importer: a step for one data volume.
    async fn fill(&mut self, namespace: &str) -> Result<String, kube::Error> {
        let open = self.data_volumes(namespace).await?;
        let open: Vec<_> = open.iter().filter(|volume| !is_filled(volume)).collect();
        let Some(volume) = self.chance.one_of(&open) else { return Ok("fill nothing".to_owned()) };
        let phases = ["ImportInProgress", "WaitForFirstConsumer", "Succeeded"];
        let phase = self.chance.one_of(&phases).copied().unwrap_or_default();
        let name = volume.name_any();
        self.make_claim(namespace, &name, Some(volume)).await?;
        if phase == "Succeeded" {
            self.bind(namespace, &name).await?;
        }
        self.set_phase(namespace, volume, phase).await?;
        Ok(format!("the data volume {namespace}/{name} is {phase}"))
    }

    /// All that somebody may wait for is there.
    pub(super) async fn complete_volumes(&self, namespace: &str) -> Result<Option<String>, kube::Error> {
        let volumes = self.data_volumes(namespace).await?;
        for volume in volumes.iter().filter(|volume| !is_filled(volume)) {
            self.set_phase(namespace, volume, "Succeeded").await?;
        }
        self.let_claims_go(namespace).await?;
        let known = self.claims(namespace).list(&ListParams::default()).await?;
        let is_bound = |name: &str| {
            let claim = known.iter().find(|claim| claim.name_any() == name);
            claim.and_then(|claim| claim.status.as_ref()?.phase.as_deref()) == Some("Bound")
        };
        let of_volumes = volumes.iter().map(|volume| (volume.name_any(), Some(volume)));
        let wanted = CLAIMS.iter().map(|name| ((*name).to_owned(), None)).chain(of_volumes);
        let mut done = None;
        for (name, volume) in wanted.filter(|(name, _)| !is_bound(name)) {
            self.make_claim(namespace, &name, volume).await?;
            if self.bind(namespace, &name).await? == "done" {
                done = Some(format!("the claim {namespace}/{name} is bound"));
            }
        }
        Ok(done)
    }
}

fn is_filled(volume: &DataVolume) -> bool {
    volume.status.as_ref().and_then(|status| status.phase.as_ref()) == Some(&DataVolumePhase::Succeeded)
}
