//! Places for pulls: a few at a time on the whole node, and never all of them for one namespace.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// Images that are pulled at the same time: more only share the same line.
const SLOTS: usize = 3;
/// Of these, for the pods of one namespace.
const SHARE: usize = SLOTS - 1;

/// The places.
pub(super) struct Pulls {
    all: Arc<Semaphore>,
    /// Of namespaces that pull or wait.
    shares: Mutex<BTreeMap<String, Weak<Semaphore>>>,
}

/// A place, given back when it is dropped.
#[derive(Debug)]
pub(super) struct PullSlot {
    _of_all: OwnedSemaphorePermit,
    _of_share: OwnedSemaphorePermit,
}

impl Default for Pulls {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(SLOTS)), shares: Mutex::default() }
    }
}

impl Pulls {
    /// Waits for a place. Whoever waits for others of its namespace keeps no other namespace waiting.
    pub(super) async fn place(&self, namespace: &str) -> Result<PullSlot, AcquireError> {
        let of_share = self.share(namespace).acquire_owned().await?;
        let of_all = self.all.clone().acquire_owned().await?;
        Ok(PullSlot { _of_all: of_all, _of_share: of_share })
    }

    fn share(&self, namespace: &str) -> Arc<Semaphore> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        shares.retain(|_, share| share.strong_count() > 0);
        let known = shares.get(namespace).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let share = Arc::new(Semaphore::new(SHARE));
            shares.insert(namespace.to_owned(), Arc::downgrade(&share));
            share
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn no_namespace_takes_all_places() {
        let pulls = Pulls::default();
        let first = pulls.place("a").await.unwrap();
        let _second = pulls.place("a").await.unwrap();
        assert!(pulls.place("a").now_or_never().is_none(), "its share is used up");
        let other = pulls.place("b").await.unwrap();
        assert!(pulls.place("c").now_or_never().is_none(), "all are taken");
        drop(first);
        pulls.place("c").await.unwrap();
        drop(other);
        pulls.place("a").await.unwrap();
        assert_eq!(pulls.shares.lock().unwrap().keys().collect::<Vec<_>>(), ["a"], "who pulls nothing is forgotten");
    }
}
