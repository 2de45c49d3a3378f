//! The target of a restore and the snapshot that it is made of: whether both are as they must be, and the target's lock.

use std::time::Duration;

use api::conditions;
use api::restore::TargetReadinessPolicy as Policy;
use api::snapshot::{
    VirtualMachineSnapshot as Snapshot, VirtualMachineSnapshotContent as Content, VirtualMachineSnapshotPhase as Phase,
};
use api::vm::VirtualMachine;
use manager::writing::guarded;
use serde_json::json;

use super::words::{GRACE_EXCEEDED, MUST_BE_OFF, STILL_THERE, STOPPING, WAIT_EVENTUALLY, WAIT_GRACE};
use super::{Making, Problem};
use crate::snapshot::{is_ready, phase, put};
use crate::vmi::Event;

/// How long a target may take to stop, where the restore does not say otherwise.
const GRACE: Duration = Duration::from_secs(5 * 60);

impl<'a> Making<'a> {
    /// The target runs.
    pub(super) fn wait_for_target(&mut self) {
        let restore = self.seen.restore;
        match restore.spec.target_readiness_policy.as_ref().unwrap_or(&Policy::WaitGracePeriod) {
            Policy::WaitEventually => self.not_ready(WAIT_EVENTUALLY, STILL_THERE),
            Policy::StopTarget => {
                // Asked once: the status tells.
                let all = self.status.conditions.as_deref();
                let told = conditions::find(all, "Progressing").and_then(|one| one.reason.as_deref());
                self.plan.stop = told != Some(STOPPING);
                self.not_ready(STOPPING, STOPPING);
            }
            Policy::WaitGracePeriod => {
                let begun = restore.metadata.creation_timestamp.as_ref().map_or(self.now, |at| at.0);
                let left = Duration::try_from((begun + GRACE).duration_since(self.now)).unwrap_or(Duration::ZERO);
                if left.is_zero() {
                    self.fail(GRACE_EXCEEDED);
                } else {
                    self.plan.recheck_after = Some(left);
                    self.not_ready(WAIT_GRACE, STILL_THERE);
                }
            }
            Policy::FailImmediate => self.fail(MUST_BE_OFF),
        }
    }

    fn not_ready(&mut self, reason: &str, message: &str) {
        if self.say(false, reason, reason) {
            self.plan.events.push(Event::warning("RestoreTargetNotReady", message));
        }
    }

    fn fail(&mut self, message: &str) {
        self.say(false, message, message);
        put(&mut self.status.conditions, "Failure", true, message, self.now);
        self.plan.events.push(Event::warning("OperationFailed", format!("VirtualMachineRestore failed {message}")));
    }

    pub(super) fn source(&self) -> Result<(&'a Snapshot, &'a Content), Problem> {
        let restore = self.seen.restore;
        let namespace = restore.metadata.namespace.as_deref().unwrap_or_default();
        let name = format!("{namespace}/{}", restore.spec.virtual_machine_snapshot_name);
        let snapshot = self.seen.snapshot.ok_or_else(|| format!("VMSnapshot {name} does not exist"))?;
        // What has begun goes on: a snapshot that is to go stays as long.
        let begun = self.status.restores.is_some();
        if snapshot.metadata.deletion_timestamp.is_some() && !begun {
            return Err(format!("VMSnapshot {name} is being deleted"));
        }
        if *phase(snapshot) == Phase::Failed {
            return Err(format!("VMSnapshot {name} failed and is invalid to use"));
        }
        if !is_ready(snapshot) {
            return Err(format!("VMSnapshot {name} not ready"));
        }
        let content = crate::snapshot::content_name(snapshot);
        let content_name = format!("{namespace}/{content}");
        let content = self.seen.content.ok_or_else(|| format!("VMSnapshotContent {content_name} does not exist"))?;
        if content.metadata.deletion_timestamp.is_some() && !begun {
            return Err(format!("VMSnapshotContent {content_name} is being deleted"));
        }
        match content.status.as_ref().and_then(|status| status.ready_to_use) {
            Some(true) => Ok((snapshot, content)),
            _ => Err(format!("VMSnapshotContent {content_name} not ready")),
        }
    }

    /// Whether the target is locked by this restore.
    pub(super) fn lock(&mut self, vm: &VirtualMachine) -> Result<bool, Problem> {
        let holder = vm.status.as_ref().and_then(|status| status.restore_in_progress.as_deref());
        let own = self.seen.restore.metadata.name.as_deref();
        match holder.filter(|holder| !holder.is_empty()) {
            Some(holder) if Some(holder) == own => Ok(true),
            Some(holder) => Err(format!("vm restore {holder} in progress")),
            None => {
                let status = json!({ "status": { "restoreInProgress": own } });
                self.plan.vm_status = Some(guarded(&vm.metadata, status));
                Ok(false)
            }
        }
    }

    /// Returns whether the lock is gone.
    pub(super) fn unlock(&mut self, vm: &VirtualMachine) -> bool {
        let holder = vm.status.as_ref().and_then(|status| status.restore_in_progress.as_deref());
        if holder.is_none() || holder != self.seen.restore.metadata.name.as_deref() {
            return true;
        }
        let status = json!({ "status": { "restoreInProgress": null, "memoryDumpRequest": null } });
        self.plan.vm_status = Some(guarded(&vm.metadata, status));
        false
    }
}
