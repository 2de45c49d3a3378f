//! Claims: they are given a volume, with the bytes that they ask for, and are bound to it.

use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use manager::cache::Key;
use manager::events::Kind;
use manager::worker::Next;
use manager::writing::{create, unless_gone};
use serde_json::{Value, json};
use storage::volumes::{Filling, Name, Stored, Volumes};

use super::decide::origin::{self, Named, Origin};
use super::decide::{self, Around, CLAIM_PROTECTION, ClaimPlan, requested};
use super::{
    CLAIMS, MACHINE, NAME, PLACE_AGAIN, PROVISIONED_BY, ProvisionError, Provisioner, blocking, bound, has_ended,
    is_ours, patch, place, reference, room, seen, volume_name,
};

/// Marks the class of claims that name none.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// The mode of classes that make volumes only for pods that use them.
const LATE: &str = "WaitForFirstConsumer";

impl Provisioner {
    pub(super) async fn look_at_claim(&self, key: &Key) -> Result<Next, ProvisionError> {
        let Some(claim) = self.claims.get(key) else { return self.sweep_unless_busy().await };
        let volume = self.volumes.get(&Key::cluster(volume_name(&claim)));
        let class = self.class_of(&claim);
        let pods = self.pods.find(CLAIMS, &format!("{}/{}", key.namespace, key.name));
        let around = Around {
            ours: class.as_ref().is_some_and(|class| class.provisioner == NAME),
            volume: volume.as_deref(),
            used: pods.iter().any(|pod| !has_ended(pod)),
            late: class.as_ref().is_some_and(|class| class.volume_binding_mode.as_deref() == Some(LATE)),
            grows: class.as_ref().is_some_and(|class| class.allow_volume_expansion == Some(true)),
            origin: &self.origin(&claim),
        };
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        match decide::claim(&claim, around) {
            ClaimPlan::Nothing => {}
            ClaimPlan::Refuse(why) => self.recorder.record(&*claim, Kind::Warning, "ProvisioningFailed", why),
            ClaimPlan::Waits(why) => self.recorder.record(&*claim, Kind::Normal, "Waiting", why),
            ClaimPlan::Provision(origin) => {
                if let Some(refused) = self.make_room(&claim).await? {
                    return Ok(refused);
                }
                let copies = matches!(origin, Origin::Volume(_) | Origin::Snapshot(_));
                let place = copies.then(|| place(self.storage.copies(), &self.cloning)).transpose();
                let Ok(_place) = place else { return Ok(Next::After(PLACE_AGAIN)) };
                let _making = self.making.read().await;
                if let Err(error) = self.provision(&claim, class.as_deref(), origin).await {
                    let why = manager::errors::chain(&error);
                    self.recorder.record(&*claim, Kind::Warning, "ProvisioningFailed", why);
                    self.promises.forget(&volume_name(&claim));
                    return Err(error);
                }
            }
            ClaimPlan::Grow { volume, size } => match self.make_room(&claim).await? {
                Some(refused) => return Ok(refused),
                None => self.grow(&claim, &volume, size).await?,
            },
            ClaimPlan::Bind { volume } => self.bind(&claim, &volume).await?,
            ClaimPlan::Release => {
                let kept: Vec<&String> = claim.finalizers().iter().filter(|one| *one != CLAIM_PROTECTION).collect();
                unless_gone(
                    patch(&api, &key.name, &json!({ "metadata": seen(&*claim, json!({ "finalizers": kept })) })).await,
                )?;
            }
        }
        Ok(Next::Wait)
    }

    /// Makes the bytes, then the object that tells of them; then nothing is unfinished.
    async fn provision(
        &self,
        claim: &PersistentVolumeClaim,
        class: Option<&StorageClass>,
        origin: Origin,
    ) -> Result<(), ProvisionError> {
        let (name, size) = (Name::try_from(volume_name(claim))?, requested(claim));
        let from = match origin {
            Origin::Volume(of) => Some(Stored::Volume(Name::try_from(of)?)),
            Origin::Snapshot(of) => Some(Stored::Snapshot(Name::try_from(of)?)),
            Origin::Empty | Origin::Waits(_) | Origin::Refused(_) => None,
        };
        let (made, is_blank) = (name.clone(), decide::is_blank(claim));
        let make = move |storage: &dyn Volumes| {
            let filling = match &from {
                Some(from) => Filling::Copy(from),
                None if is_blank => Filling::Disk,
                None => Filling::Nothing,
            };
            storage.create(&made, filling, size)
        };
        blocking(&self.storage, make).await?;
        let volume = self.object(claim, class, &self.storage.path(&name));
        let volume = serde_json::from_value(volume).map_err(kube::Error::SerdeError)?;
        create(&Api::<PersistentVolume>::all(self.client.clone()), &volume).await?;
        blocking(&self.storage, move |storage| storage.settle(&Stored::Volume(name))).await
    }

