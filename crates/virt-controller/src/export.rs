//! Exports: the volumes of a claim, a VM or a snapshot, offered for download by a pod for as long as nobody else uses them.
//!
//! ```text
//! VirtualMachineExport ───────────────┐                     ┌─> a service and a token, once
//! claim │ VM, instance │ snapshot ────┼─> observe ─> decide ┼─> claims of a snapshot's copies
//! pods, instances that use the claims ┤                     ├─> the exporter's pod: comes when nobody uses the claims, and goes
//! the exporter's pod, its service ────┘                     └─> the status: links; after its time the export goes
//! ```
//! Watches: VirtualMachineExport, Pod, Service, PersistentVolumeClaim, VirtualMachine, VirtualMachineInstance,
//! VirtualMachineSnapshot, VirtualMachineSnapshotContent, DataVolume, VolumeSnapshot. Owns: service, pod, secrets and claims of an
//! export. Emits: events about the export.
//! Absent on purpose: what the pod serves (`exporter`), and how it is reached from outside.
//!
//! | the source | the pod | phase, reason |
//! |---|---|---|
//! | is not there, or not complete | goes | Pending, Initializing |
//! | is used by somebody else | goes | Pending, `InUse` |
//! | has no volumes | | Skipped, `VMNoVolumes` |
//! | is idle | none: is made | Pending, `PodPending` |
//! | is idle | is ready | Ready, `PodReady` |
//! | is idle | has ended: goes, and comes again | Terminated, `PodCompleted` |

pub mod controller;
pub mod manifests;

mod objects;
mod pods;
mod source;
mod status;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::data_volume::DataVolume;
use api::export::{VirtualMachineExport as Export, VirtualMachineExportStatus as Status};
use api::owner::is_controlled_by;
use api::snapshot::{VirtualMachineSnapshot as Snapshot, VirtualMachineSnapshotContent as Content};
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use api::volume_snapshot::VolumeSnapshot;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manager::events::Kind;
use serde_json::Value;

use crate::vmi::{Event, Target};
use source::{Offer, Volume};

pub use objects::{AUTHORITY, exporter_name, is_exporter};

/// An export that does not say how long it lasts.
const LASTS: Duration = Duration::from_secs(2 * 60 * 60);

/// Where exports are reached from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct External {
    /// A host, with its port unless it is the usual one.
    pub host: String,
    /// The certificate of its authority, as PEM.
    pub authority: String,
}

/// What is exported.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// The claim of the source's name.
    Claim,
    /// A VM.
    Machine {
        /// If it is there.
        vm: Option<&'a VirtualMachine>,
        /// If there is one.
        instance: Option<&'a VirtualMachineInstance>,
    },
    /// A snapshot of a VM.
    Snapshot {
        /// If it is there.
        snapshot: Option<&'a Snapshot>,
        content: Option<&'a Content>,
    },
    /// Something that admission would have refused.
    Unknown,
}

/// What the caches say about one export.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    pub export: &'a Export,
    /// What it is of.
    pub source: Source<'a>,
    /// Claims of the source, and those that the export makes, by name.
    pub claims: BTreeMap<&'a str, &'a PersistentVolumeClaim>,
    /// DataVolumes of the namespace; none where nobody serves them.
    pub data_volumes: Option<BTreeMap<&'a str, &'a DataVolume>>,
    /// VolumeSnapshots of a snapshot, by name.
    pub copies: BTreeMap<&'a str, &'a VolumeSnapshot>,
    /// Claims that somebody else uses.
    pub used: BTreeSet<&'a str>,
    /// Claims that VMs or instances have as disks.
    pub disks: BTreeSet<&'a str>,
    /// The export's service.
    pub service: Option<&'a Service>,
    /// The exporter's pod.
    pub pod: Option<&'a Pod>,
    /// Where exports are reached from outside.
    pub external: Option<&'a External>,
    /// What the server said to the last attempt.
    pub failure: Option<&'a str>,
}

/// What to do about one export; empty at rest. In this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExportPlan {
    pub service: Option<Box<Service>>,
    /// The secret for the token.
    pub token: Option<String>,
    /// Claims of a snapshot's copies.
    pub claims: Vec<PersistentVolumeClaim>,
    pub exporter: Option<Box<Exporter>>,
    /// The exporter's pod must go.
    pub delete_pod: Option<Target>,
    /// A guarded merge patch of the status.
    pub status: Option<Value>,
    /// What people should read.
    pub events: Vec<Event>,
    /// The export must go: its time is over.
    pub delete: Option<Target>,
    /// When time alone changes something: decide again then.
    pub recheck_after: Option<Duration>,
}

/// An exporter that is to be made. Its certificate is made with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Exporter {
    /// Its pod, but for the certificate.
    pub pod: Pod,
    /// The name that its certificate is for.
    pub host: String,
    /// Its certificate is good until then.
    pub until: Timestamp,
    /// The VM whose manifests it serves.
    pub machine: Option<manifests::Machine>,
}

