//! Snapshots: what a cluster's snapshot controller and a CSI driver do together.

use std::sync::Arc;
use std::time::SystemTime;

use api::volume_snapshot::{
    DEFAULT_CLASS, VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent, VolumeSnapshotContentStatus,
};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use manager::cache::Key;
use manager::events::Kind;
use manager::worker::Next;
use manager::writing::{create, delete, guarded, unless_gone};
use serde_json::json;
use storage::volumes::{Name, Stored, VolumeError};

use super::decide::bytes;
use super::decide::origin::{self, Named};
use super::decide::snapshot::{
    self as decide, AroundSnapshot, CONTENT_PROTECTION, ContentPlan, SNAPSHOT_PROTECTION, SnapshotPlan, content_name,
};
use super::{NAME, ORIGINS, PLACE_AGAIN, ProvisionError, Provisioner, blocking, patch, place};

/// The snapshot that a content is bound to.
pub(super) fn owner(content: &VolumeSnapshotContent) -> Option<Key> {
    let owner = &content.spec.volume_snapshot_ref;
    Some(Key { namespace: owner.namespace.clone()?, name: owner.name.clone()? })
}

/// Whether a content keeps the bytes of this name, or may be about to.
pub(super) fn keeps(content: &VolumeSnapshotContent, handle: &str) -> bool {
    let told = content.status.as_ref().and_then(|status| status.snapshot_handle.as_deref());
    let own = content.spec.volume_snapshot_ref.uid.as_ref().map(|uid| format!("snapshot-{uid}"));
    [told, own.as_deref(), content.spec.source.snapshot_handle.as_deref()].contains(&Some(handle))
}

/// Whether a content says that it has the bytes of this name.
pub(super) fn tells(content: &VolumeSnapshotContent, handle: &str) -> bool {
    let status = content.status.as_ref().filter(|status| status.ready_to_use == Some(true));
    status.and_then(|status| status.snapshot_handle.as_deref()) == Some(handle)
}

impl Provisioner {
    /// The content that a snapshot names, or that was made for it.
    pub(super) fn content_of(&self, snapshot: &VolumeSnapshot) -> Option<Arc<VolumeSnapshotContent>> {
        self.contents.get(&Key::cluster(content_name(snapshot)))
    }

    fn snapshot_class(&self, name: Option<&str>) -> Option<Arc<VolumeSnapshotClass>> {
        let is_default = |class: &VolumeSnapshotClass| {
            class.driver == NAME && class.annotations().get(DEFAULT_CLASS).is_some_and(|is| is == "true")
        };
        match name {
            Some(name) => self.snapshot_classes.get(&Key::cluster(name)),
            None => self.snapshot_classes.all().into_iter().find(|class| is_default(class)),
        }
    }

