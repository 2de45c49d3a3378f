//! The table of kinds that come with storage, and that are ours only on one machine.

use crate::cdi::{CDIConfig, DataSource, StorageProfile};
use crate::data_volume::DataVolume;
use crate::volume_snapshot::{VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent};

use super::Subresources::{None as NoSubresources, Status};
use super::Support::Current;
use super::Use::Stored;
use super::Width::Normal;
use super::{Column, Row, Version};

const V1: &[Version] = &[Version("v1", Current, Stored)];
const V1BETA1: &[Version] = &[Version("v1beta1", Current, Stored)];
const AGE: Column = Column("Age", "date", ".metadata.creationTimestamp", Normal);
const READY_TO_USE: Column = Column("ReadyToUse", "boolean", ".status.readyToUse", Normal);
/// Where Kubernetes approved the kinds of its snapshots.
const SNAPSHOTS_APPROVED: &str = "https://github.com/kubernetes-csi/external-snapshotter/pull/814";

/// Every kind of it.
pub(super) fn table() -> Vec<Row> {
    [snapshots(), imports()].into_iter().flatten().collect()
}

fn snapshots() -> Vec<Row> {
    let rows = [
        Row::of::<VolumeSnapshot>(
            &["vs"],
            V1,
            &[
                READY_TO_USE,
                Column("SourcePVC", "string", ".spec.source.persistentVolumeClaimName", Normal),
                Column("SourceSnapshotContent", "string", ".spec.source.volumeSnapshotContentName", Normal),
                Column("RestoreSize", "string", ".status.restoreSize", Normal),
                Column("SnapshotClass", "string", ".spec.volumeSnapshotClassName", Normal),
                Column("SnapshotContent", "string", ".status.boundVolumeSnapshotContentName", Normal),
                Column("CreationTime", "date", ".status.creationTime", Normal),
                AGE,
            ],
            Status,
        ),
        Row::of::<VolumeSnapshotContent>(
            &["vsc", "vscs"],
            V1,
            &[
                READY_TO_USE,
                Column("RestoreSize", "integer", ".status.restoreSize", Normal),
                Column("DeletionPolicy", "string", ".spec.deletionPolicy", Normal),
                Column("Driver", "string", ".spec.driver", Normal),
                Column("VolumeSnapshotClass", "string", ".spec.volumeSnapshotClassName", Normal),
                Column("VolumeSnapshot", "string", ".spec.volumeSnapshotRef.name", Normal),
                Column("VolumeSnapshotNamespace", "string", ".spec.volumeSnapshotRef.namespace", Normal),
                AGE,
            ],
            Status,
        ),
        Row::of::<VolumeSnapshotClass>(
            &["vsclass", "vsclasses"],
            V1,
            &[
                Column("Driver", "string", ".driver", Normal),
                Column("DeletionPolicy", "string", ".deletionPolicy", Normal),
                AGE,
            ],
            NoSubresources,
        ),
    ];
    // As on a cluster: `kubectl get all` does not show them.
    rows.map(|row| Row { in_all: false, approval: Some(SNAPSHOTS_APPROVED), ..row }).into()
}

/// The kinds of the Containerized Data Importer.
fn imports() -> Vec<Row> {
    vec![
        Row::of::<DataVolume>(
            &["dv", "dvs"],
            V1BETA1,
            &[
                Column("Phase", "string", ".status.phase", Normal),
                Column("Progress", "string", ".status.progress", Normal),
                Column("Restarts", "integer", ".status.restartCount", Normal),
                AGE,
            ],
            Status,
        ),
        Row::of::<DataSource>(
            &["das"],
            V1BETA1,
            &[Column("Ready", "string", ".status.conditions[?(@.type=='Ready')].status", Normal), AGE],
            Status,
        ),
        Row::of::<StorageProfile>(&[], V1BETA1, &[], Status),
        Row::of::<CDIConfig>(&[], V1BETA1, &[], Status),
    ]
}