    /// The disk first, then those who tell of it.
    async fn grow(&self, claim: &PersistentVolumeClaim, volume: &str, size: u64) -> Result<(), ProvisionError> {
        let name = Name::try_from(volume)?;
        blocking(&self.storage, move |storage| storage.grow(&name, size)).await?;
        let storage = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref()?.get("storage"));
        let capacity = json!({ "capacity": { "storage": storage } });
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        unless_gone(patch(&volumes, volume, &json!({ "spec": capacity })).await)?;
        let claims: Api<PersistentVolumeClaim> =
            Api::namespaced(self.client.clone(), &claim.namespace().unwrap_or_default());
        let status = Patch::Merge(json!({ "status": room::cleared(claim, capacity) }));
        unless_gone(claims.patch_status(&claim.name_any(), &PatchParams::default(), &status).await)?;
        self.recorder.record(claim, Kind::Normal, "FileSystemResizeSuccessful", "the volume has grown");
        Ok(())
    }

    async fn bind(&self, claim: &PersistentVolumeClaim, volume: &str) -> Result<(), ProvisionError> {
        let (name, namespace) = (claim.name_any(), claim.namespace().unwrap_or_default());
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &namespace);
        let Some(found) = self.volumes.get(&Key::cluster(volume)) else { return Ok(()) };
        // The volume first: what it is bound to is nobody else's.
        if found.spec.as_ref().is_none_or(|spec| spec.claim_ref.as_ref().is_none_or(|owner| owner.uid.is_none())) {
            let owner = json!({ "spec": { "claimRef": reference(claim) }, "metadata": seen(&*found, json!({})) });
            unless_gone(patch(&volumes, volume, &owner).await)?;
        }
        if claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()) != Some(volume) {
            let mut spec = json!({ "volumeName": volume });
            // A claim that has named no class has the default one. Whoever copies it later must know which that was.
            let class = found.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref());
            if claim.spec.as_ref().is_none_or(|spec| spec.storage_class_name.is_none()) {
                spec["storageClassName"] = json!(class);
            }
            let annotations = json!({ "annotations": { "pv.kubernetes.io/bind-completed": "yes" } });
            unless_gone(patch(&claims, &name, &json!({ "metadata": annotations, "spec": spec })).await)?;
        }
        let modes = found.spec.as_ref().and_then(|spec| spec.access_modes.clone());
        let capacity = found.spec.as_ref().and_then(|spec| spec.capacity.clone());
        let status = json!({ "phase": "Bound", "accessModes": modes, "capacity": capacity });
        let status = json!({ "status": room::cleared(claim, status) });
        let written = claims.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await;
        Ok(unless_gone(written)?)
    }

    /// Where a claim's bytes come from.
    fn origin(&self, claim: &PersistentVolumeClaim) -> Origin {
        let namespace = claim.namespace().unwrap_or_default();
        match origin::named(claim) {
            None => Origin::Empty,
            Some(Named::Unsupported(why)) => Origin::Refused(why),
            Some(Named::Snapshot(name)) => {
                let snapshot = self.snapshots.get(&Key { namespace, name: name.clone() });
                let content = snapshot.as_ref().and_then(|one| self.content_of(one));
                origin::of_snapshot(claim, &name, snapshot.as_deref(), content.as_deref())
            }
            Some(Named::Claim(name)) => {
                let source = self.claims.get(&Key { namespace, name: name.clone() });
                let volume = source.as_ref().and_then(|source| self.own_volume_of(source));
                origin::of_claim(claim, &name, source.as_deref(), volume.as_deref())
            }
        }
    }

    /// The volume that a claim is bound to, if it is ours.
    pub(super) fn own_volume_of(&self, claim: &PersistentVolumeClaim) -> Option<Arc<PersistentVolume>> {
        let volume = self.volumes.get(&Key::cluster(volume_name(claim)))?;
        let is_its_own = bound(&volume, Some(claim)).is_some() && is_ours(&volume);
        is_its_own.then_some(volume)
    }

    /// The class that a claim asks for, or the default.
    fn class_of(&self, claim: &PersistentVolumeClaim) -> Option<Arc<StorageClass>> {
        match claim.spec.as_ref()?.storage_class_name.as_deref() {
            Some(name) => self.classes.get(&Key::cluster(name)),
            None => self
                .classes
                .all()
                .into_iter()
                .find(|class| class.annotations().get(DEFAULT_CLASS).is_some_and(|is| is == "true")),
        }
    }

    fn object(&self, claim: &PersistentVolumeClaim, class: Option<&StorageClass>, path: &Path) -> Value {
        let spec = claim.spec.as_ref();
        let storage = spec.and_then(|spec| spec.resources.as_ref()?.requests.as_ref()?.get("storage").cloned());
        json!({
            "metadata": { "name": volume_name(claim), "annotations": { PROVISIONED_BY: NAME } },
            "spec": {
                "capacity": { "storage": storage },
                "accessModes": spec.and_then(|spec| spec.access_modes.clone()),
                "volumeMode": "Filesystem",
                "persistentVolumeReclaimPolicy": class.and_then(|class| class.reclaim_policy.as_deref()).unwrap_or("Delete"),
                "storageClassName": class.map(kube::ResourceExt::name_any),
                "claimRef": reference(claim),
                "local": { "path": path },
                "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                    { "key": MACHINE, "operator": "In", "values": [self.machine] },
                ] }] } },
            },
        })
    }
}
