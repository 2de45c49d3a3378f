//! What was made, and no object tells of or asks for: this process was killed in between, or the API server refused the object.

use api::volume_snapshot::VolumeSnapshotContent;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use manager::worker::Next;
use storage::volumes::Stored;

use super::{LOOK_AGAIN, ProvisionError, Provisioner, blocking, snapshots, volume_name};

impl Provisioner {
    /// Removes what was made and that no object asks for any more; the objects are asked for, not their caches, as data does not
    /// come back.
    pub(super) async fn sweep(&self) -> Result<(), ProvisionError> {
        let unfinished = blocking(&self.storage, |storage| storage.unfinished()).await?;
        if unfinished.is_empty() {
            return Ok(());
        }
        let claims = Api::<PersistentVolumeClaim>::all(self.client.clone()).list(&ListParams::default()).await?;
        let volumes = Api::<PersistentVolume>::all(self.client.clone()).list(&ListParams::default()).await?;
        let contents = Api::<VolumeSnapshotContent>::all(self.client.clone()).list(&ListParams::default()).await?;
        for stored in unfinished {
            let (is_told, is_wanted) = match &stored {
                Stored::Volume(name) => (
                    volumes.items.iter().any(|volume| volume.name_any() == name.as_str()),
                    claims.items.iter().any(|claim| volume_name(claim) == name.as_str()),
                ),
                Stored::Snapshot(name) => (
                    contents.items.iter().any(|content| snapshots::tells(content, name.as_str())),
                    contents.items.iter().any(|content| snapshots::keeps(content, name.as_str())),
                ),
            };
            if is_told {
                // Only the note was missing. From now on the object decides, which may say that the bytes stay without it.
                blocking(&self.storage, move |storage| storage.settle(&stored)).await?;
            } else if !is_wanted {
                tracing::info!(stored = stored.to_string(), "removing a copy that nobody asks for any more");
                blocking(&self.storage, move |storage| storage.delete(&stored)).await?;
            }
        }
        Ok(())
    }

    /// The object that this was about is gone, perhaps before anything told of the bytes that were made for it.
    pub(super) async fn sweep_unless_busy(&self) -> Result<Next, ProvisionError> {
        // Whoever is making something may be about to tell of it.
        let Ok(_nobody_makes) = self.making.try_write() else { return Ok(Next::After(LOOK_AGAIN)) };
        self.sweep().await?;
        Ok(Next::Wait)
    }
}
