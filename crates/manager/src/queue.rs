//! Work queues: keys to reconcile, each at most once at a time, however often it was added.
//!
//! Guarantees:
//! - A key that is added is handed out at least once afterwards. While it is being worked on it is not handed out again;
//!   if it was added meanwhile, it follows when the work is done.
//! - Higher priorities go first, equal ones in the order of their arrival.
//! - A key that keeps failing waits longer each time, up to a limit; success makes it forget.

mod core;
mod metrics;

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use self::core::Core;
pub use self::core::{Backoff, QueueState};
pub use metrics::QueueMetrics;

/// A queue that workers share. Clones are the same queue.
#[derive(Clone)]
pub struct Queue<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    core: Mutex<Core<K>>,
    changed: Notify,
    metrics: metrics::OfQueue,
}

impl<K: Ord + Clone + Debug> Queue<K> {
    /// A queue whose failing keys back off as told, counted under a name.
    #[must_use]
    pub fn new(name: &str, backoff: Backoff, metrics: &QueueMetrics) -> Self {
        let shared = Shared { core: Mutex::new(Core::new(backoff)), changed: Notify::new(), metrics: metrics.of(name) };
        Self { shared: Arc::new(shared) }
    }

    fn core(&self) -> MutexGuard<'_, Core<K>> {
        self.shared.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a key with the usual priority.
    pub fn add(&self, key: K) {
        self.add_with_priority(key, 0);
    }

    /// Adds a key; a higher priority than it has already counts.
    pub fn add_with_priority(&self, key: K, priority: i32) {
        if self.core().add(key, priority, Instant::now()) {
            self.shared.metrics.added();
        }
        self.settle();
    }

    /// Adds a key later. An earlier time than it has already counts.
    pub fn add_after(&self, key: K, delay: Duration) {
        let now = Instant::now();
        if delay.is_zero() {
            return self.add(key);
        }
        self.core().add_at(key, now + delay);
        self.settle();
    }

    /// Adds a key that failed, after its back-off.
    pub fn retry(&self, key: K) {
        let delay = self.core().failed(&key);
        self.shared.metrics.retried();
        self.add_after(key, delay);
    }

    /// The key went well: its next failure is its first.
    pub fn forget(&self, key: &K) {
        self.core().forget(key);
    }

    /// How often a key has failed in a row.
    #[must_use]
    pub fn failures(&self, key: &K) -> u32 {
        self.core().failures(key)
    }

    /// Hands out the next key as soon as there is one; none after [`Queue::close`].
    pub async fn next(&self) -> Option<Taken<K>> {
        loop {
            // Made before the look, so that what happens in between is not missed.
            let changed = self.shared.changed.notified();
            let (taken, wake) = {
                let mut core = self.core();
                if core.is_closed() {
                    return None;
                }
                let now = Instant::now();
                (core.take(now), core.next_wake())
            };
            self.shared.metrics.depth(self.core().ready());
            if let Some((key, waited)) = taken {
                let started = Instant::now();
                self.shared.metrics.taken(waited, started);
                // There may be work for another worker, too.
                self.shared.changed.notify_one();
                return Some(Taken { queue: self.clone(), key, started, finished: false });
            }
            match wake {
                Some(at) => {
                    tokio::select! {
                        biased;
                        () = changed => {}
                        () = sleep_until(at) => {}
                    }
                }
                None => changed.await,
            }
        }
    }

    /// Ends the queue: workers get nothing more.
    pub fn close(&self) {
        self.core().close();
        self.shared.changed.notify_waiters();
        self.shared.changed.notify_one();
    }

    /// Keys that wait to be handed out now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.core().ready()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All keys, for those who look on.
    #[must_use]
    pub fn state(&self) -> QueueState<K> {
        self.core().state()
    }

    fn settle(&self) {
        self.shared.metrics.depth(self.core().ready());
        self.shared.changed.notify_one();
    }
}

