//! What the status of a pool shows.

use api::conditions::{self, ConditionStatus};
use api::pool::{VirtualMachinePool, VirtualMachinePoolCondition as Condition};
use api::vm::VirtualMachine;
use jiff::Timestamp;
use manager::events::Kind;
use manager::selector::Selector;
use manager::writing::{difference, guarded, whole_second};
use serde_json::{Value, json};

use super::Failure;
use crate::vmi::Event;

const PAUSED: &str = "ReplicaPaused";
const FAILURE: &str = "ReplicaFailure";

/// A guarded patch of the status and what is said with it; none if it shows what it should.
pub(super) fn changed(
    pool: &VirtualMachinePool,
    selector: &Selector<'_>,
    active: &[&VirtualMachine],
    failure: Option<&Failure>,
    now: Timestamp,
) -> (Option<Value>, Vec<Event>) {
    let old = pool.status.clone().unwrap_or_default();
    let mut new = old.clone();
    let ready = active.iter().filter(|vm| is_ready(vm)).count();
    new.replicas = i32::try_from(active.len()).ok();
    new.ready_replicas = i32::try_from(ready).ok();
    new.label_selector = Some(selector.to_string());
    let paused = pool.spec.paused == Some(true);
    let was_paused = conditions::find(old.conditions.as_deref(), PAUSED).is_some();
    tell(&mut new.conditions, PAUSED, paused.then_some(("Paused", "Controller got paused")), now);
    let failure = failure.map(|failure| (failure.reason, failure.message.as_str()));
    tell(&mut new.conditions, FAILURE, failure, now);
    let event = |reason, message: &str| Event { kind: Kind::Normal, reason, message: message.to_owned() };
    let events = match (was_paused, paused) {
        (false, true) => vec![event("SuccessfulPaused", "Pool is paused")],
        (true, false) => vec![event("SuccessfulResumed", "Pool is unpaused")],
        (true, true) | (false, false) => Vec::new(),
    };
    let patch = difference(&json!(old), &json!(new));
    (patch.map(|patch| guarded(&pool.metadata, json!({ "status": patch }))), events)
}

fn is_ready(vm: &VirtualMachine) -> bool {
    vm.status.as_ref().is_some_and(|status| status.ready == Some(true))
}

/// Both conditions are there only while they are true.
fn tell(conditions: &mut Option<Vec<Condition>>, kind: &str, why: Option<(&str, &str)>, now: Timestamp) {
    let Some((reason, message)) = why else {
        conditions::remove(conditions, kind);
        return;
    };
    let condition = Condition {
        type_: kind.to_owned(),
        status: ConditionStatus::True,
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        ..Condition::default()
    };
    conditions::set(conditions, condition, whole_second(now).0);
}
