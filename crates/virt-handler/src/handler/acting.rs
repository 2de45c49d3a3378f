//! What a plan's one action does.

use std::path::PathBuf;
use std::time::Duration;

use api::vmi::VirtualMachineInstance;
use manager::events::Kind;
use tokio::time::timeout;
use tonic::{Code, Response, Status};
use virt_launcher::rpc::{Domain, Empty, ShutdownRequest};

use super::{HandlerError, Inner, Work};
use crate::container_disks;
use crate::decide::{Action, resume_again};

/// How long a launcher may take to answer; it answers before anything has come of what it was asked.
const ANSWER: Duration = Duration::from_secs(10);
/// A guest that went on for so long after it was resumed has recovered.
const RECOVERED: Duration = Duration::from_secs(180);

impl Inner {
    pub(super) async fn act(
        &self,
        work: &Work,
        vmi: Option<&VirtualMachineInstance>,
        action: Action,
    ) -> Result<(), HandlerError> {
        match (action, vmi) {
            (Action::Nothing, _) | (Action::Start, None) => Ok(()),
            (Action::Start, Some(vmi)) => {
                self.start(work, vmi).await;
                Ok(())
            }
            (Action::Resume, _) => self.resume(work).await,
            (Action::Shutdown { rest }, vmi) => self.shut_down(work, vmi, rest).await,
            (Action::Kill, _) => self.kill(work).await,
            (Action::Delete, _) => self.let_go(work).await,
            (Action::CleanUp, _) => self.clean_up(work),
        }
    }

    async fn resume(&self, work: &Work) -> Result<(), HandlerError> {
        let now = (self.now)();
        self.known(&work.uid, |known| {
            let memory = &mut known.memory;
            if memory.retry_at.is_some_and(|at| now > at + RECOVERED) {
                memory.failures = 0;
            }
            memory.failures += 1;
            memory.retry_at = Some(resume_again(memory.failures, now));
        });
        let Some(mut client) = self.launchers.client(&work.uid) else { return Ok(()) };
        self.answered(work, timeout(ANSWER, client.unpause(Empty {})).await)?;
        tracing::info!("resumed a guest that an I/O error had paused");
        Ok(())
    }

    async fn shut_down(
        &self,
        work: &Work,
        vmi: Option<&VirtualMachineInstance>,
        rest: Duration,
    ) -> Result<(), HandlerError> {
        let Some(mut client) = self.launchers.client(&work.uid) else { return Ok(()) };
        let grace_ms = Some(u64::try_from(rest.as_millis()).unwrap_or(u64::MAX));
        self.answered(work, timeout(ANSWER, client.shutdown(ShutdownRequest { grace_ms })).await)?;
        let now = (self.now)();
        let is_first = self.known(&work.uid, |known| known.memory.asked.replace(now).is_none());
        tracing::info!(grace_ms, "asked the guest to power off");
        if let Some(vmi) = vmi.filter(|_| is_first) {
            self.recorder.record(vmi, Kind::Normal, "ShuttingDown", "Signaled Graceful Shutdown");
        }
        Ok(())
    }

    async fn kill(&self, work: &Work) -> Result<(), HandlerError> {
        let Some(mut client) = self.launchers.client(&work.uid) else { return Ok(()) };
        self.answered(work, timeout(ANSWER, client.kill(Empty {})).await)?;
        tracing::info!("killed the guest");
        let now = (self.now)();
        self.known(&work.uid, |known| known.memory.killed = Some(now));
        Ok(())
    }

    /// Lets the launcher end. One that is gone by then has done so already.
    async fn let_go(&self, work: &Work) -> Result<(), HandlerError> {
        if let Some(mut client) = self.launchers.client(&work.uid) {
            match timeout(ANSWER, client.delete(Empty {})).await {
                Ok(Err(status)) if status.code() == Code::FailedPrecondition => {
                    return Err(HandlerError::Launcher(status));
                }
                Ok(Ok(_)) => tracing::info!("let the launcher end"),
                Ok(Err(_)) | Err(_) => {}
            }
        }
        self.clean_up(work)
    }

    /// Removes what this node has of an instance, the record last.
    fn clean_up(&self, work: &Work) -> Result<(), HandlerError> {
        self.launchers.forget(&work.uid);
        if let Some(record) = self.records.get(&work.uid) {
            container_disks::unmount_all(&self.settings.pods(), &record.pod_uid).map_err(HandlerError::Unmount)?;
            if let Err(error) = std::fs::remove_file(self.network_state(&record.pod_uid))
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(%error, "the state of a network stays");
            }
            self.records.remove(&work.uid)?;
        }
        self.known(&work.uid, |known| {
            known.memory.done = true;
            known.links = None;
        });
        Ok(())
    }

    /// Where the state of a pod's network is kept.
    pub(super) fn network_state(&self, pod: &str) -> PathBuf {
        self.settings.state.join("networks").join(format!("{pod}.json"))
    }

    /// Takes in the domain that a launcher answers with.
    pub(super) fn answered(
        &self,
        work: &Work,
        answer: Result<Result<Response<Domain>, Status>, tokio::time::error::Elapsed>,
    ) -> Result<(), HandlerError> {
        match answer {
            Ok(Ok(domain)) => {
                self.launchers.heard(&work.uid, domain.into_inner());
                Ok(())
            }
            Ok(Err(status)) => Err(HandlerError::Launcher(status)),
            Err(_) => Err(HandlerError::Launcher(Status::deadline_exceeded("the launcher did not answer in time"))),
        }
    }
}
