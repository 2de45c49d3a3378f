//! Something that happens once, and those who wait for it: they go on in the order in which they began to wait. (tokio's
//! `watch` wakes in an order of chance, and two runs of one simulated seed would differ.)

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct Once {
    happened: AtomicBool,
    waiting: Notify,
}

impl Once {
    pub(crate) fn happen(&self) {
        self.happened.store(true, Ordering::Release);
        self.waiting.notify_waiters();
    }

    pub(crate) fn has_happened(&self) -> bool {
        self.happened.load(Ordering::Acquire)
    }

    pub(crate) async fn wait(&self) {
        let mut waiting = std::pin::pin!(self.waiting.notified());
        // Waits from here on, so that it is not missed during the look.
        waiting.as_mut().enable();
        if !self.has_happened() {
            waiting.await;
        }
    }
}