/// A key that is being worked on. Dropping it without a word means that the work was cut short: the key comes again.
pub struct Taken<K: Ord + Clone + Debug> {
    queue: Queue<K>,
    key: K,
    started: Instant,
    finished: bool,
}

impl<K: Ord + Clone + Debug> Taken<K> {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The work is done.
    pub fn done(mut self) {
        self.finish();
    }

    fn finish(&mut self) {
        self.finished = true;
        self.queue.shared.metrics.done(self.started);
        self.queue.core().done(&self.key);
        self.queue.settle();
    }
}

impl<K: Ord + Clone + Debug> Drop for Taken<K> {
    fn drop(&mut self) {
        if !self.finished {
            self.finish();
            self.queue.add(self.key.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> Queue<&'static str> {
        Queue::new("test", Backoff::default(), &QueueMetrics::default())
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_worked_on_once_at_a_time() {
        let queue = queue();
        queue.add("a");
        let taken = queue.next().await.unwrap();
        queue.add("a");
        queue.add("b");
        assert_eq!(queue.next().await.unwrap().key(), &"b");
        taken.done();
        assert_eq!(queue.next().await.unwrap().key(), &"a");
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_is_cut_short_comes_again() {
        let queue = queue();
        queue.add("a");
        drop(queue.next().await.unwrap());
        assert_eq!(queue.next().await.unwrap().key(), &"a");
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_waits_longer_each_time() {
        let queue = queue();
        let started = Instant::now();
        let mut waits = Vec::new();
        queue.add("a");
        for _ in 0..4 {
            let taken = queue.next().await.unwrap();
            waits.push(started.elapsed().as_millis());
            taken.done();
            queue.retry("a");
        }
        assert_eq!(waits, [0, 5, 15, 35]);
        queue.forget(&"a");
        assert_eq!(queue.failures(&"a"), 0);
    }

    /// Under the names that dashboards of Kubernetes know.
    #[tokio::test(start_paused = true)]
    async fn what_is_stuck_shows_in_the_metrics() {
        let metrics = QueueMetrics::default();
        let queue = Queue::new("test", Backoff::default(), &metrics);
        let mut registry = prometheus_client::registry::Registry::default();
        metrics.register(&mut registry);
        for key in ["a", "b", "c"] {
            queue.add(key);
        }
        let first = queue.next().await.unwrap();
        tokio::time::advance(Duration::from_secs(3)).await;
        let _second = queue.next().await.unwrap();
        tokio::time::advance(Duration::from_secs(2)).await;
        let shown = || {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            text
        };
        assert!(shown().contains("workqueue_unfinished_work_seconds{name=\"test\"} 7.0"), "{}", shown());
        assert!(shown().contains("workqueue_longest_running_processor_seconds{name=\"test\"} 5.0"));
        first.done();
        assert!(shown().contains("workqueue_longest_running_processor_seconds{name=\"test\"} 2.0"));
        for name in ["depth{name=\"test\"} 1", "adds_total{name=\"test\"} 3", "retries_total{name=\"test\"} 0"] {
            assert!(shown().contains(&format!("workqueue_{name}")), "{name}");
        }
        for name in ["queue_duration_seconds_bucket", "work_duration_seconds_bucket"] {
            assert!(shown().contains(&format!("workqueue_{name}{{")), "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_queue_lets_its_workers_go() {
        let queue = queue();
        let worker = tokio::spawn({
            let queue = queue.clone();
            async move { queue.next().await.is_none() }
        });
        tokio::task::yield_now().await;
        queue.close();
        assert!(worker.await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_time_counts() {
        let queue = queue();
        let started = Instant::now();
        queue.add_after("a", Duration::from_secs(60));
        queue.add_after("a", Duration::from_secs(10));
        queue.add_after("a", Duration::from_secs(30));
        queue.next().await.unwrap().done();
        assert_eq!(started.elapsed(), Duration::from_secs(10));
        assert!(queue.is_empty());
    }
}
