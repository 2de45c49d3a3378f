//! Tells many that something has changed, in the order in which they began to wait.
//!
//! tokio's `watch` wakes its receivers in an order of chance, which would make two runs of one simulated seed differ.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

/// Tells of changes; gone when it is dropped.
#[derive(Default)]
pub(crate) struct Signal(Arc<Shared>);

#[derive(Default)]
struct Shared {
    count: AtomicU64,
    gone: AtomicBool,
    waiting: Notify,
}

/// Hears of changes.
pub(crate) struct Follower {
    shared: Arc<Shared>,
    seen: u64,
}

/// Whoever told is gone.
#[derive(Debug)]
pub(crate) struct Gone;

impl Signal {
    /// Something has changed.
    pub(crate) fn raise(&self) {
        self.0.count.fetch_add(1, Ordering::Release);
        self.0.waiting.notify_waiters();
    }

    /// Hears of all changes from now on.
    pub(crate) fn follow(&self) -> Follower {
        Follower { shared: self.0.clone(), seen: self.0.count.load(Ordering::Acquire) }
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        self.0.gone.store(true, Ordering::Release);
        self.0.waiting.notify_waiters();
    }
}

impl Follower {
    /// Waits for a change since the last one that it heard of; many are one.
    pub(crate) async fn changed(&mut self) -> Result<(), Gone> {
        loop {
            let mut waiting = std::pin::pin!(self.shared.waiting.notified());
            // Waits from here on, so that a change during the look is not missed.
            waiting.as_mut().enable();
            let count = self.shared.count.load(Ordering::Acquire);
            if count != self.seen {
                self.seen = count;
                return Ok(());
            }
            if self.shared.gone.load(Ordering::Acquire) {
                return Err(Gone);
            }
            waiting.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn every_follower_hears_of_what_it_missed_once() {
        let signal = Signal::default();
        let mut follower = signal.follow();
        assert!(follower.changed().now_or_never().is_none());
        signal.raise();
        signal.raise();
        assert!(follower.changed().now_or_never().unwrap().is_ok());
        assert!(follower.changed().now_or_never().is_none());
        assert!(signal.follow().changed().now_or_never().is_none(), "what was before does not count");
    }

    #[tokio::test]
    async fn followers_are_woken_in_the_order_of_their_waiting() {
        let signal = Signal::default();
        let (told, mut order) = tokio::sync::mpsc::unbounded_channel();
        for number in 0..50 {
            let (mut follower, told) = (signal.follow(), told.clone());
            tokio::spawn(async move {
                follower.changed().await.unwrap();
                told.send(number).unwrap();
            });
        }
        tokio::task::yield_now().await;
        signal.raise();
        for number in 0..50 {
            assert_eq!(order.recv().await, Some(number));
        }
    }

    #[tokio::test]
    async fn a_follower_of_nobody_is_let_go() {
        let signal = Signal::default();
        let mut follower = signal.follow();
        let waiting = tokio::spawn(async move { follower.changed().await.is_err() });
        tokio::task::yield_now().await;
        drop(signal);
        assert!(waiting.await.unwrap());
    }
}
