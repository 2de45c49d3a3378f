//! Claims: the volume behind one is a path of this machine.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Volume};
use kube::{Api, Client};

use super::{Prepared, VolumeError};
use crate::agent::container::fields::Facts;

/// The claim that a volume names, and whether it is read only. One of the pod's own is named after both.
pub(super) fn name(volume: &Volume, facts: &Facts<'_>) -> Option<(String, bool)> {
    if let Some(source) = &volume.persistent_volume_claim {
        return Some((source.claim_name.clone(), source.read_only == Some(true)));
    }
    let pod = facts.pod.metadata.name.as_deref().unwrap_or_default();
    volume.ephemeral.as_ref().map(|_| (format!("{pod}-{}", volume.name), false))
}

/// Looks up the path.
pub(super) async fn prepare(
    client: &Client,
    namespace: &str,
    name: &str,
    read_only: bool,
) -> Result<Prepared, VolumeError> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let missing = |kind: &'static str, name: &str| VolumeError::Missing { kind, name: name.to_owned() };
    let claim = claims.get_opt(name).await.map_err(VolumeError::Api)?;
    let claim = claim.ok_or_else(|| missing("persistentvolumeclaim", name))?;
    let uid = claim.metadata.uid;
    let bound = claim.status.and_then(|status| status.phase).as_deref() == Some("Bound");
    let volume = claim.spec.and_then(|spec| spec.volume_name).filter(|_| bound);
    let volume = volume.ok_or_else(|| VolumeError::NotBound(name.to_owned()))?;
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let found = volumes.get_opt(&volume).await.map_err(VolumeError::Api)?;
    let spec = found.and_then(|found| found.spec).ok_or_else(|| missing("persistentvolume", &volume))?;
    // Whoever may write claims may name any volume; whoever binds says in the volume whose it is.
    if spec.claim_ref.as_ref().is_none_or(|owner| owner.uid.is_none() || owner.uid != uid) {
        return Err(VolumeError::NotItsOwn { volume, claim: name.to_owned() });
    }
    let local = spec.local.map(|local| local.path).or_else(|| spec.host_path.map(|host| host.path));
    let unsupported = || VolumeError::Unsupported(format!("persistentvolume {volume:?}: a source that is not a path"));
    let path = PathBuf::from(local.ok_or_else(unsupported)?);
    std::fs::metadata(&path).map_err(VolumeError::io(&path))?;
    Ok(Prepared { path, read_only })
}
