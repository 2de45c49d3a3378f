//! What a plan's one action does.

use std::time::Duration;

use api::vmi::VirtualMachineInstance;
use launcher_api::rpc::Domain;
use manager::events::Kind;
use tokio::time::timeout;
use tonic::{Code, Status};

use super::{InstanceError, Instances};
use crate::decide::{Action, resume_again};
use crate::launchers::LauncherId;

/// How long a launcher may take to answer; it answers before anything has come of what it was asked.
pub(super) const ANSWER: Duration = Duration::from_secs(10);
/// A guest that went on for so long after it was resumed has recovered.
const RECOVERED: Duration = Duration::from_secs(180);

impl Instances {
    pub(super) async fn act(
        &self,
        id: &LauncherId,
        vmi: Option<&VirtualMachineInstance>,
        action: Action,
    ) -> Result<(), InstanceError> {
        match (action, vmi) {
            (Action::Nothing, _) => Ok(()),
            (
                Action::Start
                | Action::Sync
                | Action::Prepare
                | Action::Send
                | Action::Cancel
                | Action::Settle
                | Action::HandOver
                | Action::Return
                | Action::Take,
                None,
            ) => Ok(()),
            (Action::Start, Some(vmi)) => {
                self.start(id, vmi).await;
                Ok(())
            }
            (Action::Sync, Some(vmi)) => {
                self.sync(id, vmi).await;
                Ok(())
            }
            (Action::Prepare, Some(vmi)) => {
                self.prepare(id, vmi).await;
                Ok(())
            }
            (Action::Send, Some(vmi)) => {
                self.send(id, vmi).await;
                Ok(())
            }
            (Action::Settle, Some(vmi)) => {
                self.settle(id, vmi).await;
                Ok(())
            }
            (Action::HandOver, Some(vmi)) => {
                self.hand_over(id, vmi).await;
                Ok(())
            }
            (Action::Cancel, Some(vmi)) => self.cancel(id, vmi).await,
            (Action::Return, Some(vmi)) => self.go_on_here(id, vmi).await,
            (Action::Take, Some(vmi)) => self.take(id, vmi).await,
            (Action::Resume, _) => self.resume(id).await,
            (Action::Shutdown { rest }, vmi) => self.shut_down(id, vmi, rest).await,
            (Action::Kill, _) => self.kill(id).await,
            (Action::Delete, _) => self.let_go(id).await,
            (Action::CleanUp, _) => self.clean_up(id),
        }
    }

    async fn resume(&self, id: &LauncherId) -> Result<(), InstanceError> {
        let now = (self.now)();
        self.note(id, |notes| {
            let efforts = &mut notes.efforts;
            if efforts.retry_at.is_some_and(|at| now > at + RECOVERED) {
                efforts.failures = 0;
            }
            efforts.failures += 1;
            efforts.retry_at = Some(resume_again(efforts.failures, now));
        });
        let Some(speaker) = self.launchers.speaker(id) else { return Ok(()) };
        self.answered(id, timeout(ANSWER, speaker.unpause()).await)?;
        tracing::info!("resumed a guest that an I/O error had paused");
        Ok(())
    }

    async fn shut_down(
        &self,
        id: &LauncherId,
        vmi: Option<&VirtualMachineInstance>,
        rest: Duration,
    ) -> Result<(), InstanceError> {
        let Some(speaker) = self.launchers.speaker(id) else { return Ok(()) };
        self.answered(id, timeout(ANSWER, speaker.shut_down(rest)).await)?;
        let now = (self.now)();
        let is_first = self.note(id, |notes| notes.efforts.asked.replace(now).is_none());
        tracing::info!(grace_ms = rest.as_millis(), "asked the guest to power off");
        if let Some(vmi) = vmi.filter(|_| is_first) {
            self.record_event(vmi, Kind::Normal, "ShuttingDown", "Signaled Graceful Shutdown");
        }
        Ok(())
    }

    async fn kill(&self, id: &LauncherId) -> Result<(), InstanceError> {
        let Some(speaker) = self.launchers.speaker(id) else { return Ok(()) };
        self.answered(id, timeout(ANSWER, speaker.kill()).await)?;
        tracing::info!("killed the guest");
        let now = (self.now)();
        self.note(id, |notes| notes.efforts.killed = Some(now));
        Ok(())
    }

    /// Lets the launcher end. One that is gone by then has done so already.
    async fn let_go(&self, id: &LauncherId) -> Result<(), InstanceError> {
        if let Some(speaker) = self.launchers.speaker(id) {
            match timeout(ANSWER, speaker.delete()).await {
                Ok(Err(status)) if status.code() == Code::FailedPrecondition => {
                    return Err(InstanceError::Launcher(status));
                }
                Ok(Ok(_)) => tracing::info!("asked the launcher to end"),
                Ok(Err(_)) | Err(_) => {}
            }
        }
        self.clean_up(id)
    }

    /// Removes what this node has of a launcher, the record last.
    fn clean_up(&self, id: &LauncherId) -> Result<(), InstanceError> {
        self.launchers.forget(id);
        if self.setup.records.get(id).is_some() {
            self.setup.host.clean_up(id).map_err(InstanceError::Unmount)?;
            self.setup.records.remove(id)?;
        }
        self.note(id, |notes| {
            notes.efforts.done = true;
            notes.links = None;
        });
        Ok(())
    }

    /// Takes in the domain that a launcher answers with.
    pub(super) fn answered(
        &self,
        id: &LauncherId,
        answer: Result<Result<Domain, Status>, tokio::time::error::Elapsed>,
    ) -> Result<(), InstanceError> {
        match answer {
            Ok(Ok(domain)) => {
                self.launchers.heard(id, domain);
                Ok(())
            }
            Ok(Err(status)) => Err(InstanceError::Launcher(status)),
            Err(_) => Err(InstanceError::Launcher(Status::deadline_exceeded("the launcher did not answer in time"))),
        }
    }
}
