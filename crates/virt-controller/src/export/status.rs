//! What an export tells of itself: phase, conditions and links, in KubeVirt's words.

use api::conditions::{self, ConditionStatus};
use api::export::{
    Condition, VirtualMachineExportLink as Link, VirtualMachineExportLinks as Links,
    VirtualMachineExportManifest as Manifest, VirtualMachineExportPhase as Phase, VirtualMachineExportVolume,
    VirtualMachineExportVolumeFormat as Format,
};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use manager::writing::{difference, guarded, whole_second};
use serde_json::json;

use super::source::{Offer, Volume};
use super::{AUTHORITY, ExportPlan, External, Making, Source, exporter_name, objects};
use crate::vmi::Event;

const READY: &str = "Ready";
const CLAIMS: &str = "PVCReady";
const CREATED: &str = "VolumesCreated";
const INITIALIZING: &str = "Initializing";
const UNKNOWN: &str = "Unknown";

impl<'a> Making<'a> {
    /// What every export begins with.
    pub(super) fn begin(&mut self) {
        if self.status.phase.is_none() {
            self.status.phase = Some(Phase::Pending);
            self.put(READY, false, INITIALIZING, "");
            self.put(CLAIMS, false, UNKNOWN, "");
        }
        self.status.ttl_expiration_time = Some(whole_second(self.until));
        self.status.service_name = Some(exporter_name(self.name()));
        self.status.virtual_machine_name = match self.seen.source {
            Source::Machine { .. } => Some(self.seen.export.spec.source.name.clone()),
            Source::Snapshot { snapshot, .. } => snapshot.map(|snapshot| snapshot.spec.source.name.clone()),
            Source::Claim | Source::Unknown => None,
        };
    }

    pub(super) fn tell(&mut self, offer: &Offer<'a>) {
        self.tell_claims(offer);
        let (phase, ready, reason, message) = self.state(offer);
        let is_news = self.put(READY, ready, reason, &message);
        if let Some(failure) = self.seen.failure.filter(|_| is_news) {
            self.plan.events.push(Event::warning("FailedCreate", failure));
        }
        self.status.links = match (offer, self.pod()) {
            (Offer::Volumes(volumes), Some(pod)) if phase == Phase::Ready => self.links(volumes, pod),
            _ => None,
        };
        self.status.phase = Some(phase);
    }

    /// Phase, and what the condition `Ready` says.
    fn state(&self, offer: &Offer<'a>) -> (Phase, bool, &'static str, String) {
        match offer {
            Offer::Waits { in_use, why, .. } => {
                (Phase::Pending, false, if *in_use { "InUse" } else { INITIALIZING }, why.clone())
            }
            Offer::Nothing { reason: "VMNoVolumes", why } => (Phase::Skipped, false, "VMNoVolumes", why.clone()),
            Offer::Nothing { .. } => (Phase::Skipped, false, INITIALIZING, String::new()),
            Offer::Volumes(_) => {
                let Some(pod) = self.seen.pod else {
                    let failure = self.seen.failure.unwrap_or_default().to_owned();
                    return (Phase::Pending, false, "PodPending", failure);
                };
                if !self.is_mine(&pod.metadata) {
                    let name = self.within(&exporter_name(self.name()));
                    let why = format!("pod {name} exists already and was not made by this export");
                    return (Phase::Pending, false, INITIALIZING, why);
                }
                match pod.status.as_ref().and_then(|status| status.phase.as_deref()) {
                    Some("Succeeded") => (Phase::Terminated, false, "PodCompleted", String::new()),
                    _ if pod.metadata.deletion_timestamp.is_some() => {
                        (Phase::Pending, false, "PodPending", String::new())
                    }
                    _ if is_ready(pod) => (Phase::Ready, true, "PodReady", String::new()),
                    None | Some("Pending") => (Phase::Pending, false, "PodPending", String::new()),
                    Some(_) => (Phase::Pending, false, UNKNOWN, String::new()),
                }
            }
        }
    }

