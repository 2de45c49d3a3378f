//! The launchers of this node: one connection each, and what they told last.
//!
//! ```text
//! follow ──> the socket appears ──> connect ──> Watch ──> View ──> whoever is told of changes
//!                 │                                │
//!                 └── patience is over ──> gone <──┴── it breaks, or does not answer twice
//! ```
//! virt-handler connects, launchers never do: after its restart it connects again and knows what it knew. How a launcher is reached
//! is the host's ([`crate::host`]): over a socket, or in this process where launchers are simulated.

pub(crate) mod connection;
mod socket;
mod words;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use launcher_api::Greeting;
use launcher_api::rpc::{Domain, GuestInfo};
use manager::cache::Key;
use manager::worker::{About, ObjectName};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::host::{Host, Speaker};

pub(crate) use socket::{ConnectError, connect, is_shortage};
pub(crate) use words::bounded;

/// How long a launcher may take until its socket is there. Its pod is ready by then, so that this is long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// What is known of a launcher.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) reach: Reach,
    /// What it told last, also when it is gone.
    pub(crate) domain: Option<Domain>,
    /// What the guest's agent told last.
    pub(crate) guest: Option<GuestInfo>,
}

/// Whether a launcher can be spoken to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Reach {
    /// Not yet, or not at the moment.
    #[default]
    Connecting,
    Connected,
    /// Not any more.
    Gone {
        why: String,
    },
}

/// One launcher of one instance, and no other of its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LauncherId {
    /// The instance's UID.
    pub(crate) uid: String,
    /// The pod's UID.
    pub(crate) pod: String,
    /// The node that it is on.
    pub(crate) node: String,
    /// Namespace and name of the instance.
    pub(crate) key: Key,
}

impl About for LauncherId {
    fn about(&self) -> ObjectName<'_> {
        ObjectName { uid: &self.uid, ..self.key.about() }
    }
}

/// Told when a launcher has something new.
type Tell = Arc<dyn Fn(&LauncherId) + Send + Sync>;

/// All launchers that are followed. When it is dropped, so are the connections.
pub(crate) struct Launchers {
    host: Arc<dyn Host>,
    tell: Tell,
    entries: Mutex<BTreeMap<LauncherId, Arc<Entry>>>,
}

/// One of them, as its connection sees it.
pub(crate) struct Entry {
    pub(crate) id: LauncherId,
    tell: Tell,
    view: watch::Sender<View>,
    session: Mutex<Option<Session>>,
    task: Mutex<Option<AbortHandle>>,
}

/// A connection that works.
pub(crate) struct Session {
    pub(crate) speaker: Arc<dyn Speaker>,
    pub(crate) greeting: Greeting,
}

impl Launchers {
    /// None yet.
    pub(crate) fn new(host: Arc<dyn Host>, tell: impl Fn(&LauncherId) + Send + Sync + 'static) -> Self {
        Self { host, tell: Arc::new(tell), entries: Mutex::default() }
    }

    /// Connects to a launcher and stays connected, unless that is under way.
    pub(crate) fn follow(&self, id: &LauncherId, patience: Duration) {
        let mut entries = self.entries();
        if entries.contains_key(id) {
            return;
        }
        let entry = Arc::new(Entry {
            id: id.clone(),
            tell: self.tell.clone(),
            view: watch::Sender::new(View::default()),
            session: Mutex::default(),
            task: Mutex::default(),
        });
        let task = tokio::spawn(self.host.clone().keep(entry.clone(), patience)).abort_handle();
        *entry.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
        entries.insert(id.clone(), entry);
    }

    /// What is known of a launcher; none, if it is not followed.
    pub(crate) fn view(&self, id: &LauncherId) -> Option<View> {
        Some(self.entries().get(id)?.view.borrow().clone())
    }

    /// Who speaks with the launcher, if it can be spoken to.
    pub(crate) fn speaker(&self, id: &LauncherId) -> Option<Arc<dyn Speaker>> {
        Some(self.entries().get(id)?.session().as_ref()?.speaker.clone())
    }

    /// What the launcher says of itself, if it can be spoken to.
    pub(crate) fn greeting(&self, id: &LauncherId) -> Option<Greeting> {
        Some(self.entries().get(id)?.session().as_ref()?.greeting.clone())
    }

    /// Takes in an answer that is newer than what was heard.
    pub(crate) fn heard(&self, id: &LauncherId, domain: Domain) {
        if let Some(entry) = self.entries().get(id) {
            entry.take(domain);
        }
    }

    /// Ends a connection and forgets the launcher.
    pub(crate) fn forget(&self, id: &LauncherId) {
        if let Some(entry) = self.entries().remove(id) {
            entry.end();
        }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<LauncherId, Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Launchers {
    fn drop(&mut self) {
        self.entries().values().for_each(|entry| entry.end());
    }
}

impl Entry {
    pub(crate) fn session(&self) -> MutexGuard<'_, Option<Session>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whether the launcher can be spoken to. True if it could not before, or could.
    pub(crate) fn reach(&self, reach: Reach) -> bool {
        self.view.send_if_modified(|view| {
            let news = view.reach != reach;
            view.reach = reach;
            news
        })
    }

    /// Takes in a domain, unless a newer one is known. True if it is news.
    pub(crate) fn take(&self, domain: Domain) -> bool {
        self.view.send_if_modified(|view| {
            let newer = view.domain.as_ref().is_none_or(|known| is_newer(known, &domain));
            if newer {
                view.domain = Some(domain);
            }
            newer
        })
    }

    pub(crate) fn tell(&self) {
        (self.tell)(&self.id);
    }

    fn end(&self) {
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
        *self.session() = None;
    }
}

/// Whether a domain tells more than another. One that is absent or being started has no number yet.
fn is_newer(known: &Domain, domain: &Domain) -> bool {
    if known.sequence == 0 { known != domain } else { domain.sequence > known.sequence }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_domain_never_replaces_a_newer_one() {
        let at = |sequence: u64, resets: u64| Domain { sequence, resets, ..Domain::default() };
        assert!(is_newer(&at(0, 0), &at(1, 0)) && is_newer(&at(0, 0), &at(0, 1)));
        assert!(!is_newer(&at(0, 0), &at(0, 0)));
        assert!(is_newer(&at(1, 0), &at(2, 0)) && !is_newer(&at(2, 0), &at(1, 0)) && !is_newer(&at(2, 0), &at(0, 0)));
    }
}
