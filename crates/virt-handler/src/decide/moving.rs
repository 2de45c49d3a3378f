//! A migration as the decisions see it: what the instance says of it, how far the launcher is, and what was tried.

use api::migration::VirtualMachineInstanceMigrationState as MigrationState;
use api::vmi::VirtualMachineInstance;
use jiff::Timestamp;
use launcher_api::Outcome;
use launcher_api::rpc::{self, Course, Domain};

use super::{Action, Plan, act, start_again, until};

/// How often something is tried that another node takes part in, before the migration is given up.
const MOST: u32 = 6;

/// The migration that an instance names and that is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moving<'a> {
    pub(crate) state: &'a MigrationState,
    pub(crate) uid: &'a str,
    /// The UID of the source's pod, as long as its containers were not seen to have ended.
    pub(crate) source: Option<&'a str>,
    /// The UID of the target's pod, likewise.
    pub(crate) target: Option<&'a str>,
}

impl<'a> Moving<'a> {
    /// None if nothing is under way.
    pub(crate) fn of(vmi: &'a VirtualMachineInstance) -> Option<Self> {
        let status = vmi.status.as_ref()?;
        let state = status.migration_state.as_ref()?;
        let is_over =
            state.completed == Some(true) || state.failed == Some(true) || state.end_timestamp.as_ref().is_some();
        let uid = state.migration_uid.as_deref().filter(|_| !is_over)?;
        let listed = |node: Option<&str>| {
            let pods = status.active_pods.iter().flatten();
            pods.into_iter().find(|(_, of)| Some(of.as_str()) == node).map(|(pod, _)| pod.as_str())
        };
        let (source, target) = (listed(state.source_node.as_deref()), listed(state.target_node.as_deref()));
        Some(Self { state, uid, source, target })
    }

    /// Whether the source may have sent something.
    pub(crate) fn has_begun(&self) -> bool {
        self.state.start_timestamp.as_ref().is_some()
    }

    /// Whether somebody asked for its end.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.state.abort_requested == Some(true)
    }

    /// It failed, in these words.
    pub(super) fn failed(&self, why: impl Into<String>) -> Plan {
        tell(Milestone::Failed { why: why.into(), is_aborted: self.is_unwanted() })
    }
}

/// How far a launcher has sent its guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Way {
    /// Nowhere, with the migration that counts.
    #[default]
    None,
    Sending,
    Parted,
    Cut,
    Given {
        paused: rpc::Paused,
    },
    Stayed {
        why: String,
    },
}

impl Way {
    /// As the launcher tells it of the migration that the instance names.
    pub(crate) fn of(domain: Option<&Domain>, vmi: Option<&VirtualMachineInstance>) -> Self {
        let named = vmi.and_then(|vmi| vmi.status.as_ref()?.migration_state.as_ref()?.migration_uid.as_deref());
        let told = domain.and_then(|domain| domain.migration.as_ref());
        let Some(told) = told.filter(|told| Some(told.uid.as_str()) == named) else { return Self::None };
        match told.course() {
            Course::Unspecified => Self::None,
            Course::UnderWay => Self::Sending,
            Course::Parted => Self::Parted,
            Course::Cut => Self::Cut,
            Course::Given => Self::Given { paused: told.paused() },
            Course::Stayed => Self::Stayed { why: told.why.clone() },
        }
    }
}

/// What an instance is to say about its migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Milestone {
    /// The target waits for the guest, and can be reached.
    Prepared,
    /// The source is about to send it.
    Begun,
    /// It stays where it was.
    Failed { why: String, is_aborted: bool },
    /// It goes on here.
    Arrived,
}

/// What was tried for one migration.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Attempts {
    /// The UID of the migration.
    pub(crate) uid: String,
    /// Failures in a row.
    pub(crate) failures: u32,
    /// Until when to wait after the last.
    pub(crate) retry_at: Option<Timestamp>,
    /// What it came to last, if that was a failure.
    pub(crate) failed: Option<Outcome>,
    /// The launcher was asked to give it up.
    pub(crate) is_cancelled: bool,
}

impl Attempts {
    /// Those for this migration; of another, none count.
    pub(crate) fn with(&self, uid: &str) -> Self {
        if self.uid == uid { self.clone() } else { Self { uid: uid.to_owned(), ..Self::default() } }
    }

    /// Something did not work.
    pub(crate) fn fail(&mut self, outcome: Outcome, now: Timestamp) {
        self.failures += 1;
        self.retry_at = Some(start_again(self.failures, now));
        self.failed = Some(outcome);
    }

    /// Something worked.
    pub(crate) fn succeed(&mut self) {
        (self.failures, self.retry_at, self.failed) = (0, None, None);
    }

    /// Whether there is no use in trying any longer.
    pub(super) fn are_over(&self) -> bool {
        matches!(self.failed, Some(Outcome::Never(_))) || self.failures >= MOST
    }

    /// Why it failed last.
    pub(super) fn why(&self) -> String {
        self.failed.as_ref().map(ToString::to_string).unwrap_or_default()
    }

    /// The action, unless it has to wait.
    pub(super) fn when_due(&self, action: Action, now: Timestamp) -> Plan {
        match self.retry_at.map(|at| until(at, now)).filter(|rest| !rest.is_zero()) {
            Some(rest) => Plan { again: Some(rest), ..Plan::default() },
            None => act(action),
        }
    }
}

pub(super) fn tell(milestone: Milestone) -> Plan {
    Plan { milestone: Some(milestone), ..Plan::default() }
}