/// # Guarantees
/// - There is an exporter only while nobody else uses the claims, they are complete, and the export's time is not over.
/// - A claim, a pod or a service that the export did not make is neither used nor deleted.
/// - Links are there only while the pod is ready.
/// - An export without a token secret of the user's has one of its own, and only one.
/// - Equal observations give equal plans; at rest the plan is empty.
#[must_use]
pub fn decide(seen: &Observed<'_>, now: Timestamp) -> ExportPlan {
    let mut making = Making::new(seen, now);
    if seen.export.metadata.deletion_timestamp.is_some() {
        return making.plan;
    }
    let left = making.until.duration_since(now);
    if left.is_zero() || left.is_negative() {
        making.plan.delete = Some(target(&seen.export.metadata));
        return making.plan;
    }
    making.plan.recheck_after = Some(Duration::try_from(left).unwrap_or(LASTS));
    making.follow();
    making.finish()
}

/// When an export ends.
#[must_use]
pub fn ends(export: &Export, now: Timestamp) -> Timestamp {
    let begun = export.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    let lasts = export.spec.ttl_duration.as_ref().map_or(Some(LASTS), api::duration::Duration::to_std);
    begun.saturating_add(lasts.unwrap_or_default()).unwrap_or(Timestamp::MAX)
}

/// A decision in the making.
struct Making<'a> {
    seen: &'a Observed<'a>,
    now: Timestamp,
    until: Timestamp,
    status: Status,
    plan: ExportPlan,
}

impl<'a> Making<'a> {
    fn new(seen: &'a Observed<'a>, now: Timestamp) -> Self {
        let status = seen.export.status.clone().unwrap_or_default();
        Self { seen, now, until: ends(seen.export, now), status, plan: ExportPlan::default() }
    }

    fn follow(&mut self) {
        self.begin();
        let obstacle = self.serve();
        let offer = self.offer();
        let offer = match obstacle {
            Some(why) => Offer::Waits { in_use: false, why, claims: Vec::new() },
            None => offer,
        };
        if matches!(offer, Offer::Volumes(_)) {
            self.keep_token();
        }
        self.keep_pod(&offer);
        self.tell(&offer);
    }

    /// The service. Returns what stands in its way.
    fn serve(&mut self) -> Option<String> {
        let name = exporter_name(self.name());
        match self.seen.service {
            None => {
                self.plan.service = Some(Box::new(objects::service(self.seen.export)));
                self.say("ServiceCreated", format!("Created service {}", self.within(&name)));
                None
            }
            Some(service) if self.is_mine(&service.metadata) => None,
            Some(_) => Some(format!("service {} exists already and was not made by this export", self.within(&name))),
        }
    }

    /// The user's secret, or one that is made once.
    fn keep_token(&mut self) {
        if self.seen.export.spec.token_secret_ref.is_some() {
            self.status.token_secret_ref.clone_from(&self.seen.export.spec.token_secret_ref);
        } else if self.status.token_secret_ref.is_none() {
            let name = objects::token_name(self.seen.export);
            self.say("SecretCreated", format!("Created default secret {}", self.within(&name)));
            self.status.token_secret_ref = Some(name.clone());
            self.plan.token = Some(name);
        }
    }

    /// Lets the exporter come when the volumes are free, and go when they are not.
    fn keep_pod(&mut self, offer: &Offer<'a>) {
        let name = exporter_name(self.name());
        let Some(pod) = self.seen.pod else {
            if let Offer::Volumes(volumes) = offer {
                self.plan.exporter = Some(Box::new(self.exporter(volumes)));
                self.say("ExporterPodCreated", format!("Created exporter pod {}", self.within(&name)));
            }
            return;
        };
        if !self.is_mine(&pod.metadata) || pod.metadata.deletion_timestamp.is_some() {
            return;
        }
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
        let (reason, message) = match offer {
            Offer::Volumes(_) if matches!(phase, "Succeeded" | "Failed") => {
                let message = format!("Exporter pod {} is in phase {phase}", self.within(&name));
                ("ExporterPodFailedOrCompleted", message)
            }
            Offer::Volumes(volumes)
                if objects::claims_of(pod) != volumes.iter().map(Volume::claim).collect::<BTreeSet<_>>() =>
            {
                ("ExportPaused", "the volumes of the source have changed".to_owned())
            }
            Offer::Volumes(_) => return,
            Offer::Waits { why, .. } | Offer::Nothing { why, .. } => ("ExportPaused", why.clone()),
        };
        self.plan.delete_pod = Some(target(&pod.metadata));
        self.plan.events.push(Event::warning(reason, message));
    }

    fn name(&self) -> &'a str {
        self.seen.export.metadata.name.as_deref().unwrap_or_default()
    }

    fn namespace(&self) -> &'a str {
        self.seen.export.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// A name with its namespace, as people read it.
    fn within(&self, name: &str) -> String {
        format!("{}/{name}", self.namespace())
    }

    fn is_mine(&self, metadata: &ObjectMeta) -> bool {
        self.seen.export.metadata.uid.as_deref().is_some_and(|uid| is_controlled_by(metadata, uid))
    }

    fn say(&mut self, reason: &'static str, message: String) {
        self.plan.events.push(Event { kind: Kind::Normal, reason, message });
    }
}

fn target(metadata: &ObjectMeta) -> Target {
    Target { name: metadata.name.clone().unwrap_or_default(), uid: metadata.uid.clone().unwrap_or_default() }
}
