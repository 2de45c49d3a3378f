//! What the status of a VM tells.

use api::conditions::{self, ConditionStatus};
use api::names::annotation;
use api::nullable::Nullable;
use api::vm::{
    StateChangeRequestAction, VirtualMachine, VirtualMachineCondition, VirtualMachineRunStrategy as Strategy,
    VirtualMachineStateChangeRequest, VirtualMachineStatus,
};
use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use manager::writing::{difference, whole_second};
use serde_json::{Value, json};

use super::{Making, as_strategy_sees_it, backoff, patch_of, printable, revision, run_strategy, strategy};
use crate::vmi::Event;

const READY: &str = "Ready";
const FAILURE: &str = "Failure";
const RESTART_REQUIRED: &str = "RestartRequired";
/// The instance's, and the VM's own while it has none.
const PROVISIONING: &str = "Provisioning";
/// Conditions that are the VM's own; all others are its instance's.
const OWN: [&str; 5] = [READY, FAILURE, RESTART_REQUIRED, "ManualRecoveryRequired", "Initialized"];

impl Making<'_> {
    /// A merge patch of the status; none if it tells what it should.
    pub(super) fn status(&mut self) -> Option<Value> {
        let vm = self.seen.vm;
        let old = vm.status.clone().unwrap_or_default();
        let mut new = old.clone();
        let instance = self.mine;
        let is_ready = |one: &&VirtualMachineInstance| {
            let conditions = one.status.as_ref().and_then(|status| status.conditions.as_deref());
            one.is_running() && conditions::has(conditions, READY, &ConditionStatus::True)
        };
        new.created = instance.map(|_| true);
        new.ready = instance.filter(is_ready).map(|_| true);
        new.desired_generation = vm.metadata.generation;
        if let Some(instance) = instance {
            new.observed_generation = started_from(vm, instance);
        }
        // That a VM becomes RerunOnFailure makes it start: it is told when that is done, whatever stands in the way first.
        if !self.starts || strategy(vm) != Strategy::RerunOnFailure {
            new.run_strategy = Some(strategy(vm));
        }
        new.state_change_requests = self.requests(&old);
        new.start_failure = self.start_failure(&old);
        if let Ok(chosen) = &self.seen.chosen {
            new.instancetype_ref = chosen.instancetype_ref.clone().map_or(Nullable::Absent, Nullable::Value);
            new.preference_ref = chosen.preference_ref.clone().map_or(Nullable::Absent, Nullable::Value);
        }
        let volumes = &self.seen.volumes;
        let copyable = self.seen.snapshot_classes.statuses(vm, &volumes.claims, volumes.data_volumes.as_ref());
        new.volume_snapshot_statuses = Some(copyable).filter(|all| !all.is_empty());
        self.tell_conditions(&mut new);
        let told = VirtualMachine { status: Some(new.clone()), ..vm.clone() };
        new.printable_status = Some(printable::word(&told, instance, self.printable_volumes()));
        let patch = difference(&json!(old), &json!(new))?;
        Some(patch_of(&vm.metadata, json!({ "status": patch })))
    }

    fn requests(&self, old: &VirtualMachineStatus) -> Option<Vec<VirtualMachineStateChangeRequest>> {
        let known = old.state_change_requests.as_deref().unwrap_or_default();
        let mut open = run_strategy::still_open(known, self.mine.map(as_strategy_sees_it));
        if strategy(self.seen.vm) == Strategy::Once && self.mine.is_some() {
            // It started once, and its end is its own: what was asked for before it became so will never be done.
            open.retain(|one| matches!(one.action, StateChangeRequestAction::Other(_)));
        }
        let starts = |one: &VirtualMachineStateChangeRequest| one.action == StateChangeRequestAction::Start;
        if self.again && !open.iter().any(starts) {
            let action = StateChangeRequestAction::Start;
            open.push(VirtualMachineStateChangeRequest { action, ..VirtualMachineStateChangeRequest::default() });
        }
        Some(open).filter(|open| !open.is_empty())
    }

    /// Failed starts are counted while somebody tries again, and forgotten when one works.
    fn start_failure(&self, old: &VirtualMachineStatus) -> Nullable<api::vm::VirtualMachineStartFailure> {
        let tries = match strategy(self.seen.vm) {
            Strategy::Always | Strategy::Once => true,
            Strategy::RerunOnFailure => self.mine.is_some() || self.starts,
            _ => false,
        };
        let ran = self.mine.is_some_and(|instance| instance.is_running() || has_run(instance));
        if !tries || ran {
            return Nullable::Absent;
        }
        let known = old.start_failure.as_ref();
        match self.mine.filter(|instance| instance.is_final() && !ended_by_deletion(instance)) {
            Some(failed) => {
                let uid = failed.metadata.uid.as_deref().unwrap_or_default();
                Nullable::Value(backoff::after_failure(known, uid, whole_second(self.now).0, self.seen.chance))
            }
            None => old.start_failure.clone(),
        }
    }

    fn tell_conditions(&mut self, status: &mut VirtualMachineStatus) {
        let now = whole_second(self.now).0;
        let of_instance = self.mine.and_then(|one| one.status.as_ref()?.conditions.as_deref()).unwrap_or_default();
        let mirrored: Vec<VirtualMachineCondition> = of_instance.iter().map(mirror).collect();
        let waits = self.volume_wait();
        let known = &mut status.conditions;
        if let Some(known) = known {
            let has =
                |kind: &str| mirrored.iter().any(|one| one.type_ == kind) || (kind == PROVISIONING && waits.is_some());
            known.retain(|one| OWN.contains(&one.type_.as_str()) || has(&one.type_));
        }
        for condition in mirrored.iter().filter(|one| one.type_ != READY) {
            put(known, condition.clone());
        }
        match mirrored.iter().find(|one| one.type_ == READY) {
            Some(ready) => put(known, ready.clone()),
            None => {
                let (reason, message) = match self.mine {
                    None => ("VMINotExists", "VMI does not exist"),
                    Some(_) => ("VMIConditionMissing", "VMI is missing the Ready condition"),
                };
                conditions::set(known, condition(READY, false, reason, message), now);
            }
        }
        if let Some(message) = waits {
            conditions::set(known, condition(PROVISIONING, true, "VolumesNotReady", &message), now);
        }
        let failure = self.problem.clone().or_else(|| Some(("FailedCreate", self.seen.failure?.to_owned())));
        match failure {
            Some((reason, message)) => {
                let news = conditions::set(known, condition(FAILURE, true, reason, &message), now);
                if news && self.problem.is_some() {
                    self.plan.events.push(Event::warning(reason, message));
                }
            }
            None => drop(conditions::remove(known, FAILURE)),
        }
        let waits_for_start = mirrored.iter().any(|one| one.type_ == RESTART_REQUIRED);
        let going = self.mine.is_none_or(|one| one.is_marked_for_deletion() || one.is_final());
        match self.needs_restart() {
            Some(true) if !going => {
                let message = "a non-live-updatable field was changed in the template spec";
                let required = condition(RESTART_REQUIRED, true, "RestartRequired", message);
                conditions::set(known, required, now);
            }
            // Its launcher says so: a field that can be changed in the template, and not in this guest while it runs.
            _ if !going && waits_for_start => {}
            _ => drop(conditions::remove(known, RESTART_REQUIRED)),
        }
        if known.as_ref().is_some_and(Vec::is_empty) {
            *known = None;
        }
    }
}

