//! Streams that last: how many each user may have, and their end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use virt_api::subresources::Lasting;

/// Streams of one user at the same time.
const MOST_OF_ONE: usize = 256;
/// Streams of all users.
const MOST: usize = 4096;
/// How long streams have to take leave of their clients.
const FAREWELL: Duration = Duration::from_secs(4);

/// The streams that are open. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Streams(Arc<Shared>);

#[derive(Default)]
struct Shared {
    open: Mutex<BTreeMap<String, usize>>,
    ended: Notify,
    gauge: Gauge,
}

/// One that is open, for as long as it is kept.
struct Place {
    streams: Streams,
    user: String,
}

impl Streams {
    /// A place for one more stream of this user, which ends when `stopping` says so; none, if there are too many.
    pub(crate) fn begin(&self, user: &str, stopping: watch::Receiver<bool>) -> Option<Lasting> {
        let mut open = self.open();
        if open.values().sum::<usize>() >= MOST || open.get(user).is_some_and(|count| *count >= MOST_OF_ONE) {
            return None;
        }
        *open.entry(user.to_owned()).or_default() += 1;
        self.0.gauge.inc();
        drop(open);
        let place = Place { streams: self.clone(), user: user.to_owned() };
        Some(Lasting::until(move || {
            let (_, mut stopping) = (&place, stopping.clone());
            Box::pin(async move {
                // A server that is gone has stopped.
                let _ = stopping.wait_for(|stopping| *stopping).await;
            })
        }))
    }

    /// Shows how many there are.
    pub(crate) fn gauge(&self) -> Gauge {
        self.0.gauge.clone()
    }

    fn count(&self) -> usize {
        self.open().values().sum()
    }

    /// Waits until all have ended, for some time.
    pub(crate) async fn ended(&self) {
        let all = async {
            loop {
                let ended = self.0.ended.notified();
                if self.count() == 0 {
                    return;
                }
                ended.await;
            }
        };
        drop(timeout(FAREWELL, all).await);
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.streams.open();
        if let Some(count) = open.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.user);
            }
        }
        drop(open);
        self.streams.0.gauge.dec();
        self.streams.0.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_user_takes_all_places_and_a_stream_that_ends_gives_its_place_back() {
        let (streams, stopping) = (Streams::default(), watch::channel(false).1);
        let mut kept: Vec<Lasting> = Vec::new();
        while let Some(one) = streams.begin("anna", stopping.clone()) {
            kept.push(one);
        }
        assert_eq!((kept.len(), streams.count()), (MOST_OF_ONE, MOST_OF_ONE));
        assert!(streams.begin("bob", stopping.clone()).is_some());
        kept.pop();
        assert!(streams.begin("anna", stopping.clone()).is_some());
        for user in 0.. {
            let user = user.to_string();
            let more: Vec<Lasting> = std::iter::from_fn(|| streams.begin(&user, stopping.clone())).collect();
            if more.is_empty() {
                break;
            }
            kept.extend(more);
        }
        assert_eq!(streams.count(), MOST);
        kept.clear();
        assert_eq!((streams.count(), streams.gauge().get()), (0, 0));
    }
}
