//! The launchers of this node: one connection each, and what they told last.
//!
//! ```text
//! follow ──> the socket appears ──> connect ──> Watch ──> View ──> whoever is told of changes
//!                 │                                │
//!                 └── patience is over ──> gone <──┴── it breaks, or does not answer twice
//! ```
//! virt-handler connects, launchers never do: after its restart it connects again and knows what it knew.

mod connection;
mod socket;
mod words;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use manager::cache::Key;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tonic::transport::Channel;
use virt_launcher::rpc::launcher_client::LauncherClient;
use virt_launcher::rpc::{Domain, GuestInfo};

use crate::isolation::Peer;
use crate::ownership;

pub(crate) use socket::{ConnectError, SOCKETS, connect, is_shortage};

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

/// Whose launcher it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) key: Key,
    /// The instance's.
    pub(crate) uid: String,
    /// The pod's.
    pub(crate) pod: String,
}

/// Told when a launcher has something new.
type Tell = Arc<dyn Fn(&Owner) + Send + Sync>;

/// All launchers. Clones share them.
#[derive(Clone)]
pub(crate) struct Launchers {
    pods: PathBuf,
    tell: Tell,
    entries: Arc<Mutex<BTreeMap<String, Arc<Entry>>>>,
}

struct Entry {
    owner: Owner,
    pods: PathBuf,
    tell: Tell,
    view: watch::Sender<View>,
    session: Mutex<Option<Session>>,
    task: Mutex<Option<AbortHandle>>,
}

/// A connection that works.
struct Session {
    client: LauncherClient<Channel>,
    peer: Peer,
}

impl Launchers {
    /// None yet. The folder is the one with a folder for each pod.
    pub(crate) fn new(pods: PathBuf, tell: impl Fn(&Owner) + Send + Sync + 'static) -> Self {
        Self { pods, tell: Arc::new(tell), entries: Arc::default() }
    }

    /// Connects to a launcher and stays connected, unless that is under way.
    pub(crate) fn follow(&self, owner: &Owner, patience: Duration) {
        let mut entries = self.entries();
        if entries.get(&owner.uid).is_some_and(|entry| entry.owner == *owner) {
            return;
        }
        let entry = Arc::new(Entry {
            owner: owner.clone(),
            pods: self.pods.clone(),
            tell: self.tell.clone(),
            view: watch::Sender::new(View::default()),
            session: Mutex::default(),
            task: Mutex::default(),
        });
        let task = tokio::spawn(connection::keep(entry.clone(), patience)).abort_handle();
        *entry.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
        if let Some(old) = entries.insert(owner.uid.clone(), entry) {
            old.end();
        }
    }

    /// What is known of the launcher of an instance; none, if it is not followed.
    pub(crate) fn view(&self, uid: &str) -> Option<View> {
        Some(self.entries().get(uid)?.view.borrow().clone())
    }

    /// A client, if the launcher can be spoken to.
    pub(crate) fn client(&self, uid: &str) -> Option<LauncherClient<Channel>> {
        Some(self.entries().get(uid)?.session().as_ref()?.client.clone())
    }

    /// The launcher's network namespace, and the user and group that it runs as.
    pub(crate) fn namespace(&self, uid: &str) -> Option<(OwnedFd, (u32, u32))> {
        let entry = self.entries().get(uid)?.clone();
        let session = entry.session();
        let peer = &session.as_ref().filter(|session| session.peer.is_alive())?.peer;
        Some((peer.network().ok()?, (peer.uid, peer.gid)))
    }

    /// Makes the devices in a launcher's container its own.
    pub(crate) fn give_devices(&self, uid: &str) -> io::Result<()> {
        let Some(entry) = self.entries().get(uid).cloned() else { return Ok(()) };
        let session = entry.session();
        session.as_ref().map_or(Ok(()), |session| ownership::give_devices(&session.peer))
    }

    /// Takes in an answer that is newer than what was heard.
    pub(crate) fn heard(&self, uid: &str, domain: Domain) {
        if let Some(entry) = self.entries().get(uid) {
            entry.take(domain);
        }
    }

    /// Ends a connection and forgets the launcher.
    pub(crate) fn forget(&self, uid: &str) {
        if let Some(entry) = self.entries().remove(uid) {
            entry.end();
        }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn session(&self) -> MutexGuard<'_, Option<Session>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a domain, unless a newer one is known. True if it is news.
    fn take(&self, domain: Domain) -> bool {
        self.view.send_if_modified(|view| {
            let newer = view.domain.as_ref().is_none_or(|known| is_newer(known, &domain));
            if newer {
                view.domain = Some(domain);
            }
            newer
        })
    }

    fn tell(&self) {
        (self.tell)(&self.owner);
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
