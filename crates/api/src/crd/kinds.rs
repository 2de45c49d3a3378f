//! The table of kinds.

use crate::backup::{VirtualMachineBackup, VirtualMachineBackupTracker};
use crate::clone::VirtualMachineClone;
use crate::export::VirtualMachineExport;
use crate::instancetype::{VirtualMachineClusterInstancetype, VirtualMachineInstancetype};
use crate::kubevirt::KubeVirt;
use crate::migration::VirtualMachineInstanceMigration;
use crate::migration_policy::MigrationPolicy;
use crate::plugin::Plugin;
use crate::pool::VirtualMachinePool;
use crate::preference::{VirtualMachineClusterPreference, VirtualMachinePreference};
use crate::preset::VirtualMachineInstancePreset;
use crate::replicaset::VirtualMachineInstanceReplicaSet;
use crate::restore::VirtualMachineRestore;
use crate::snapshot::{VirtualMachineSnapshot, VirtualMachineSnapshotContent};
use crate::vm::VirtualMachine;
use crate::vmi::VirtualMachineInstance;

use super::Subresources::{None as NoSubresources, Status, StatusAndScale};
use super::Support::{Current, Deprecated};
use super::Use::{Served, Stored};
use super::Width::{Normal, Wide};
use super::{Column, Row, Version};

const AGE: Column = Column("Age", "date", ".metadata.creationTimestamp", Normal);
const PHASE: Column = Column("Phase", "string", ".status.phase", Normal);
const READY: Column = Column("Ready", "string", ".status.conditions[?(@.type=='Ready')].status", Normal);
const SOURCE_KIND: Column = Column("SourceKind", "string", ".spec.source.kind", Normal);
const SOURCE_NAME: Column = Column("SourceName", "string", ".spec.source.name", Normal);
const READY_TO_USE: Column = Column("ReadyToUse", "boolean", ".status.readyToUse", Normal);
const CREATION_TIME: Column = Column("CreationTime", "date", ".status.creationTime", Normal);
const ERROR: Column = Column("Error", "string", ".status.error.message", Normal);
const REPLICAS: &[Column] = &[
    Column("Desired", "integer", ".spec.replicas", Normal),
    Column("Current", "integer", ".status.replicas", Normal),
    Column("Ready", "integer", ".status.readyReplicas", Normal),
    AGE,
];

const V1: &[Version] = &[Version("v1", Current, Stored), Version("v1alpha3", Deprecated, Served)];
const V1ALPHA1: &[Version] = &[Version("v1alpha1", Current, Stored)];
const V1BETA1: &[Version] = &[Version("v1beta1", Current, Stored)];
const V1BETA1_AND_ALPHA: &[Version] = &[Version("v1alpha1", Current, Served), Version("v1beta1", Current, Stored)];

/// Every kind: first what runs, then what is done with it, then what describes it.
pub(super) fn table() -> Vec<Row> {
    [running(), operations(), descriptions()].into_iter().flatten().collect()
}

fn running() -> Vec<Row> {
    vec![
        Row::of::<VirtualMachine>(
            &["vm", "vms"],
            V1,
            &[AGE, Column("Status", "string", ".status.printableStatus", Normal), READY],
            Status,
        ),
        // No status subresource: controllers write the whole object, as clients of this API expect.
        Row::of::<VirtualMachineInstance>(
            &["vmi", "vmis"],
            V1,
            &[
                AGE,
                PHASE,
                Column("IP", "string", ".status.interfaces[0].ipAddress", Normal),
                Column("NodeName", "string", ".status.nodeName", Normal),
                READY,
                Column("Live-Migratable", "string", ".status.conditions[?(@.type=='LiveMigratable')].status", Wide),
                Column("Paused", "string", ".status.conditions[?(@.type=='Paused')].status", Wide),
            ],
            NoSubresources,
        ),
        Row::of::<VirtualMachineInstanceMigration>(
            &["vmim", "vmims"],
            V1,
            &[PHASE, Column("VMI", "string", ".spec.vmiName", Normal)],
            Status,
        ),
        Row::of::<VirtualMachineInstanceReplicaSet>(&["vmirs", "vmirss"], V1, REPLICAS, StatusAndScale),
        // Stored as v1alpha3: presets were deprecated before v1 became the stored version of the others.
        Row::of::<VirtualMachineInstancePreset>(
            &["vmipreset", "vmipresets"],
            &[Version("v1", Deprecated, Served), Version("v1alpha3", Deprecated, Stored)],
            &[],
            NoSubresources,
        ),
        Row::of::<KubeVirt>(&["kv", "kvs"], V1, &[AGE, PHASE], Status),
    ]
}

