//! What everyone but the driver holds of a guest.

use std::sync::Arc;

use hypervisor::agent::Agent;
use hypervisor::guest::Guest;
use hypervisor::qmp::{Event, Qmp};
use tokio::net::UnixStream;
use tokio::sync::{Mutex, broadcast, mpsc, oneshot, watch};

use super::RequestError;
use crate::domain::{Domain, End, State};
use crate::lifecycle::Request;

/// The channel to a guest's agent, for one question at a time.
pub type SharedAgent = Arc<Mutex<Agent<UnixStream>>>;

/// What everyone but the driver holds of a guest; cheap to clone.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(super) requests: mpsc::Sender<Call>,
    pub(super) domain: watch::Receiver<Domain>,
    /// QEMU's process.
    pub pid: u32,
    /// QEMU's monitor, for questions that change nothing.
    pub qmp: Qmp,
    /// The guest agent.
    pub agent: SharedAgent,
    /// What the guest sees, now and after every change.
    pub guest: watch::Sender<Arc<Guest>>,
    /// Counts the devices that the guest has let go of.
    pub(super) departures: watch::Receiver<u64>,
    /// What QEMU tells, for those who follow what they have asked it for.
    pub(super) events: broadcast::Sender<Event>,
    /// Counts how often sending the guest was to be given up.
    pub(super) aborts: watch::Receiver<u64>,
}

/// A request, and who waits for what comes of it.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) request: Request,
    pub(super) reply: oneshot::Sender<Result<(), RequestError>>,
}

#[cfg(test)]
impl Handle {
    /// Of a guest that nobody drives.
    pub(crate) fn undriven(qmp: Qmp, guest: Guest) -> Self {
        let (agent, _) = UnixStream::pair().unwrap();
        Self {
            requests: mpsc::channel(1).0,
            domain: watch::channel(crate::lifecycle::Lifecycle::boot(false).domain().clone()).1,
            pid: 0,
            qmp,
            agent: Arc::new(Mutex::new(Agent::new(agent))),
            guest: watch::Sender::new(Arc::new(guest)),
            departures: watch::channel(0).1,
            events: broadcast::channel(1).0,
            aborts: watch::channel(0).1,
        }
    }
}

impl Handle {
    /// Asks for something and waits until it is done or denied.
    ///
    /// # Errors
    /// When the guest is in no state for it, or QEMU does not do it.
    pub async fn request(&self, request: Request) -> Result<(), RequestError> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(Call { request, reply }).await.map_err(|_| RequestError::Gone)?;
        answer.await.map_err(|_| RequestError::Gone)?
    }

    /// The guest, now and after every change.
    #[must_use]
    pub fn domain(&self) -> watch::Receiver<Domain> {
        self.domain.clone()
    }

    /// Told whenever the guest has let go of a device.
    pub(crate) fn departures(&self) -> watch::Receiver<u64> {
        self.departures.clone()
    }

    /// What QEMU tells from now on.
    pub(crate) fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    /// Changes whenever sending the guest is to be given up.
    pub(crate) fn aborts(&self) -> watch::Receiver<u64> {
        self.aborts.clone()
    }

    /// Waits for the end.
    pub async fn ended(&self) -> End {
        let mut domain = self.domain.clone();
        loop {
            if let State::Ended(end) = &domain.borrow_and_update().state {
                return end.clone();
            }
            if domain.changed().await.is_err() {
                return End::KilledFromOutside;
            }
        }
    }
}
