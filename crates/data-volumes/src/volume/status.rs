//! What the status of a DataVolume shows.

use api::conditions::{self, ConditionStatus};
use api::data_volume::{DataVolume, DataVolumeCondition, DataVolumePhase as Phase};
use jiff::Timestamp;
use kube::ResourceExt as _;
use manager::events::Kind;
use manager::writing::{difference, guarded, whole_second};
use serde_json::{Value, json};

use super::Told;

/// What is said of a new phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) kind: Kind,
    pub(super) reason: String,
    pub(super) message: String,
}

/// A guarded patch of the status, and what is said with it; none if it shows what it should.
pub(super) fn changed(volume: &DataVolume, told: &Told, now: Timestamp) -> (Option<Value>, Option<Event>) {
    let old = volume.status.clone().unwrap_or_default();
    let mut new = old.clone();
    let Told { phase, is_bound, is_running, message, progress, restarts } = told;
    new.phase = Some(phase.clone());
    new.claim_name = volume.metadata.name.clone();
    new.progress = progress.clone().or_else(|| old.progress.clone()).or_else(|| Some("N/A".to_owned()));
    new.restart_count = restarts.or(old.restart_count);
    let now = whole_second(now).0;
    let truth = |is: bool| if is { ConditionStatus::True } else { ConditionStatus::False };
    let is_over = *phase == Phase::Succeeded;
    let (bound, claim) = match is_bound {
        true => ("Bound", format!("PVC {} Bound", volume.name_any())),
        false => ("Pending", message.clone()),
    };
    let running = match (is_running, phase) {
        (Some(true), _) => "Pod is running",
        (Some(false), Phase::Succeeded) => "Completed",
        (Some(false), _) => "Error",
        (None, _) => "",
    };
    let told = [
        ("Bound", truth(*is_bound), bound, claim),
        ("Running", truth(*is_running == Some(true)), running, message.clone()),
        ("Ready", truth(is_over), phase_word(phase), if is_over { String::new() } else { message.clone() }),
    ];
    for (type_, status, reason, message) in told {
        let condition = DataVolumeCondition {
            type_: type_.to_owned(),
            status,
            reason: (!reason.is_empty()).then(|| reason.to_owned()),
            message: (!message.is_empty()).then_some(message),
            ..DataVolumeCondition::default()
        };
        conditions::set(&mut new.conditions, condition, now);
    }
    let event = (old.phase.as_ref() != Some(phase)).then(|| Event {
        kind: if *phase == Phase::Failed { Kind::Warning } else { Kind::Normal },
        reason: match phase {
            Phase::Succeeded => "ImportSucceeded".to_owned(),
            Phase::Failed => "ImportFailed".to_owned(),
            other => other.to_string(),
        },
        message: if is_over { format!("PVC {} is populated", volume.name_any()) } else { message.clone() },
    });
    let patch = difference(&json!(old), &json!(new)).map(|patch| guarded(&volume.metadata, json!({ "status": patch })));
    (patch, event)
}

fn phase_word(phase: &Phase) -> &'static str {
    match phase {
        Phase::Succeeded => "Succeeded",
        Phase::Failed => "Failed",
        Phase::WaitForFirstConsumer => "WaitForFirstConsumer",
        _ => "TransferRunning",
    }
}
