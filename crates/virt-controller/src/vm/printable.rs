//! The one word that people read in `kubectl get vm`.

use api::conditions::{self, ConditionStatus};
use api::vm::{StateChangeRequestAction, VirtualMachine, VirtualMachinePrintableStatus, VirtualMachineRunStrategy};
use api::vmi::VirtualMachineInstance;
use api::vmi_status::{VirtualMachineInstanceCondition, VirtualMachineInstancePhase};

use VirtualMachinePrintableStatus as Word;

/// How the volumes of a VM are that others make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volumes {
    /// The import of one has failed.
    pub failed: bool,
    /// One is still being made.
    pub provisioning: bool,
    /// A claim is not bound, and nobody is about to make it so.
    pub unbound: bool,
}

/// The word for a VM and its instance. The first that fits, in the order of [`ORDER`].
#[must_use]
pub fn word(vm: &VirtualMachine, instance: Option<&VirtualMachineInstance>, volumes: Volumes) -> Word {
    let seen = Seen { vm, instance, volumes };
    ORDER.iter().find(|(_, fits)| fits(&seen)).map_or(Word::Unknown, |(word, _)| word.clone())
}

struct Seen<'a> {
    vm: &'a VirtualMachine,
    instance: Option<&'a VirtualMachineInstance>,
    volumes: Volumes,
}

