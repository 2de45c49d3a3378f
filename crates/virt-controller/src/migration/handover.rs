//! The hand-over to the two handlers, and what they say afterwards.

use api::migration::{
    MigrationAbortStatus, VirtualMachineInstanceMigrationPhase as Phase,
    VirtualMachineInstanceMigrationSourceState as SourceState, VirtualMachineInstanceMigrationState as State,
    VirtualMachineInstanceMigrationTargetState as TargetState,
};
use api::names::label;
use api::vmi::VirtualMachineInstance;
use manager::events::Kind;
use manager::writing::whole_second;

use super::waiting::holds;
use super::{Making, policy};
use crate::vmi::{change, pods};

/// Shown while a migration that was handed over is being cancelled.
const ABORT_REQUESTED: &str = "migrationAbortRequested";

impl Making<'_> {
    /// Scheduled: both handlers are told in one write of the instance.
    pub(super) fn hand_over(&mut self, vmi: &VirtualMachineInstance) {
        let Some(pod) = self.target else { return self.fail("the target pod is gone") };
        if pods::has_ended(pod) || pods::is_terminating(pod) || !pods::is_ready_to_run(pod) {
            return self.fail("the target pod ended before the guest came");
        }
        let Some(source) = self.seen.pods.iter().copied().find(|pod| holds(pod, vmi)) else {
            return self.fail("the launcher that runs the guest is gone");
        };
        let (from, to) = (pods::node(source), pods::node(pod));
        // Two launchers of an instance on one node cannot be told apart there.
        if from == to {
            return self.fail("the target pod is on the node that the guest is on");
        }
        let Some(input) = &self.seen.input else { return };
        let labels = vmi.metadata.labels.clone().unwrap_or_default();
        let policy = policy::best(&self.seen.policies, &labels, &input.namespace.labels);
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        let state = State {
            migration_uid: Some(self.uid().to_owned()),
            source_node: Some(from.to_owned()),
            source_pod: source.metadata.name.clone(),
            target_node: Some(to.to_owned()),
            target_pod: pod.metadata.name.clone(),
            source_state: Some(SourceState {
                migration_uid: Some(self.uid().to_owned()),
                node: Some(from.to_owned()),
                pod: source.metadata.name.clone(),
                virtual_machine_instance_uid: vmi.metadata.uid.clone(),
                ..SourceState::default()
            }),
            target_state: Some(TargetState {
                migration_uid: Some(self.uid().to_owned()),
                node: Some(to.to_owned()),
                pod: pod.metadata.name.clone(),
                virtual_machine_instance_uid: vmi.metadata.uid.clone(),
                ..TargetState::default()
            }),
            migration_configuration: Some(policy::resolve(&input.config.migrations(), policy)),
            migration_policy_name: policy.and_then(|policy| policy.metadata.name.clone()),
            migration_network_type: Some("Pod".to_owned()),
            ..State::default()
        };
        let mut next = vmi.clone();
        let labels = next.metadata.labels.get_or_insert_default();
        labels.insert(label::MIGRATION_TARGET_NODE_NAME.to_owned(), to.to_owned());
        let status = next.status.get_or_insert_default();
        // The target's handler knows its launcher by this.
        status.active_pods.get_or_insert_default().insert(text(&pod.metadata.uid), to.to_owned());
        status.migration_state = Some(state.clone());
        self.plan.vmi = change(vmi, &next);
        self.status.migration_state = Some(state);
        self.enter(Phase::PreparingTarget);
        let message = "Migration target pod is ready for preparation by virt-handler.";
        self.tell(Kind::Normal, "SuccessfulHandOver", message);
    }

    /// The instance names this migration: what the handlers say counts.
    pub(super) fn follow_handlers(&mut self, vmi: &VirtualMachineInstance, state: &State) {
        if state.completed == Some(true) || state.failed == Some(true) || state.end_timestamp.as_ref().is_some() {
            return self.conclude(state);
        }
        if self.is_cancelled() && state.abort_requested != Some(true) {
            return self.request_abort(vmi);
        }
        let has_begun = state.start_timestamp.as_ref().is_some();
        let has_ended = self.target.is_none_or(|pod| pods::has_ended(pod) || pods::is_terminating(pod));
        if !has_begun && has_ended {
            return self.give_up(vmi, "the target pod ended before the guest came");
        }
        let next = match (has_begun, &state.target_node_address) {
            (true, _) => Phase::Running,
            (false, Some(_)) => Phase::TargetReady,
            (false, None) => Phase::PreparingTarget,
        };
        // A cache may show an instance from before what this migration has already seen.
        if self.status.phase.as_ref().is_none_or(|phase| *phase < next) {
            self.status.migration_state = Some(state.clone());
            self.enter(next);
        }
    }

    /// The handlers have said how it ended.
    fn conclude(&mut self, state: &State) {
        self.status.migration_state = Some(state.clone());
        if state.failed == Some(true) {
            let reason = state.failure_reason.as_deref().unwrap_or("the guest stays where it was");
            let event = match state.abort_status {
                Some(MigrationAbortStatus::Succeeded) => (Kind::Normal, "SuccessfulAbortMigration"),
                _ => (Kind::Warning, "FailedMigration"),
            };
            self.enter(Phase::Failed);
            self.tell(event.0, event.1, format!("the migration failed: {reason}"));
        } else {
            self.enter(Phase::Succeeded);
            let node = state.target_node.as_deref().unwrap_or_default();
            self.tell(Kind::Normal, "SuccessfulMigration", format!("Source node reported migration succeeded: {node}"));
        }
    }

    /// Only the handlers know whether there is something left to cancel.
    fn request_abort(&mut self, vmi: &VirtualMachineInstance) {
        let mut next = vmi.clone();
        if let Some(state) = next.status.as_mut().and_then(|status| status.migration_state.as_mut()) {
            state.abort_requested = Some(true);
        }
        self.plan.vmi = change(vmi, &next);
        let why = ("UserRequested", "the migration was deleted, which cancels it");
        self.condition(ABORT_REQUESTED, Some(why));
    }

    /// Nothing was sent. The write carries the version that was seen: a source that begins at this moment makes it fail.
    fn give_up(&mut self, vmi: &VirtualMachineInstance, reason: &str) {
        let mut next = vmi.clone();
        if let Some(labels) = &mut next.metadata.labels {
            labels.remove(label::MIGRATION_TARGET_NODE_NAME);
        }
        if let Some(state) = next.status.as_mut().and_then(|status| status.migration_state.as_mut()) {
            state.completed = Some(true);
            state.failed = Some(true);
            state.failure_reason = Some(reason.to_owned());
            state.end_timestamp = Some(whole_second(self.now)).into();
        }
        self.plan.vmi = change(vmi, &next);
    }
}