    pub(super) async fn look_at_snapshot(&self, key: &Key) -> Result<Next, ProvisionError> {
        let Some(snapshot) = self.snapshots.get(key) else { return Ok(Next::Wait) };
        let class = self.snapshot_class(snapshot.spec.volume_snapshot_class_name.as_deref());
        let content = self.content_of(&snapshot);
        let source = snapshot.spec.source.persistent_volume_claim_name.clone();
        let claim = source.and_then(|name| self.claims.get(&Key { namespace: key.namespace.clone(), name }));
        let volume = claim.as_ref().and_then(|claim| self.own_volume_of(claim));
        let copies = self.claims.find(ORIGINS, &format!("snapshot/{}/{}", key.namespace, key.name));
        let around = AroundSnapshot {
            class: class.as_deref(),
            content: content.as_deref(),
            claim: claim.as_deref(),
            volume: volume.as_deref(),
            restores: copies.iter().any(|claim| {
                let waits = claim.metadata.deletion_timestamp.is_none() && !super::decide::is_bound(claim);
                waits && matches!(origin::named(claim), Some(Named::Snapshot(_)))
            }),
        };
        let api: Api<VolumeSnapshot> = Api::namespaced(self.client.clone(), &key.namespace);
        match decide::snapshot(&snapshot, around, (self.now)()) {
            SnapshotPlan::Nothing => {}
            SnapshotPlan::Protect { class } => {
                let missing = SNAPSHOT_PROTECTION.iter().map(|one| (*one).to_owned());
                let mut finalizers = snapshot.finalizers().to_vec();
                finalizers.extend(missing.filter(|one| !snapshot.finalizers().contains(one)));
                let mut change = json!({ "metadata": { "finalizers": finalizers } });
                if let Some(class) = class {
                    change["spec"] = json!({ "volumeSnapshotClassName": class });
                }
                unless_gone(patch(&api, &key.name, &guarded(&snapshot.metadata, change)).await)?;
            }
            SnapshotPlan::Content { volume } => {
                let Some(class) = class else { return Ok(Next::Wait) };
                self.make_content(&snapshot, &class, &volume).await?;
            }
            SnapshotPlan::Bind => {
                let Some(content) = content else { return Ok(Next::Wait) };
                let owner = json!({ "spec": { "volumeSnapshotRef": { "uid": snapshot.metadata.uid } } });
                let contents: Api<VolumeSnapshotContent> = Api::all(self.client.clone());
                unless_gone(patch(&contents, &content.name_any(), &guarded(&content.metadata, owner)).await)?;
            }
            SnapshotPlan::Status(status) => {
                let failure = status.error.as_ref().and_then(|error| error.message.clone());
                let mut told = json!({ "error": null });
                json_merge(&mut told, serde_json::to_value(&status).map_err(kube::Error::SerdeError)?);
                let change = Patch::Merge(guarded(&snapshot.metadata, json!({ "status": told })));
                unless_gone(api.patch_status(&key.name, &PatchParams::default(), &change).await)?;
                if let Some(failure) = failure {
                    self.recorder.record(&*snapshot, Kind::Warning, "SnapshotCreationFailed", failure);
                }
            }
            SnapshotPlan::DeleteContent => {
                let contents: Api<VolumeSnapshotContent> = Api::all(self.client.clone());
                let uid = content.as_ref().and_then(|content| content.uid());
                delete(&contents, &content_name(&snapshot), uid.as_deref(), None).await?;
            }
            SnapshotPlan::Release => {
                let mut kept = snapshot.finalizers().to_vec();
                kept.retain(|one| !SNAPSHOT_PROTECTION.contains(&one.as_str()));
                let change = guarded(&snapshot.metadata, json!({ "metadata": { "finalizers": kept } }));
                unless_gone(patch(&api, &key.name, &change).await)?;
            }
        }
        Ok(Next::Wait)
    }

