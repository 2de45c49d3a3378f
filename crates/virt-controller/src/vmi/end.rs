//! The end of an instance: its pods first, then the finalizer that kept it.

use api::names::finalizer;
use api::vmi_status::VirtualMachineInstancePhase as Phase;

use super::{Deletion, Making, pods};

impl Making<'_> {
    /// Somebody asked for its end. Deleting the pod lets its launcher shut the guest down.
    pub(super) fn end(&mut self) {
        let live = self.seen.pods.iter().filter(|pod| !pods::is_terminating(pod));
        self.plan.delete.extend(live.map(|pod| Deletion { target: pods::target(pod), grace: None, version: None }));
        if !self.seen.pods.is_empty() {
            return;
        }
        if !self.next.is_final() {
            self.enter(Phase::Failed);
        }
        if let Some(finalizers) = &mut self.next.metadata.finalizers {
            finalizers.retain(|one| one != finalizer::VMI);
        }
    }
}