fn operations() -> Vec<Row> {
    vec![
        Row::of::<VirtualMachinePool>(&["vmpool", "vmpools"], V1BETA1_AND_ALPHA, REPLICAS, StatusAndScale),
        Row::of::<VirtualMachineSnapshot>(
            &["vmsnapshot", "vmsnapshots"],
            V1BETA1_AND_ALPHA,
            &[SOURCE_KIND, SOURCE_NAME, PHASE, READY_TO_USE, CREATION_TIME, ERROR],
            Status,
        ),
        Row::of::<VirtualMachineSnapshotContent>(
            &["vmsnapshotcontent", "vmsnapshotcontents"],
            V1BETA1_AND_ALPHA,
            &[READY_TO_USE, CREATION_TIME, ERROR],
            Status,
        ),
        Row::of::<VirtualMachineRestore>(
            &["vmrestore", "vmrestores"],
            V1BETA1_AND_ALPHA,
            &[
                Column("TargetKind", "string", ".spec.target.kind", Normal),
                Column("TargetName", "string", ".spec.target.name", Normal),
                Column("Complete", "boolean", ".status.complete", Normal),
                Column("RestoreTime", "date", ".status.restoreTime", Normal),
            ],
            Status,
        ),
        Row::of::<VirtualMachineExport>(
            &["vmexport", "vmexports"],
            &[Version("v1beta1", Deprecated, Served), Version("v1", Current, Stored)],
            &[SOURCE_KIND, SOURCE_NAME, PHASE],
            Status,
        ),
        Row::of::<VirtualMachineClone>(
            &["vmclone", "vmclones"],
            V1BETA1_AND_ALPHA,
            &[
                PHASE,
                Column("SourceVirtualMachine", "string", ".spec.source.name", Normal),
                Column("TargetVirtualMachine", "string", ".spec.target.name", Normal),
            ],
            Status,
        ),
    ]
}

fn descriptions() -> Vec<Row> {
    vec![
        Row::of::<VirtualMachineInstancetype>(
            &["vminstancetype", "vminstancetypes", "vmf", "vmfs"],
            V1BETA1,
            &[],
            NoSubresources,
        ),
        Row::of::<VirtualMachineClusterInstancetype>(
            &["vmclusterinstancetype", "vmclusterinstancetypes", "vmcf", "vmcfs"],
            V1BETA1,
            &[],
            NoSubresources,
        ),
        Row::of::<VirtualMachinePreference>(&["vmpref", "vmprefs", "vmp", "vmps"], V1BETA1, &[], NoSubresources),
        Row::of::<VirtualMachineClusterPreference>(&["vmcp", "vmcps"], V1BETA1, &[], NoSubresources),
        Row::of::<MigrationPolicy>(&[], V1ALPHA1, &[], Status),
        Row::of::<VirtualMachineBackup>(
            &["vmbackup", "vmbackups"],
            V1ALPHA1,
            &[
                SOURCE_KIND,
                SOURCE_NAME,
                Column("Type", "string", ".status.type", Normal),
                Column("CheckpointName", "string", ".status.checkpointName", Normal),
            ],
            Status,
        ),
        Row::of::<VirtualMachineBackupTracker>(
            &["vmbackuptracker", "vmbackuptrackers"],
            V1ALPHA1,
            &[
                SOURCE_KIND,
                SOURCE_NAME,
                Column("LatestCheckpoint", "string", ".status.latestCheckpoint.name", Normal),
                Column("CheckpointTime", "date", ".status.latestCheckpoint.creationTime", Normal),
            ],
            Status,
        ),
        Row::of::<Plugin>(&[], V1ALPHA1, &[], NoSubresources),
    ]
}
