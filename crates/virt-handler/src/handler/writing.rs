//! The one write of an instance, and what people read of it.

use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use kube::Api;
use kube::api::{Patch, PatchParams};
use manager::events::Kind;
use manager::worker::Next;

use super::{HandlerError, Inner, LOOK_AGAIN, Work};
use crate::launchers::View;
use crate::node;
use crate::status::{self, Facts};

impl Inner {
    /// Writes what differs, if anything does. Tells when to look again, if that is known.
    pub(super) async fn write_status(
        &self,
        work: &Work,
        vmi: &VirtualMachineInstance,
        phase: Option<&Phase>,
    ) -> Result<Option<Next>, HandlerError> {
        let starts = phase.is_some_and(Phase::is_running) && vmi.phase().is_scheduled();
        // After a crash between the start and its write, the network is there and only its addresses are unknown.
        if starts && let Err(failure) = self.connect_network(work, vmi).await {
            tracing::warn!(error = failure.message, "the guest's addresses are not known");
        }
        let Some(next) = self.next_status(work, vmi, phase) else { return Ok(None) };
        let Some(patch) = status::change(vmi, &next) else { return Ok(None) };
        let api: Api<VirtualMachineInstance> = Api::namespaced(self.client.clone(), &work.key.namespace);
        match api.patch(&work.key.name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(written) => {
                let version = written.metadata.resource_version.as_deref();
                self.writes(|writes| writes.note(work.uid.clone(), version));
                let domain = self.launchers.view(&work.uid).and_then(|view| view.domain);
                self.tell(vmi, &next, domain.map(|domain| domain.reason).unwrap_or_default().as_str());
                Ok(None)
            }
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Some(Next::After(LOOK_AGAIN))),
            Err(error) => Err(HandlerError::Server(error)),
        }
    }

    /// None if nothing is known that could change it.
    fn next_status(
        &self,
        work: &Work,
        vmi: &VirtualMachineInstance,
        phase: Option<&Phase>,
    ) -> Option<VirtualMachineInstance> {
        let (failure, links) = self.known(&work.uid, |known| (known.memory.failure.clone(), known.links.clone()));
        if phase.is_none() && failure.is_none() {
            return None;
        }
        let View { domain, guest, .. } = self.launchers.view(&work.uid).unwrap_or_default();
        let offer = self.found.borrow().offer();
        let wanted = vmi.spec.domain.machine.as_ref().and_then(|machine| machine.type_.as_deref());
        let machine = offer.as_deref().and_then(|offer| node::machine(offer, wanted));
        let facts = Facts {
            domain: domain.as_ref(),
            guest: guest.as_ref(),
            links: links.as_deref(),
            failure: failure.as_ref(),
            machine,
            is_emulated: offer.as_deref().is_some_and(|offer| offer.is_emulated),
        };
        Some(status::next(vmi, phase, &facts, (self.now)()))
    }

    /// What people should read of a new phase.
    fn tell(&self, old: &VirtualMachineInstance, new: &VirtualMachineInstance, why: &str) {
        if old.phase() == new.phase() {
            return;
        }
        tracing::info!(phase = %new.phase(), "the phase of the instance changed");
        let (kind, reason, message) = match new.phase() {
            Phase::Running => (Kind::Normal, "Started", "VirtualMachineInstance started.".to_owned()),
            Phase::Succeeded => (Kind::Normal, "Stopped", "The VirtualMachineInstance was shut down.".to_owned()),
            Phase::Failed => (Kind::Warning, "Stopped", crashed(why)),
            _ => return,
        };
        self.recorder.record(new, kind, reason, message);
    }
}

/// KubeVirt's words, which others look for, and the reason, which helps.
fn crashed(why: &str) -> String {
    let words = "The VirtualMachineInstance crashed";
    if why.is_empty() { format!("{words}.") } else { format!("{words}: {why}.") }
}
