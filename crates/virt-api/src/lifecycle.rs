//! What starting, stopping and restarting a VM mean for its object, by its run strategy: KubeVirt's rules, in its words, on which
//! clients rely. Pure.

use api::vm::{
    StateChangeRequestAction as Action, VirtualMachine, VirtualMachineRunStrategy as Strategy,
    VirtualMachineStateChangeRequest as ChangeRequest,
};
use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use serde_json::{Value, json};

/// What a start is given as data, so that the guest waits for somebody to unpause it.
const PAUSED: &str = "paused";
/// The shortest grace period that lets a launcher end as it should.
const SHORTEST_GRACE: i64 = 1;
const RECOVERY: &str = "ManualRecoveryRequired";
const VOLUMES_CHANGE: &str = "VolumesChange";

/// What is written. It holds for the versions of the objects that were looked at, and for no other.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// A merge patch of the instance, which is written first.
    pub instance: Option<Value>,
    /// The VM's.
    pub vm: Change,
}

/// A change of the VM, as a merge patch.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Of the object itself.
    Object(Value),
    /// Of its status.
    Status(Value),
}

impl From<Change> for Plan {
    fn from(vm: Change) -> Self {
        Self { instance: None, vm }
    }
}

/// Why a VM cannot be asked for that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is nothing to start.
    #[error("VM is already running")]
    Running,
    /// There is nothing to stop.
    #[error("VM is not running")]
    NotRunning,
    /// There is nothing to restart.
    #[error("VM is not running: Halted")]
    NothingToRestart,
    /// The run strategy decides about that alone.
    #[error("{strategy} does not support manual {verb} requests")]
    Strategy {
        strategy: Strategy,
        /// What was asked for.
        verb: &'static str,
    },
    /// The run strategy does not run a VM twice. The word is KubeVirt's, and tools look for it.
    #[error("RunStategy {0} does not support manual restart requests")]
    Restart(Strategy),
    /// It is about to start again by itself.
    #[error("RerunOnFailure does not support starting VM from failed state")]
    Failed,
    /// It is stopping already.
    #[error("Halted only supports manual stop requests with a shorter graceperiod")]
    LongerGrace,
    /// Its disks are in a state that people have to look at.
    #[error(
        "VM recovery required: Volume migration failed, leaving some volumes pointing to non-consistent targets; manual intervention is needed to reassign them to their original volumes."
    )]
    Recovery,
    /// Something else was asked for, and is not done yet.
    #[error("unable to complete request: stop/start already underway")]
    Underway,
    /// A number that says nothing.
    #[error("gracePeriod has to be greater or equal to 0")]
    NegativeGrace,
    /// A number that nobody acts on.
    #[error("For force restart, only gracePeriod=0 is supported for now")]
    GraceOfRestart,
}

/// What a refusal is in the words of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The VM is not in a state for that.
    Conflict,
    /// The request is not for any VM.
    Request,
    /// As KubeVirt answers while an earlier request is not done.
    Internal,
}

impl Refusal {
    /// Whose fault it is.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Underway => Fault::Internal,
            Self::NegativeGrace | Self::GraceOfRestart => Fault::Request,
            Self::Running
            | Self::NotRunning
            | Self::NothingToRestart
            | Self::Strategy { .. }
            | Self::Restart(_)
            | Self::Failed
            | Self::LongerGrace
            | Self::Recovery => Fault::Conflict,
        }
    }
}

/// Starts a VM, and lets its guest wait if it is to be paused.
///
/// # Errors
/// When it runs, or its strategy decides about that alone.
pub fn start(vm: &VirtualMachine, vmi: Option<&VirtualMachineInstance>, paused: bool) -> Result<Plan, Refusal> {
    let is_shown = |phase: &Phase| !matches!(phase.to_string().as_str(), "" | "Unknown");
    if vmi.is_some_and(|vmi| !vmi.is_final() && is_shown(vmi.phase())) {
        return Err(Refusal::Running);
    }
    if has(vm, RECOVERY) {
        return Err(Refusal::Recovery);
    }
    let started = || start_request(paused);
    match (strategy(vm), vmi.map(VirtualMachineInstance::phase)) {
        // The controller makes the strategy another one; that alone could not say that it begins paused.
        (Strategy::Halted, _) if paused => ask(vm, &[started()]),
        (Strategy::Halted, _) => Ok(run(vm, true).into()),
        (Strategy::RerunOnFailure, Some(Phase::Failed)) => Err(Refusal::Failed),
        // Nobody else removes what has ended, and before that nothing starts.
        (Strategy::Manual | Strategy::RerunOnFailure, Some(phase)) if phase.is_final() => {
            ask(vm, &vmi.map(stop_request).into_iter().chain([started()]).collect::<Vec<_>>())
        }
        (Strategy::Manual | Strategy::RerunOnFailure, _) => ask(vm, &[started()]),
        (strategy, _) => Err(Refusal::Strategy { strategy, verb: "start" }),
    }
}

