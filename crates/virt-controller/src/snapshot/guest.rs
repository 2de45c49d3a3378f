//! What an instance says of its guest.

use api::conditions::{self, ConditionStatus};
use api::vmi::VirtualMachineInstance;

/// The condition of an instance whose vCPUs stand still.
const PAUSED: &str = "Paused";

/// Whether the guest stands still until somebody asks for it to go on.
pub(super) fn is_paused(vmi: &VirtualMachineInstance) -> bool {
    condition(vmi, PAUSED) && !waits_for_disk(vmi)
}

/// Whether the guest stands still because of a disk. virt-handler lets it try again by itself.
pub(super) fn waits_for_disk(vmi: &VirtualMachineInstance) -> bool {
    let all = vmi.status.as_ref().and_then(|status| status.conditions.as_deref());
    let paused = conditions::find(all, PAUSED).filter(|_| condition(vmi, PAUSED));
    paused.is_some_and(|paused| paused.reason.as_deref() == Some("PausedIOError"))
}

pub(super) fn has_agent(vmi: &VirtualMachineInstance) -> bool {
    condition(vmi, "AgentConnected")
}

fn condition(vmi: &VirtualMachineInstance, kind: &str) -> bool {
    let all = vmi.status.as_ref().and_then(|status| status.conditions.as_deref());
    conditions::has(all, kind, &ConditionStatus::True)
}
