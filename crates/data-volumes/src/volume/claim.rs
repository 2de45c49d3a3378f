//! The claim of a DataVolume: a pure function of it.

use std::collections::BTreeMap;

use api::data_volume::{DataVolume, StorageSpec, VolumeMode};
use api::owner::controller_reference;
use api::volume_snapshot::VolumeSnapshot;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, TypedLocalObjectReference, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Observed;
use crate::names::{CONTENT_TYPE, POD_PHASE, POPULATED, POPULATED_FOR};
use crate::overhead::{Overhead, bytes};
use crate::source::Origin;

const STORAGE: &str = "storage";

/// What a claim has where its DataVolume says nothing.
#[derive(Clone, Debug, Default)]
pub struct Gaps<'a> {
    /// The class of claims that name none.
    pub class: Option<&'a str>,
    /// Whether claims of its class are bound when a pod uses them.
    pub binds_late: bool,
    /// How claims of its class are used; once and as a file system if nobody says.
    pub access_modes: Option<&'a [String]>,
    /// Block or Filesystem.
    pub volume_mode: Option<&'a str>,
    /// What its file system needs.
    pub(crate) overhead: Overhead,
}

/// Why there is no claim.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub(super) struct ClaimError {
    field: &'static str,
    problem: String,
}

/// The claim, empty or to be copied.
pub(super) fn render(seen: &Observed<'_>, origin: &Origin) -> Result<PersistentVolumeClaim, ClaimError> {
    let volume = seen.volume;
    let mut spec = match (&volume.spec.pvc, &volume.spec.storage) {
        (Some(claim), _) => claim.clone(),
        (None, Some(storage)) => from_storage(storage, seen, origin)?,
        (None, None) => PersistentVolumeClaimSpec::default(),
    };
    if size(&spec).is_none() {
        let problem = "has no storage size; set requests.storage".to_owned();
        return Err(ClaimError { field: "spec.storage.resources", problem });
    }
    if origin.is_imported() && spec.volume_mode.as_deref() == Some("Block") {
        let problem = "Block is not supported for imports; use Filesystem".to_owned();
        return Err(ClaimError { field: "spec.storage.volumeMode", problem });
    }
    let reference = |group: Option<&str>, kind: &str, name: &str| TypedLocalObjectReference {
        api_group: group.map(str::to_owned),
        kind: kind.to_owned(),
        name: name.to_owned(),
    };
    match origin {
        Origin::Copy { name, .. } => spec.data_source = Some(reference(None, "PersistentVolumeClaim", name)),
        Origin::Snapshot { name, .. } => {
            spec.data_source = Some(reference(Some("snapshot.storage.k8s.io"), "VolumeSnapshot", name));
        }
        Origin::Blank | Origin::Claim | Origin::Web(_) | Origin::Registry(_) => {}
    }
    let mut annotations = volume.metadata.annotations.clone().unwrap_or_default();
    annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    // It is no other claim's data that it has.
    annotations.remove(POPULATED_FOR);
    annotations.insert(CONTENT_TYPE.to_owned(), "kubevirt".to_owned());
    // An empty disk is complete before it is there; everything else is when somebody says so.
    let populated = *origin == Origin::Blank;
    annotations.insert(POPULATED.to_owned(), populated.to_string());
    if populated {
        annotations.insert(POD_PHASE.to_owned(), "Succeeded".to_owned());
    }
    let mut labels = volume.metadata.labels.clone().unwrap_or_default();
    labels.insert("app".to_owned(), "containerized-data-importer".to_owned());
    let metadata = ObjectMeta {
        name: volume.metadata.name.clone(),
        namespace: volume.metadata.namespace.clone(),
        annotations: Some(annotations),
        labels: Some(labels),
        owner_references: controller_reference(volume).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    };
    Ok(PersistentVolumeClaim { metadata, spec: Some(spec), status: None })
}

/// A claim whose gaps are filled: class, modes, and the size that a disk of the size asked for needs.
fn from_storage(
    storage: &StorageSpec,
    seen: &Observed<'_>,
    origin: &Origin,
) -> Result<PersistentVolumeClaimSpec, ClaimError> {
    let gaps = &seen.gaps;
    let volume_mode = match &storage.volume_mode {
        None | Some(VolumeMode::FromStorageProfile) => gaps.volume_mode.unwrap_or("Filesystem").to_owned(),
        Some(mode) => mode.to_string(),
    };
    let access_modes = storage.access_modes.clone().filter(|modes| !modes.is_empty());
    let access_modes = access_modes.or_else(|| gaps.access_modes.map(<[String]>::to_vec));
    let mut resources = storage.resources.clone().unwrap_or_default();
    let asked = resources.requests.as_ref().and_then(|requests| bytes(requests.get(STORAGE)?));
    // A copy is as large as its original if nobody says.
    let copied = || match origin {
        Origin::Copy { .. } => size(seen.original?.spec.as_ref()?),
        Origin::Snapshot { .. } => size_of(seen.snapshot?),
        _ => None,
    };
    if let Some(needed) = asked.map(|disk| match volume_mode.as_str() {
        "Block" => disk,
        _ => gaps.overhead.claim_for(disk),
    }) {
        set_size(&mut resources, needed, asked);
    } else if let Some(copied) = copied() {
        set_size(&mut resources, copied, None);
    }
    Ok(PersistentVolumeClaimSpec {
        access_modes: Some(access_modes.unwrap_or_else(|| vec!["ReadWriteOnce".to_owned()])),
        data_source: storage.data_source.clone(),
        data_source_ref: storage.data_source_ref.clone(),
        resources: Some(resources),
        selector: storage.selector.clone(),
        storage_class_name: storage.storage_class_name.clone().or_else(|| gaps.class.map(str::to_owned)),
        volume_mode: Some(volume_mode),
        volume_name: storage.volume_name.clone(),
        ..PersistentVolumeClaimSpec::default()
    })
}

/// What was asked for stays as it was written if nothing is to be added.
fn set_size(resources: &mut VolumeResourceRequirements, needed: u64, asked: Option<u64>) {
    if asked != Some(needed) {
        let requests = resources.requests.get_or_insert_with(BTreeMap::new);
        requests.insert(STORAGE.to_owned(), Quantity(needed.to_string()));
    }
}

/// Whether a DataVolume leaves it to its origin how large its claim is.
pub(super) fn has_no_size(volume: &DataVolume) -> bool {
    let asked = |storage: &StorageSpec| bytes(storage.resources.as_ref()?.requests.as_ref()?.get(STORAGE)?);
    volume.spec.pvc.is_none() && volume.spec.storage.as_ref().is_some_and(|storage| asked(storage).is_none())
}

/// How many bytes a claim needs that is made of a snapshot.
pub(super) fn size_of(snapshot: &VolumeSnapshot) -> Option<u64> {
    bytes(snapshot.status.as_ref()?.restore_size.as_ref()?)
}

/// How many bytes a claim asks for.
pub(super) fn size(spec: &PersistentVolumeClaimSpec) -> Option<u64> {
    bytes(spec.resources.as_ref()?.requests.as_ref()?.get(STORAGE)?)
}