type Fits = fn(&Seen<'_>) -> bool;

/// Most urgent first: what ends comes before what runs, and why it does not run before that it does not.
const ORDER: &[(Word, Fits)] = &[
    (Word::Terminating, |seen| seen.vm.metadata.deletion_timestamp.is_some()),
    (Word::Stopping, |seen| seen.is_stopping()),
    (Word::Migrating, |seen| !seen.is_over() && seen.is_migrating()),
    // What was true of a guest when its launcher vanished still stands there.
    (Word::Paused, |seen| !seen.is_over() && seen.holds("Paused")),
    (Word::Running, |seen| seen.instance.is_some_and(VirtualMachineInstance::is_running)),
    (Word::PvcNotFound, |seen| seen.not_synchronized_because("FailedPvcNotFound")),
    (Word::DataVolumeError, |seen| seen.volumes.failed),
    (Word::Unschedulable, |seen| seen.fails("PodScheduled", "Unschedulable")),
    (Word::Provisioning, |seen| seen.volumes.provisioning || seen.holds("Provisioning")),
    (Word::WaitingForVolumeBinding, |seen| seen.volumes.unbound),
    (Word::ErrImagePull, |seen| seen.not_synchronized_because("ErrImagePull")),
    (Word::ImagePullBackOff, |seen| seen.not_synchronized_because("ImagePullBackOff")),
    (Word::Starting, |seen| seen.is_starting()),
    (Word::CrashLoopBackOff, |seen| seen.waits_after_failures()),
    (Word::Stopped, |seen| seen.is_over()),
];

impl Seen<'_> {
    /// There is no instance, or it has ended.
    fn is_over(&self) -> bool {
        self.instance.is_none_or(VirtualMachineInstance::is_final)
    }

    fn conditions(&self) -> Option<&[VirtualMachineInstanceCondition]> {
        self.instance?.status.as_ref()?.conditions.as_deref()
    }

    fn holds(&self, kind: &str) -> bool {
        conditions::has(self.conditions(), kind, &ConditionStatus::True)
    }

    fn fails(&self, kind: &str, reason: &str) -> bool {
        let condition = conditions::find(self.conditions(), kind);
        condition.is_some_and(|one| one.status == ConditionStatus::False && one.reason.as_deref() == Some(reason))
    }

    fn not_synchronized_because(&self, reason: &str) -> bool {
        self.fails("Synchronized", reason)
    }

    fn is_stopping(&self) -> bool {
        let Some(instance) = self.instance.filter(|_| !self.is_over()) else { return false };
        let first = self.vm.status.as_ref().and_then(|status| status.state_change_requests.as_deref()?.first());
        let asked = first.is_some_and(|one| {
            one.action == StateChangeRequestAction::Stop && one.uid.is_some() && one.uid == instance.metadata.uid
        });
        instance.is_marked_for_deletion() || asked
    }

    fn is_migrating(&self) -> bool {
        let state = self.instance.and_then(|one| one.status.as_ref()?.migration_state.as_ref());
        state.is_some_and(|state| state.start_timestamp.as_ref().is_some() && state.end_timestamp.as_ref().is_none())
    }

    fn is_starting(&self) -> bool {
        use VirtualMachineInstancePhase::{Pending, Scheduled, Scheduling, Unset};
        self.instance.is_some_and(|one| matches!(one.phase(), Unset | Pending | Scheduling | Scheduled))
    }

    fn waits_after_failures(&self) -> bool {
        use VirtualMachineRunStrategy::{Always, Once, RerunOnFailure};
        let failures = self.vm.status.as_ref().and_then(|status| status.start_failure.as_ref()?.consecutive_fail_count);
        let strategy = self.vm.spec.run_strategy.as_ref();
        let restarts = matches!(strategy, Some(Always | RerunOnFailure | Once)) || self.vm.spec.running == Some(true);
        self.is_over() && restarts && failures.is_some_and(|count| count > 0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn vm(value: &Value) -> VirtualMachine {
        let mut object = json!({ "metadata": {}, "spec": { "runStrategy": "Always", "template": {} } });
        for (key, value) in value.as_object().unwrap() {
            object[key] = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    fn vmi(phase: &str, conditions: &[(&str, &str, &str)]) -> VirtualMachineInstance {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(kind, status, reason)| json!({ "type": kind, "status": status, "reason": reason }))
            .collect();
        let status = json!({ "phase": phase, "conditions": conditions });
        serde_json::from_value(
            json!({ "metadata": { "uid": "u" }, "spec": { "domain": { "devices": {} } }, "status": status }),
        )
        .unwrap()
    }

    fn plain(instance: Option<&VirtualMachineInstance>) -> Word {
        word(&vm(&json!({})), instance, Volumes::default())
    }

    #[test]
    fn an_instance_on_its_way() {
        for phase in ["", "Pending", "Scheduling", "Scheduled"] {
            assert_eq!(plain(Some(&vmi(phase, &[]))), Word::Starting, "{phase}");
        }
        assert_eq!(plain(Some(&vmi("Running", &[]))), Word::Running);
        assert_eq!(plain(Some(&vmi("Running", &[("Paused", "True", "")]))), Word::Paused);
        assert_eq!(plain(Some(&vmi("Succeeded", &[]))), Word::Stopped);
        let vanished = vmi("Failed", &[("Paused", "True", "")]);
        assert_eq!(plain(Some(&vanished)), Word::Stopped, "nothing is paused any more");
        assert_eq!(plain(None), Word::Stopped);
        assert_eq!(plain(Some(&vmi("FromTomorrow", &[]))), Word::Unknown);
    }

    #[test]
    fn why_it_does_not_start_comes_before_that_it_starts() {
        let synchronized = |reason| plain(Some(&vmi("Scheduling", &[("Synchronized", "False", reason)])));
        assert_eq!(synchronized("FailedPvcNotFound"), Word::PvcNotFound);
        assert_eq!(synchronized("ErrImagePull"), Word::ErrImagePull);
        assert_eq!(synchronized("ImagePullBackOff"), Word::ImagePullBackOff);
        assert_eq!(synchronized("Other"), Word::Starting);
        let unschedulable = vmi("Scheduling", &[("PodScheduled", "False", "Unschedulable")]);
        assert_eq!(plain(Some(&unschedulable)), Word::Unschedulable);
        let volumes =
            |failed, provisioning, unbound| word(&vm(&json!({})), None, Volumes { failed, provisioning, unbound });
        assert_eq!(volumes(true, true, true), Word::DataVolumeError);
        assert_eq!(volumes(false, true, true), Word::Provisioning);
        assert_eq!(volumes(false, false, true), Word::WaitingForVolumeBinding);
    }

    #[test]
    fn what_ends_comes_first() {
        let deleted = vm(&json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }));
        assert_eq!(word(&deleted, Some(&vmi("Running", &[])), Volumes::default()), Word::Terminating);
        let asked = vm(&json!({ "status": { "stateChangeRequests": [{ "action": "Stop", "uid": "u" }] } }));
        assert_eq!(word(&asked, Some(&vmi("Running", &[])), Volumes::default()), Word::Stopping);
        assert_eq!(word(&asked, Some(&vmi("Failed", &[])), Volumes::default()), Word::Stopped);
        let mut going = vmi("Running", &[("Paused", "True", "")]);
        going.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
        assert_eq!(plain(Some(&going)), Word::Stopping);
    }

    #[test]
    fn a_vm_that_keeps_failing_says_so_unless_nobody_wants_it_to_run() {
        let failing = json!({ "startFailure": { "consecutiveFailCount": 2 } });
        let wants = vm(&json!({ "status": failing }));
        assert_eq!(word(&wants, None, Volumes::default()), Word::CrashLoopBackOff);
        assert_eq!(word(&wants, Some(&vmi("Failed", &[])), Volumes::default()), Word::CrashLoopBackOff);
        assert_eq!(word(&wants, Some(&vmi("Running", &[])), Volumes::default()), Word::Running);
        let halted = vm(&json!({ "status": failing, "spec": { "runStrategy": "Halted", "template": {} } }));
        assert_eq!(word(&halted, None, Volumes::default()), Word::Stopped);
        let by_the_old_field = vm(&json!({ "status": failing, "spec": { "running": true, "template": {} } }));
        assert_eq!(word(&by_the_old_field, None, Volumes::default()), Word::CrashLoopBackOff);
    }

    proptest! {
        /// The word is the first of the order that fits, whatever else fits.
        #[test]
        fn the_order_decides(
            phase in prop::sample::select(vec!["", "Pending", "Scheduling", "Scheduled", "Running", "Succeeded", "Failed"]),
            paused: bool, unschedulable: bool, failed: bool, provisioning: bool, unbound: bool,
        ) {
            let mut conditions = Vec::new();
            if paused {
                conditions.push(("Paused", "True", ""));
            }
            if unschedulable {
                conditions.push(("PodScheduled", "False", "Unschedulable"));
            }
            let (vm, instance) = (vm(&json!({})), vmi(phase, &conditions));
            let volumes = Volumes { failed, provisioning, unbound };
            let seen = Seen { vm: &vm, instance: Some(&instance), volumes };
            let fitting: Vec<&Word> = ORDER.iter().filter(|(_, fits)| fits(&seen)).map(|(word, _)| word).collect();
            prop_assert_eq!(Some(&word(&vm, Some(&instance), volumes)), fitting.first().copied());
        }
    }
}