/// The generation of the VM that an instance was started from, or has been told of since. Of an instance that another VM
/// made, or nobody, there is none.
fn started_from(vm: &VirtualMachine, instance: &VirtualMachineInstance) -> Option<i64> {
    let name = instance.status.as_ref()?.virtual_machine_revision_name.as_deref()?;
    let own = name.starts_with(&revision::prefix(vm.metadata.uid.as_deref().unwrap_or_default()));
    let annotations = instance.metadata.annotations.as_ref().filter(|_| own)?;
    annotations.get(annotation::VM_GENERATION)?.parse().ok()
}

/// Whether an instance has ever run.
fn has_run(instance: &VirtualMachineInstance) -> bool {
    let entered = instance.status.iter().flat_map(|status| status.phase_transition_timestamps.iter().flatten());
    entered.into_iter().any(|one| one.phase == Some(Phase::Running))
}

/// Whether an instance ended because somebody deleted it: that is no failure.
fn ended_by_deletion(instance: &VirtualMachineInstance) -> bool {
    let Some(asked) = &instance.metadata.deletion_timestamp else { return false };
    let entered = instance.status.iter().flat_map(|status| status.phase_transition_timestamps.iter().flatten());
    let ended = entered.last().and_then(|one| one.phase_transition_timestamp.as_ref());
    ended.is_some_and(|ended| ended >= asked)
}

fn mirror(condition: &api::vmi_status::VirtualMachineInstanceCondition) -> VirtualMachineCondition {
    VirtualMachineCondition {
        type_: condition.type_.clone(),
        status: condition.status.clone(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        last_transition_time: condition.last_transition_time.clone(),
        last_probe_time: Nullable::Absent,
    }
}

/// As it came, its time included.
fn put(known: &mut Option<Vec<VirtualMachineCondition>>, condition: VirtualMachineCondition) {
    let list = known.get_or_insert_default();
    match list.iter_mut().find(|one| one.type_ == condition.type_) {
        Some(old) => *old = condition,
        None => list.push(condition),
    }
}

fn condition(kind: &str, holds: bool, reason: &str, message: &str) -> VirtualMachineCondition {
    VirtualMachineCondition {
        type_: kind.to_owned(),
        status: if holds { ConditionStatus::True } else { ConditionStatus::False },
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        ..VirtualMachineCondition::default()
    }
}
