//! The one write of an instance, and what people read of it.

use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use kube::Api;
use kube::api::{Patch, PatchParams};
use manager::events::Kind;
use manager::worker::Next;

use super::{InstanceError, Instances, LOOK_AGAIN, Notes};
use crate::decide::{Milestone, Plan};
use crate::launchers::{LauncherId, View};
use crate::node;
use crate::status::{self, Facts};

impl Instances {
    /// Writes what differs, if anything does. Tells when to look again, if that is known.
    pub(super) async fn write_status(
        &self,
        id: &LauncherId,
        vmi: &VirtualMachineInstance,
        plan: &Plan,
    ) -> Result<Option<Next>, InstanceError> {
        let phase = plan.phase.as_ref();
        let starts = phase.is_some_and(Phase::is_running) && vmi.phase().is_scheduled();
        // After a crash between the start and its write, the network is there and only its addresses are unknown.
        if starts && let Err(failure) = self.connect_network(id, vmi).await {
            tracing::warn!(error = %failure, "cannot read the guest's addresses");
        }
        // One that did not answer is asked again, and one that another process of ours has asked may have changed its guest since.
        if phase.is_some_and(Phase::is_running) && self.note(id, |notes| notes.guest.is_none()) {
            self.fetch_guest(id).await;
        }
        let Some(next) = self.next_status(id, vmi, plan) else { return Ok(None) };
        let Some(patch) = status::change(vmi, &next) else { return Ok(None) };
        let api: Api<VirtualMachineInstance> = Api::namespaced(self.client.clone(), &id.key.namespace);
        match api.patch(&id.key.name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(written) => {
                let version = written.metadata.resource_version.as_deref();
                self.writes(|writes| writes.note(id.uid.clone(), version));
                let domain = self.launchers.view(id).and_then(|view| view.domain);
                self.tell(vmi, &next, domain.map(|domain| domain.reason).unwrap_or_default().as_str());
                Ok(None)
            }
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Some(Next::After(LOOK_AGAIN))),
            Err(error) => Err(InstanceError::Server(error)),
        }
    }

    /// None if nothing is known that could change it.
    fn next_status(
        &self,
        id: &LauncherId,
        vmi: &VirtualMachineInstance,
        plan: &Plan,
    ) -> Option<VirtualMachineInstance> {
        let phase = plan.phase.as_ref();
        let Notes { efforts, links, guest: model, .. } = self.note(id, |notes| notes.clone());
        if phase.is_none() && plan.milestone.is_none() && efforts.failure().is_none() {
            return None;
        }
        let View { domain, guest, .. } = self.launchers.view(id).unwrap_or_default();
        let offer = self.setup.found.borrow().offer();
        let wanted = vmi.spec.domain.machine.as_ref().and_then(|machine| machine.type_.as_deref());
        let machine = offer.as_deref().and_then(|offer| node::machine(offer, wanted));
        let facts = Facts {
            domain: domain.as_ref(),
            guest: guest.as_ref(),
            links: links.as_deref(),
            outcome: efforts.outcome.as_ref(),
            model: model.as_deref(),
            machine,
            is_emulated: offer.as_deref().is_some_and(|offer| offer.is_emulated),
            lets_guests_go: self.setup.host.reached_at().is_some(),
            isolates_claims: self.setup.host.isolates_claims(),
        };
        let now = (self.now)();
        // What is not the launcher's own guest yet is not told of.
        let mut next = match &plan.milestone {
            Some(Milestone::Prepared) => vmi.clone(),
            Some(Milestone::Failed { .. }) if phase.is_none() => vmi.clone(),
            _ => status::next(vmi, phase, &facts, now),
        };
        if let Some(milestone) = &plan.milestone {
            status::migration::reached(&mut next, milestone, self.setup.host.reached_at(), now);
        }
        Some(next)
    }

    /// What people should read of a new phase.
    fn tell(&self, old: &VirtualMachineInstance, new: &VirtualMachineInstance, why: &str) {
        if let Some(message) = status::io_error(new).filter(|_| status::io_error(old).is_none()) {
            self.record_event(new, Kind::Warning, "IOerror", message);
        }
        if old.phase() == new.phase() {
            return self.tell_migration(old, new);
        }
        tracing::info!(phase = %new.phase(), "the phase of the instance changed");
        let (kind, reason, message) = match new.phase() {
            Phase::Running => (Kind::Normal, "Started", "VirtualMachineInstance started.".to_owned()),
            Phase::Succeeded => (Kind::Normal, "Stopped", "The VirtualMachineInstance was shut down.".to_owned()),
            Phase::Failed => (Kind::Warning, "Stopped", crashed(why)),
            _ => return,
        };
        self.record_event(new, kind, reason, message);
    }
}

impl Instances {
    /// What people should read of a migration.
    fn tell_migration(&self, old: &VirtualMachineInstance, new: &VirtualMachineInstance) {
        let state =
            |vmi: &VirtualMachineInstance| vmi.status.as_ref().and_then(|status| status.migration_state.clone());
        let (Some(old), Some(now)) = (state(old), state(new)) else { return };
        if old.completed == now.completed {
            return;
        }
        let node = now.target_node.unwrap_or_default();
        match now.failure_reason.filter(|_| now.failed == Some(true)) {
            Some(why) => {
                tracing::warn!(why, "the migration failed; the guest stays");
                let message = format!("VirtualMachineInstance migration failed: {why}");
                self.record_event(new, Kind::Warning, "Migrated", message);
            }
            None => {
                tracing::info!(node, "the guest has moved");
                let message = format!("The VirtualMachineInstance migrated to node {node}.");
                self.record_event(new, Kind::Normal, "Migrated", message);
            }
        }
    }
}

/// KubeVirt's words, which others look for, and the reason, which helps.
fn crashed(why: &str) -> String {
    let words = "The VirtualMachineInstance crashed";
    if why.is_empty() { format!("{words}.") } else { format!("{words}: {why}.") }
}