    fn tell_claims(&mut self, offer: &Offer<'a>) {
        let (claims, why) = match offer {
            Offer::Volumes(volumes) => (volumes.iter().map(|volume| volume.claim).collect(), ""),
            Offer::Waits { why, claims, .. } => (claims.clone(), why.as_str()),
            Offer::Nothing { why, .. } => (Vec::new(), why.as_str()),
        };
        if matches!(self.seen.source, Source::Snapshot { .. }) {
            match offer {
                Offer::Nothing { reason, why } => drop(self.put(CREATED, false, reason, why)),
                Offer::Waits { why, in_use: false, .. } => drop(self.put(CREATED, false, "NotAllPVCsCreated", why)),
                _ if claims.iter().all(|claim| phase(claim) == "Bound") => {
                    self.put(CREATED, true, "AllPVCsReady", "");
                }
                _ => drop(self.put(CREATED, false, "NotAllPVCsReady", "Not all PVCs are ready")),
            }
        }
        let is_missing = matches!(self.seen.source, Source::Claim) && claims.is_empty();
        match claims.iter().map(|claim| phase(claim)).max_by_key(|phase| severity(phase)) {
            None if is_missing => drop(self.put(CLAIMS, false, "PVCNotFound", why)),
            None => drop(self.put(CLAIMS, false, UNKNOWN, "")),
            Some("Bound") => drop(self.put(CLAIMS, true, "PVCBound", "")),
            Some("Pending") => drop(self.put(CLAIMS, false, "PVCPending", "")),
            Some(_) => drop(self.put(CLAIMS, false, UNKNOWN, "")),
        }
    }

    /// The pod, if it is the export's own.
    fn pod(&self) -> Option<&'a Pod> {
        self.seen.pod.filter(|pod| self.is_mine(&pod.metadata))
    }

    fn links(&self, volumes: &[Volume<'a>], pod: &Pod) -> Option<Links> {
        let authority = pod.metadata.annotations.as_ref()?.get(AUTHORITY)?;
        let has_manifests = !matches!(self.seen.source, Source::Claim | Source::Unknown);
        let base = format!("https://{}", objects::host(self.seen.export));
        let internal = link(volumes, &base, "internal", authority, has_manifests);
        let external = self.seen.external.map(|External { host, authority }| {
            let path = external_path(self.namespace(), self.name());
            link(volumes, &format!("https://{host}{path}"), "external", authority, has_manifests)
        });
        Some(Links { external, internal: Some(internal) })
    }

    fn put(&mut self, kind: &str, holds: bool, reason: &str, message: &str) -> bool {
        let condition = Condition {
            type_: kind.to_owned(),
            status: if holds { ConditionStatus::True } else { ConditionStatus::False },
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()).filter(|text| !text.is_empty()),
            ..Condition::default()
        };
        conditions::set(&mut self.status.conditions, condition, whole_second(self.now).0)
    }

    pub(super) fn finish(mut self) -> ExportPlan {
        let export = self.seen.export;
        let old = export.status.clone().unwrap_or_default();
        let patch = difference(&json!(old), &json!(self.status));
        self.plan.status = patch.map(|patch| guarded(&export.metadata, json!({ "status": patch })));
        self.plan
    }
}

/// The path of an export on the host that leads to exports from outside.
pub(super) fn external_path(namespace: &str, name: &str) -> String {
    format!("/api/export.kubevirt.io/v1/namespaces/{namespace}/virtualmachineexports/{name}")
}

fn link(volumes: &[Volume<'_>], base: &str, way: &str, authority: &str, has_manifests: bool) -> Link {
    let manifest = |kind: &str, path: &str| Manifest { type_: kind.to_owned(), url: format!("{base}/{way}{path}") };
    let manifests = [("all", "/manifests/all"), ("auth-header-secret", "/manifests/secret")];
    let volumes = volumes.iter().map(|volume| {
        let formats: [(&str, &str); 2] = match volume.is_disk {
            true => [("raw", "disk.img"), ("gzip", "disk.img.gz")],
            false => [("dir", "dir/"), ("tar.gz", "disk.tar.gz")],
        };
        let format = |(format, file): (&str, &str)| Format {
            format: format.to_owned(),
            url: format!("{base}/volumes/{}/{file}", volume.name),
        };
        VirtualMachineExportVolume { name: volume.name.clone(), formats: Some(formats.map(format).to_vec()) }
    });
    Link {
        cert: authority.trim().to_owned(),
        backups: None,
        manifests: has_manifests.then(|| manifests.map(|(kind, path)| manifest(kind, path)).to_vec()),
        volumes: Some(volumes.collect()),
    }
}

fn is_ready(pod: &Pod) -> bool {
    let all = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    all.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn phase(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

/// A lost claim is worse than one that waits.
fn severity(phase: &str) -> u8 {
    match phase {
        "Bound" => 0,
        "Pending" => 1,
        _ => 2,
    }
}
