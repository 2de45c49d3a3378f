//! Changes that come close together are one piece of news.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::cache::Key;
use crate::queue::Queue;

/// Whoever owns hundreds reads all of them at each look. While they start, each changes many times a second, and most looks would
/// find nothing to do. Nobody sees a wait that is so much shorter than a start.
pub(super) const APART: Duration = Duration::from_millis(200);

/// When keys were woken last, or will be. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Gathering(Arc<Mutex<BTreeMap<Key, Instant>>>);

impl Gathering {
    /// # Guarantees
    /// - The key is handed out after this, and no later than [`APART`] if nobody is at work on it.
    /// - It is woken at once after a rest, and never twice within [`APART`].
    pub(super) fn wake(&self, queue: &Queue<Key>, key: Key) {
        let now = Instant::now();
        let mut woken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Of those that rest nothing needs to be known.
        woken.retain(|_, at| *at + APART > now);
        let at = match woken.get(&key) {
            None => now,
            Some(last) if *last > now => *last,
            Some(last) => *last + APART,
        };
        woken.insert(key.clone(), at);
        drop(woken);
        queue.add_after(key, at.saturating_duration_since(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{Backoff, QueueMetrics};

    #[tokio::test(start_paused = true)]
    async fn the_first_change_is_news_at_once_and_what_follows_comes_together() {
        let queue = Queue::new("test", Backoff::default(), &QueueMetrics::default());
        let (gathering, key, started) = (Gathering::default(), Key::cluster("a"), Instant::now());
        let mut looks = Vec::new();
        // A change every ten milliseconds, and then none.
        for step in 0..100 {
            gathering.wake(&queue, key.clone());
            let until = started + Duration::from_millis(10 * (step + 1));
            while let Ok(Some(taken)) = tokio::time::timeout_at(until, queue.next()).await {
                looks.push(started.elapsed().as_millis());
                taken.done();
            }
        }
        tokio::time::sleep(APART).await;
        if let Ok(Some(taken)) = tokio::time::timeout(APART, queue.next()).await {
            looks.push(started.elapsed().as_millis());
            taken.done();
        }
        assert_eq!(looks[..5], [0, 200, 400, 600, 800]);
        assert_eq!(looks.len(), 6, "the last change is looked at: {looks:?}");
        // After a rest, at once.
        let rested = Instant::now();
        gathering.wake(&queue, key);
        queue.next().await.unwrap().done();
        assert_eq!(rested.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn keys_do_not_wait_for_each_other() {
        let queue = Queue::new("test", Backoff::default(), &QueueMetrics::default());
        let gathering = Gathering::default();
        for name in ["a", "b", "a", "c"] {
            gathering.wake(&queue, Key::cluster(name));
        }
        assert_eq!(queue.len(), 3);
    }
}
