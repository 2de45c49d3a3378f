//! The hand-over: the pod is ready, and the node's handler takes the instance, with all it needs to know in one write.

use std::collections::BTreeMap;

use api::data_volume::VolumeMode;
use api::names::label;
use api::quantity::Quantity;
use api::vmi::VirtualMachineInstance;
use api::vmi_status::{
    MemoryStatus, MigrationTransport, PersistentVolumeClaimInfo, VirtualMachineInstancePhase as Phase, VolumeStatus,
};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use virt_rules::config::Gate;
use virt_rules::launchers::{Launcher, Role, role};

use super::volumes::claim_name;
use super::{Event, Making, marks, pods};
use crate::render::{self, overhead};

/// The user that QEMU runs as.
const QEMU: i64 = 107;
/// The smallest context ID that a guest can have; those below are the hypervisor's and the host's.
const FIRST_CID: u32 = 3;

impl Making<'_> {
    /// What is known of the pod, besides whether it is ready.
    pub(super) fn note_pod(&mut self, pod: &Pod) {
        let holder = pod.metadata.uid.as_deref().unwrap_or_default();
        let listed = self.active(pod);
        let status = self.status();
        let known = status.active_pods.get_or_insert_default();
        // The node's name alone is no news: the hand-over tells it. Where a target is, its node must know.
        let same = |(uid, node): (&String, &String)| known.get(uid).is_some_and(|known| known == node || uid == holder);
        if known.len() != listed.len() || !listed.iter().all(same) {
            *known = listed;
        }
        let runs = render::runs(pod);
        status.launcher_container_image_version = runs.clone().or(status.launcher_container_image_version.take());
        marks::note_launcher(&mut self.next, runs.is_some_and(|runs| runs != self.seen.launcher.runs()));
    }

    /// The launchers that nodes are to know of: the one that holds the guest, and those on a node that await it. A source that has
    /// ended is not among them: by that the target's handler knows that nobody but its own launcher can go on with the guest.
    fn active(&self, holder: &Pod) -> BTreeMap<String, String> {
        let awaiting = self.targets.iter().copied().filter(|pod| !pods::node(pod).is_empty());
        let is_ended_source = pods::has_ended(holder) && role(&Launcher::of(holder), self.seen.vmi) == Role::Source;
        let uid = |pod: &Pod| pod.metadata.uid.clone().unwrap_or_default();
        let holder = Some(holder).filter(|_| !is_ended_source);
        awaiting.chain(holder).map(|pod| (uid(pod), pods::node(pod).to_owned())).collect()
    }

    /// The launcher that held the guest is gone, and the guest may be where it was to go.
    pub(super) fn forget_holder(&mut self) {
        let awaiting = self.targets.iter().filter(|pod| !pods::node(pod).is_empty());
        let uid = |pod: &Pod| pod.metadata.uid.clone().unwrap_or_default();
        let listed = awaiting.map(|pod| (uid(pod), pods::node(pod).to_owned())).collect();
        self.status().active_pods = Some(listed);
    }

    pub(super) fn hand_over(&mut self, pod: &Pod) {
        let vmi = self.seen.vmi;
        let dedicated = vmi.spec.domain.cpu.as_ref().is_some_and(|cpu| cpu.dedicated_cpu_placement == Some(true));
        let qos = pod.status.as_ref().and_then(|status| status.qos_class.clone());
        if dedicated && qos.as_deref() != Some("Guaranteed") {
            let message = format!(
                "dedicatedCpuPlacement needs a pod of class Guaranteed, but this one is {}; set resources.limits equal to \
                 resources.requests",
                qos.as_deref().unwrap_or("unclassified"),
            );
            self.plan.events.push(Event::warning("FailedGuaranteeResources", message));
            return self.enter(Phase::Failed);
        }
        let node = pods::node(pod).to_owned();
        self.next.metadata.labels.get_or_insert_default().insert(label::NODE_NAME.to_owned(), node.clone());
        self.enter(Phase::Scheduled);
        self.note_pod(pod);
        let root = self.seen.config.enabled(Gate::Root);
        let memory_overhead = Quantity::from(overhead(vmi, self.seen.config));
        let volumes = self.volume_status();
        let cid = self.context_id();
        let listed = self.active(pod);
        let status = self.status();
        status.active_pods = Some(listed);
        status.node_name = Some(node);
        status.qos_class = qos;
        status.migration_transport = Some(MigrationTransport::Unix);
        status.runtime_user = Some(if root { 0 } else { QEMU });
        status.volume_status = volumes.or(status.volume_status.take());
        status.vsock_cid = cid;
        let memory = status.memory.get_or_insert_with(MemoryStatus::default);
        memory.memory_overhead = Some(memory_overhead);
    }

    /// One entry for each volume that is a claim.
    fn volume_status(&self) -> Option<Vec<VolumeStatus>> {
        let known = &self.seen.volumes;
        let volumes = self.seen.vmi.spec.volumes.iter().flatten();
        let status: Vec<_> = volumes
            .filter_map(|volume| {
                let claim = known.claims.get(claim_name(volume, known)?.as_str())?;
                let persistent_volume_claim_info = Some(information(claim));
                Some(VolumeStatus {
                    name: volume.name.clone(),
                    persistent_volume_claim_info,
                    ..VolumeStatus::default()
                })
            })
            .collect();
        Some(status).filter(|status| !status.is_empty())
    }

    /// The address of the guest on its node's VSOCK, if it wants one. No other instance has it, wherever it runs: they may
    /// meet on a node later.
    fn context_id(&self) -> Option<u32> {
        let vmi: &VirtualMachineInstance = self.seen.vmi;
        if vmi.spec.domain.devices.autoattach_vsock != Some(true) {
            return None;
        }
        let known = vmi.status.as_ref().and_then(|status| status.vsock_cid);
        let start = u32::try_from(self.seen.chance & u64::from(u32::MAX >> 1)).unwrap_or(0).max(FIRST_CID);
        known.or_else(|| (start..u32::MAX).chain(FIRST_CID..start).find(|cid| !self.seen.taken_cids.contains(cid)))
    }
}

fn information(claim: &PersistentVolumeClaim) -> PersistentVolumeClaimInfo {
    let spec = claim.spec.as_ref();
    let quantities = |map: Option<&BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>| {
        map.map(|map| map.iter().filter_map(|(name, one)| Some((name.clone(), one.0.parse().ok()?))).collect())
    };
    let block = spec.and_then(|spec| spec.volume_mode.as_deref()) == Some("Block");
    PersistentVolumeClaimInfo {
        access_modes: spec.and_then(|spec| spec.access_modes.clone()),
        capacity: quantities(claim.status.as_ref().and_then(|status| status.capacity.as_ref())),
        claim_name: claim.metadata.name.clone(),
        requests: quantities(spec.and_then(|spec| spec.resources.as_ref()?.requests.as_ref())),
        volume_mode: Some(if block { VolumeMode::Block } else { VolumeMode::Filesystem }),
        ..PersistentVolumeClaimInfo::default()
    }
}