/// Stops a VM, within another grace period than its own if one is given.
///
/// # Errors
/// When it does not run, or is stopping already and should not do so sooner.
pub fn stop(vm: &VirtualMachine, vmi: Option<&VirtualMachineInstance>, grace: Option<i64>) -> Result<Plan, Refusal> {
    if grace.is_some_and(|grace| grace < 0) {
        return Err(Refusal::NegativeGrace);
    }
    let live = vmi.filter(|vmi| !vmi.is_final());
    let instance = live.zip(grace).map(|(vmi, grace)| with_grace(vmi, grace));
    let plan = match (strategy(vm), live) {
        (Strategy::Halted | Strategy::Manual | Strategy::RerunOnFailure, None) => return Err(Refusal::NotRunning),
        (Strategy::Halted, Some(vmi)) => {
            let own = vmi.spec.termination_grace_period_seconds;
            if grace.is_none_or(|grace| own.is_some_and(|own| grace >= own)) {
                return Err(Refusal::LongerGrace);
            }
            ask(vm, &[stop_request(vmi)])?
        }
        (Strategy::Manual | Strategy::RerunOnFailure, Some(vmi)) => ask(vm, &[stop_request(vmi)])?,
        // Also between two attempts to start it: it would be started again.
        (Strategy::Always | Strategy::Once, _) => run(vm, false).into(),
        (strategy, _) => return Err(Refusal::Strategy { strategy, verb: "stop" }),
    };
    Ok(Plan { instance, ..plan })
}

/// Stops a VM and starts it again; with a grace period of zero, without waiting for its guest.
///
/// # Errors
/// When it does not run, or its strategy does not allow a second start.
pub fn restart(vm: &VirtualMachine, vmi: Option<&VirtualMachineInstance>, grace: Option<i64>) -> Result<Plan, Refusal> {
    match grace {
        Some(1..) => return Err(Refusal::GraceOfRestart),
        Some(..0) => return Err(Refusal::NegativeGrace),
        Some(0) | None => {}
    }
    if has(vm, VOLUMES_CHANGE) {
        return Err(Refusal::Recovery);
    }
    match (strategy(vm), vmi) {
        (strategy @ (Strategy::Halted | Strategy::Once), _) => Err(Refusal::Restart(strategy)),
        (_, None) => Err(Refusal::NothingToRestart),
        (_, Some(vmi)) => {
            let plan = ask(vm, &[stop_request(vmi), start_request(false)])?;
            let instance = grace.filter(|_| !vmi.is_final()).map(|_| with_grace(vmi, SHORTEST_GRACE));
            Ok(Plan { instance, ..plan })
        }
    }
}

/// The strategy, also where it is said in the old way.
fn strategy(vm: &VirtualMachine) -> Strategy {
    let old = || if vm.spec.running == Some(true) { Strategy::Always } else { Strategy::Halted };
    vm.spec.run_strategy.clone().unwrap_or_else(old)
}

fn has(vm: &VirtualMachine, condition: &str) -> bool {
    let conditions = vm.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|one| one.type_ == condition && one.status.to_string() == "True")
}

/// In the field that the user has chosen.
fn run(vm: &VirtualMachine, on: bool) -> Change {
    let strategy = if on { Strategy::Always } else { Strategy::Halted };
    let spec = if vm.spec.running.is_some() {
        json!({ "running": on })
    } else {
        json!({ "runStrategy": strategy.to_string() })
    };
    Change::Object(json!({ "metadata": seen(&vm.metadata), "spec": spec }))
}

/// Asks the VM's controller. What was asked for before must be done first, but a stop takes the place of all that.
fn ask(vm: &VirtualMachine, requests: &[ChangeRequest]) -> Result<Plan, Refusal> {
    let status = vm.status.as_ref();
    let has_earlier = status.is_some_and(|status| status.state_change_requests.iter().flatten().next().is_some());
    let is_stop = matches!(requests, [one] if one.action == Action::Stop);
    if has_earlier && !is_stop {
        return Err(Refusal::Underway);
    }
    let mut changed = json!({ "stateChangeRequests": requests });
    // Whoever asks does not wait for the next attempt.
    if status.is_some_and(|status| status.start_failure.as_ref().is_some()) {
        changed["startFailure"] = Value::Null;
    }
    Ok(Change::Status(json!({ "metadata": seen(&vm.metadata), "status": changed })).into())
}

fn with_grace(vmi: &VirtualMachineInstance, seconds: i64) -> Value {
    json!({ "metadata": seen(&vmi.metadata), "spec": { "terminationGracePeriodSeconds": seconds } })
}

fn seen(metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> Value {
    json!({ "uid": metadata.uid, "resourceVersion": metadata.resource_version })
}

fn start_request(paused: bool) -> ChangeRequest {
    let data = paused.then(|| [(PAUSED.to_owned(), "true".to_owned())].into());
    ChangeRequest { action: Action::Start, data, ..ChangeRequest::default() }
}

fn stop_request(vmi: &VirtualMachineInstance) -> ChangeRequest {
    ChangeRequest { action: Action::Stop, uid: vmi.metadata.uid.clone(), ..ChangeRequest::default() }
}

#[cfg(test)]
mod tests;
