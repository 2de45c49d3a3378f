//! Workers: they take keys from a queue and reconcile them, so many at a time.

use std::error::Error;
use std::fmt::Debug;
use std::time::Duration;

use futures_util::future::join_all;
use kube::ResourceExt;
use tokio::time::Instant;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

use crate::cache::{Key, controller_of};
use crate::errors::{chain, is_race};
use crate::queue::Queue;

/// More races than this in a row, nobody loses.
const LOST_RACES: u32 = 8;

/// What comes after a key was reconciled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing, until something changes.
    Wait,
    /// Look again after this long, even if nothing changes.
    After(Duration),
}

/// What a key is of, as the log tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectName<'a> {
    /// Empty for cluster-wide kinds.
    pub namespace: &'a str,
    /// The object's name; empty where only its UID is known.
    pub name: &'a str,
    /// Empty where the key does not know it: whoever finds the object tells it by [`found`].
    pub uid: &'a str,
}

/// A key that says what it is of.
pub trait About {
    /// The object.
    fn about(&self) -> ObjectName<'_>;
}

impl About for Key {
    fn about(&self) -> ObjectName<'_> {
        ObjectName { namespace: &self.namespace, name: &self.name, uid: "" }
    }
}

/// Names of cluster-wide objects.
impl About for String {
    fn about(&self) -> ObjectName<'_> {
        ObjectName { name: self, ..ObjectName::default() }
    }
}

/// UIDs.
impl About for std::sync::Arc<str> {
    fn about(&self) -> ObjectName<'_> {
        ObjectName { uid: self, ..ObjectName::default() }
    }
}

/// Every further line of this reconcile says which object was found: its UID, and that of its controller.
pub fn found<T: ResourceExt>(object: &T) {
    let span = Span::current();
    span.record("uid", object.meta().uid.as_deref().unwrap_or_default());
    span.record("owner", controller_of(object).first().map_or("", String::as_str));
}

/// Works on a queue until it is closed. A failure is logged and the key comes again after its back-off. All that is logged
/// meanwhile has the keys `controller`, `namespace`, `name`, `uid`, `owner` and `attempt`.
pub async fn work<K, F, R, E>(controller: &str, queue: &Queue<K>, workers: usize, reconcile: F)
where
    K: About + Ord + Clone + Debug,
    F: Fn(K) -> R,
    R: Future<Output = Result<Next, E>>,
    E: Error + 'static,
{
    let worker = || one(controller, queue, &reconcile);
    join_all((0..workers.max(1)).map(|_| worker())).await;
}

async fn one<K, F, R, E>(controller: &str, queue: &Queue<K>, reconcile: &F)
where
    K: About + Ord + Clone + Debug,
    F: Fn(K) -> R,
    R: Future<Output = Result<Next, E>>,
    E: Error + 'static,
{
    while let Some(taken) = queue.next().await {
        let key = taken.key().clone();
        let attempt = queue.failures(&key) + 1;
        let ObjectName { namespace, name, uid } = key.about();
        let span = tracing::info_span!("reconcile", controller, namespace, name, uid, owner = Empty, attempt);
        let began = Instant::now();
        let result = reconcile(key.clone()).instrument(span.clone()).await;
        taken.done();
        span.in_scope(|| tell(&result, attempt, began.elapsed()));
        match result {
            Ok(next) => {
                queue.forget(&key);
                if let Next::After(delay) = next {
                    queue.add_after(key, delay);
                }
            }
            Err(_) => queue.retry(key),
        }
    }
}

fn tell<E: Error + 'static>(result: &Result<Next, E>, attempt: u32, took: Duration) {
    let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    match result {
        Ok(next) => tracing::debug!(ms, ?next, "reconciled"),
        // Somebody was faster: that happens to everybody, and the next look tells. To whom it goes on happening, it is none.
        Err(error) if is_race(error) && attempt <= LOST_RACES => {
            tracing::debug!(ms, error = chain(error), "cannot reconcile");
        }
        Err(error) => tracing::warn!(ms, error = chain(error), "cannot reconcile"),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::sync::Arc;

    use tokio::time::sleep;

    use super::*;
    use crate::queue::{Backoff, QueueMetrics};

    #[derive(Debug, thiserror::Error)]
    #[error("not yet")]
    struct NotYet;

    impl About for u32 {
        fn about(&self) -> ObjectName<'_> {
            ObjectName { name: "number", ..ObjectName::default() }
        }
    }

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

    /// What is logged meanwhile, from a level on.
    async fn logged(level: tracing::Level, work: impl Future<Output = ()>) -> Vec<String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        let lines = tracing_subscriber::fmt().without_time().with_ansi(false).with_max_level(level);
        let lines = lines.with_writer(Arc::new(file.reopen().unwrap())).finish();
        let guard = tracing::subscriber::set_default(lines);
        work.await;
        drop(guard);
        let text = std::fs::read_to_string(file.path()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_of_a_reconcile_says_of_what_it_is_and_at_which_attempt() {
        let queue = Queue::new("test", Backoff::default(), &QueueMetrics::default());
        queue.add(Key { namespace: "n".to_owned(), name: "a".to_owned() });
        let pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(serde_json::json!({
            "metadata": { "uid": "u", "ownerReferences":
                [{ "apiVersion": "v1", "kind": "K", "name": "o", "uid": "owner", "controller": true }] },
        }))
        .unwrap();
        let reconcile = async |_| {
            found(&pod);
            if queue.failures(&Key { namespace: "n".to_owned(), name: "a".to_owned() }) == 0 {
                return Err(NotYet);
            }
            tracing::info!("acted");
            queue.close();
            Ok(Next::Wait)
        };
        let lines = logged(tracing::Level::INFO, work("pods", &queue, 1, reconcile)).await;
        let span = |attempt: u32| {
            format!(
                "reconcile{{controller=\"pods\" namespace=\"n\" name=\"a\" uid=\"\" attempt={attempt} uid=\"u\" owner=\"owner\"}}"
            )
        };
        assert!(lines[0].contains(&span(1)) && lines[0].contains("cannot reconcile"), "{lines:?}");
        assert!(lines[1].contains(&span(2)) && lines[1].contains("acted"), "{lines:?}");
        assert_eq!(lines.len(), 2, "{lines:?}");
    }

    fn refused(code: u16, name: &str) -> kube::Error {
        let status = serde_json::json!({ "code": code, "details": { "name": name } });
        kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))
    }

    /// How many warnings there are of a key that fails so often in the same way.
    async fn warnings(times: usize, code: u16, name: &str) -> usize {
        let queue = queue();
        queue.add(7);
        let tried = Cell::new(0);
        let reconcile = async |_| {
            tried.set(tried.get() + 1);
            if tried.get() == times {
                queue.close();
            }
            Err::<Next, _>(refused(code, name))
        };
        logged(tracing::Level::WARN, work("test", &queue, 1, reconcile)).await.len()
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_race_is_no_warning_unless_it_is_lost_for_ever() {
        let most = usize::try_from(LOST_RACES).unwrap();
        assert_eq!((warnings(most, 409, "a").await, warnings(most, 404, "a").await), (0, 0));
        assert_eq!(warnings(most + 2, 409, "a").await, 2);
        // Not an object is missing, but its kind.
        assert_eq!((warnings(1, 404, "").await, warnings(1, 500, "a").await), (1, 1));
    }
}