    async fn make_content(
        &self,
        snapshot: &VolumeSnapshot,
        class: &VolumeSnapshotClass,
        volume: &str,
    ) -> Result<(), ProvisionError> {
        let content = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
            "metadata": { "name": content_name(snapshot), "finalizers": [CONTENT_PROTECTION] },
            "spec": {
                "deletionPolicy": class.deletion_policy, "driver": NAME,
                "source": { "volumeHandle": volume },
                "sourceVolumeMode": "Filesystem",
                "volumeSnapshotClassName": class.metadata.name,
                "volumeSnapshotRef": {
                    "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
                    "name": snapshot.metadata.name, "namespace": snapshot.metadata.namespace,
                    "uid": snapshot.metadata.uid, "resourceVersion": snapshot.metadata.resource_version,
                },
            },
        });
        let content = serde_json::from_value(content).map_err(kube::Error::SerdeError)?;
        Ok(create(&Api::<VolumeSnapshotContent>::all(self.client.clone()), &content).await?)
    }

    pub(super) async fn look_at_content(&self, key: &Key) -> Result<Next, ProvisionError> {
        let Some(content) = self.contents.get(key) else { return self.sweep_unless_busy().await };
        let snapshot = owner(&content).and_then(|key| self.snapshots.get(&key));
        // Another of its name is not the one that it is bound to.
        let snapshot = snapshot.filter(|found| {
            let uid = &content.spec.volume_snapshot_ref.uid;
            uid.is_none() || *uid == found.metadata.uid
        });
        let api: Api<VolumeSnapshotContent> = Api::all(self.client.clone());
        match decide::content(&content, snapshot.as_deref()) {
            ContentPlan::Nothing => {}
            ContentPlan::Protect => {
                let mut finalizers = content.finalizers().to_vec();
                finalizers.push(CONTENT_PROTECTION.to_owned());
                let change = guarded(&content.metadata, json!({ "metadata": { "finalizers": finalizers } }));
                unless_gone(patch(&api, &key.name, &change).await)?;
            }
            ContentPlan::Take { volume, handle } => {
                let place = place(self.storage.copies(), &self.snapping);
                let Ok(_place) = place else { return Ok(Next::After(PLACE_AGAIN)) };
                let _making = self.making.read().await;
                let taken = self.take(&volume, &handle).await;
                self.tell(&api, &content, &handle, taken).await?;
                let stored = Stored::Snapshot(Name::try_from(handle)?);
                blocking(&self.storage, move |storage| storage.settle(&stored)).await?;
            }
            ContentPlan::Find { handle } => {
                let stored = Stored::Snapshot(Name::try_from(handle.as_str())?);
                let found =
                    blocking(&self.storage, move |storage| storage.found(&stored)?.ok_or(VolumeError::Missing(stored)));
                let found = found.await.map(|made| (made, None));
                self.tell(&api, &content, &handle, found).await?;
            }
            ContentPlan::Remove { handle } => {
                if let Some(handle) = handle {
                    let stored = Stored::Snapshot(Name::try_from(handle)?);
                    blocking(&self.storage, move |storage| storage.delete(&stored)).await?;
                }
                self.release(&api, &content).await?;
            }
            ContentPlan::Release => {
                // The bytes stay, whoever died before that was noted.
                let told = content.status.as_ref().and_then(|status| status.snapshot_handle.clone());
                if let Some(handle) = told {
                    let stored = Stored::Snapshot(Name::try_from(handle)?);
                    blocking(&self.storage, move |storage| storage.settle(&stored)).await?;
                }
                self.release(&api, &content).await?;
            }
        }
        Ok(Next::Wait)
    }

    /// Copies a volume, and says when that was and how large the volume is.
    async fn take(&self, volume: &str, handle: &str) -> Result<(SystemTime, Option<u64>), ProvisionError> {
        let (of, name) = (Name::try_from(volume)?, Name::try_from(handle)?);
        let found = self.volumes.get(&Key::cluster(volume));
        let size = found.and_then(|found| found.spec.as_ref()?.capacity.as_ref()?.get("storage").map(bytes));
        let made = blocking(&self.storage, move |storage| storage.snapshot(&name, &of)).await?;
        Ok((made, size))
    }

    /// Tells in a content what was made of it. A failure is told as well, and tried again.
    async fn tell(
        &self,
        api: &Api<VolumeSnapshotContent>,
        content: &VolumeSnapshotContent,
        handle: &str,
        made: Result<(SystemTime, Option<u64>), ProvisionError>,
    ) -> Result<(), ProvisionError> {
        let known = content.status.clone().unwrap_or_default();
        let status = match &made {
            Ok((time, size)) => VolumeSnapshotContentStatus {
                creation_time: decide::nanoseconds(*time),
                ready_to_use: Some(true),
                restore_size: size.and_then(|size| i64::try_from(size).ok()).or(known.restore_size),
                snapshot_handle: Some(handle.to_owned()),
                error: None,
            },
            Err(error) => {
                let message = manager::errors::chain(error);
                // The same failure again is not news, and a write would look like a change that is worth another attempt at once.
                let same = known.error.clone().filter(|told| told.message.as_ref() == Some(&message));
                let error = same.unwrap_or_else(|| decide::error(message, (self.now)()));
                VolumeSnapshotContentStatus { ready_to_use: Some(false), error: Some(error), ..known.clone() }
            }
        };
        if content.status.as_ref() == Some(&status) {
            return made.map(drop);
        }
        let mut told = json!({ "error": null });
        json_merge(&mut told, serde_json::to_value(&status).map_err(kube::Error::SerdeError)?);
        let change = Patch::Merge(json!({ "metadata": { "uid": content.metadata.uid }, "status": told }));
        unless_gone(api.patch_status(&content.name_any(), &PatchParams::default(), &change).await)?;
        made.map(drop)
    }

    async fn release(
        &self,
        api: &Api<VolumeSnapshotContent>,
        content: &VolumeSnapshotContent,
    ) -> Result<(), ProvisionError> {
        let kept: Vec<&String> = content.finalizers().iter().filter(|one| *one != CONTENT_PROTECTION).collect();
        let change = guarded(&content.metadata, json!({ "metadata": { "finalizers": kept } }));
        Ok(unless_gone(patch(api, &content.name_any(), &change).await)?)
    }
}

/// Puts the fields of an object into another.
fn json_merge(into: &mut serde_json::Value, from: serde_json::Value) {
    if let (Some(into), serde_json::Value::Object(from)) = (into.as_object_mut(), from) {
        into.extend(from);
    }
}
