//! Holding a guest's writes for a while. Its programs hang all the while, so each freeze comes with a thaw that is due.

use std::sync::Arc;
use std::time::Duration;

use hypervisor::agent::{Agent, AgentError, commands as ask};
use tokio::net::UnixStream;
use tokio::sync::{Mutex, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::domain::{Domain, State};
use crate::driver::SharedAgent;

/// What an agent calls a guest whose writes are held.
pub(super) const FROZEN: &str = "frozen";
/// How long a guest stays frozen when nobody thaws it.
const AUTO_THAW: Duration = Duration::from_secs(300);
/// The longest that a guest stays frozen, whatever the caller says: no clock goes on for ever.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Between two attempts to thaw a guest whose agent does not.
const THAW_AGAIN: Duration = Duration::from_secs(10);

/// Freezes and thaws one guest.
#[derive(Clone, Debug)]
pub(super) struct Freezing {
    agent: SharedAgent,
    domain: watch::Receiver<Domain>,
    due: Arc<Mutex<Option<Due>>>,
}

/// The thaw that is due, if the guest is frozen.
#[derive(Debug)]
struct Due {
    at: Instant,
    task: AbortHandle,
}

impl Freezing {
    pub(super) fn new(agent: SharedAgent, domain: watch::Receiver<Domain>) -> Self {
        Self { agent, domain, due: Arc::default() }
    }

    /// Holds all writes, and lets them through again after `limit` at the latest.
    ///
    /// # Guarantees
    /// - The thaw is due before anything is frozen: an agent that freezes and does not say so is thawed all the same.
    /// - A guest that is frozen stays so, and that is no error, although agents refuse to freeze twice. Each caller has the time that
    ///   it asked for: the thaw that is due moves to a later time, never to an earlier one.
    pub(super) async fn freeze(&self, limit: Option<Duration>) -> Result<(), AgentError> {
        let mut due = self.due.lock().await;
        // Held to the end: the thaw that is due cannot come between the answer and what follows from it.
        let mut agent = self.agent.lock().await;
        let is_frozen = is_frozen(&mut agent).await?;
        let wanted = Instant::now() + limit.unwrap_or(AUTO_THAW).min(LONGEST);
        let before = due.as_ref().filter(|_| is_frozen).map(|due| due.at);
        let at = before.map_or(wanted, |before| before.max(wanted));
        let task = tokio::spawn(thaw_at(at, self.agent.clone(), self.domain.clone())).abort_handle();
        if let Some(before) = due.replace(Due { at, task }) {
            before.task.abort();
        }
        if !is_frozen {
            agent.execute(ask::Freeze {}).await?;
        }
        Ok(())
    }

    /// Lets writes through again. If the agent does not do it, the automatic thaw stays due.
    pub(super) async fn unfreeze(&self) -> Result<(), AgentError> {
        let mut due = self.due.lock().await;
        let mut agent = self.agent.lock().await;
        agent.execute(ask::Thaw {}).await?;
        if let Some(due) = due.take() {
            due.task.abort();
        }
        Ok(())
    }
}

async fn is_frozen(agent: &mut Agent<UnixStream>) -> Result<bool, AgentError> {
    match agent.execute(ask::FreezeStatus {}).await {
        Ok(status) => Ok(status == FROZEN),
        // It may be able to freeze all the same.
        Err(AgentError::Refused { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Thaws, and tries again until it holds or the guest has ended.
async fn thaw_at(at: Instant, agent: SharedAgent, domain: watch::Receiver<Domain>) {
    tokio::time::sleep_until(at).await;
    loop {
        match agent.lock().await.execute(ask::Thaw {}).await {
            Ok(_) => return tracing::warn!("the guest was not thawed in time; thawed it"),
            Err(error) => tracing::error!(%error, "cannot thaw the guest; retrying"),
        }
        if matches!(domain.borrow().state, State::Ended(_)) {
            return;
        }
        tokio::time::sleep(THAW_AGAIN).await;
    }
}
