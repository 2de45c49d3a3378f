//! Workers: they take keys from a queue and reconcile them, so many at a time.

use std::error::Error;
use std::fmt::Debug;
use std::time::Duration;

use futures_util::future::join_all;

use crate::queue::Queue;

/// What comes after a key was reconciled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing, until something changes.
    Wait,
    /// Look again after this long, even if nothing changes.
    After(Duration),
}

/// Works on a queue until it is closed. A failure is logged and the key comes again after its back-off.
pub async fn work<K, F, R, E>(controller: &str, queue: &Queue<K>, workers: usize, reconcile: F)
where
    K: Ord + Clone + Debug,
    F: Fn(K) -> R,
    R: Future<Output = Result<Next, E>>,
    E: Error + 'static,
{
    let worker = || one(controller, queue, &reconcile);
    join_all((0..workers.max(1)).map(|_| worker())).await;
}

async fn one<K, F, R, E>(controller: &str, queue: &Queue<K>, reconcile: &F)
where
    K: Ord + Clone + Debug,
    F: Fn(K) -> R,
    R: Future<Output = Result<Next, E>>,
    E: Error + 'static,
{
    while let Some(taken) = queue.next().await {
        let key = taken.key().clone();
        let result = reconcile(key.clone()).await;
        taken.done();
        match result {
            Ok(next) => {
                queue.forget(&key);
                if let Next::After(delay) = next {
                    queue.add_after(key, delay);
                }
            }
            Err(error) => {
                // Somebody was faster: that happens to everybody, and the next look tells.
                if is_conflict(&error) {
                    tracing::debug!(controller, ?key, error = chain(&error), "not reconciled");
                } else {
                    tracing::warn!(controller, ?key, error = chain(&error), "not reconciled");
                }
                queue.retry(key);
            }
        }
    }
}

fn is_conflict(error: &(dyn Error + 'static)) -> bool {
    let causes = std::iter::successors(Some(error), |&cause| cause.source());
    let mut of_server = causes.filter_map(|cause| cause.downcast_ref::<kube::Error>());
    of_server.any(|error| matches!(error, kube::Error::Api(status) if status.code == 409))
}

/// An error and all that caused it, in one line.
fn chain(error: &dyn Error) -> String {
    std::iter::successors(error.source(), |&cause| cause.source())
        .fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::queue::{Backoff, QueueMetrics};

    #[derive(Debug, thiserror::Error)]
    #[error("not yet")]
    struct NotYet;

    fn queue() -> Queue<u32> {
        Queue::new(
            "test",
            Backoff { first: Duration::from_secs(1), most: Duration::from_secs(60) },
            &QueueMetrics::default(),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn as_many_are_worked_on_at_once_as_there_are_workers() {
        let queue = queue();
        (0..10).for_each(|key| queue.add(key));
        let (running, most, done) = (Cell::new(0), Cell::new(0), Cell::new(0));
        work("test", &queue, 3, async |_| {
            running.set(running.get() + 1);
            most.set(most.get().max(running.get()));
            sleep(Duration::from_secs(1)).await;
            running.set(running.get() - 1);
            done.set(done.get() + 1);
            if done.get() == 10 {
                queue.close();
            }
            Ok::<_, NotYet>(Next::Wait)
        })
        .await;
        assert_eq!((most.get(), done.get()), (3, 10));
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_comes_again_and_what_is_to_be_looked_at_later_too() {
        let queue = queue();
        let started = Instant::now();
        queue.add(7);
        let seen = RefCell::new(Vec::new());
        work("test", &queue, 1, async |_| {
            seen.borrow_mut().push(started.elapsed().as_secs());
            match seen.borrow().len() {
                1 | 2 => Err(NotYet),
                3 => Ok(Next::After(Duration::from_secs(30))),
                _ => {
                    queue.close();
                    Ok(Next::Wait)
                }
            }
        })
        .await;
        assert_eq!(*seen.borrow(), [0, 1, 3, 33]);
    }
}
