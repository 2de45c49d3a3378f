//! One watch per resource, of metadata alone.
//!
//! A resource that is not served any more is watched for a while longer: its last objects went before it, and who depends
//! on them should hear of that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{BoxStream, SelectAll};
use futures_util::{StreamExt as _, stream};
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::discovery::ApiResource;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use manager::context::Chance;
use manager::watching::Patience;
use tokio::sync::watch;
use tokio::time::sleep;

use super::graph::{Kind, Uid};
use super::served::Served;

/// As long as Kubernetes takes to notice that a resource is gone.
const LINGER: Duration = Duration::from_secs(30);

/// An object without its content.
pub(super) type Meta = PartialObjectMeta<DynamicObject>;

/// What a watch saw.
pub(super) enum Seen {
    Event(Box<watcher::Event<Meta>>),
    Interrupted(watcher::Error),
    Ended,
}

/// The watches of all resources.
pub(super) struct Watches {
    client: Client,
    chance: Chance,
    streams: SelectAll<BoxStream<'static, (Arc<Kind>, u64, Seen)>>,
    known: BTreeMap<Arc<Kind>, Watch>,
    started: u64,
}

/// One watch.
pub(super) struct Watch {
    /// Tells it from an earlier one of the same kind.
    number: u64,
    synced: bool,
    /// What a list in progress has named so far.
    pub(super) listed: BTreeSet<Uid>,
    leaving: watch::Sender<bool>,
}

impl Watches {
    pub(super) fn new(client: Client, chance: Chance) -> Self {
        Self { client, chance, streams: SelectAll::new(), known: BTreeMap::new(), started: 0 }
    }

    /// Watches what is served, and lets go of what is not.
    pub(super) fn follow(&mut self, served: &Served) {
        for (kind, watch) in &self.known {
            watch.leaving.send_replace(!served.get(kind).is_some_and(|resource| resource.watched));
        }
        for (kind, resource) in served.watched() {
            if !self.known.contains_key(kind) {
                self.start(Arc::new(kind.clone()), resource);
            }
        }
    }

    fn start(&mut self, kind: Arc<Kind>, resource: &ApiResource) {
        self.started += 1;
        let number = self.started;
        let leaving = watch::Sender::new(false);
        let api: Api<Meta> = Api::all_with(self.client.clone(), resource);
        let events = watcher(api, watcher::Config::default().streaming_lists())
            .backoff(Patience::new(self.chance.clone()))
            .map(|event| event.map_or_else(Seen::Interrupted, |event| Seen::Event(Box::new(event))))
            .take_until(left(leaving.subscribe()))
            .chain(stream::iter([Seen::Ended]));
        let tagged = Arc::clone(&kind);
        self.streams.push(events.map(move |seen| (Arc::clone(&tagged), number, seen)).boxed());
        let watch = Watch { number, synced: false, listed: BTreeSet::new(), leaving };
        self.known.insert(kind, watch);
    }

    /// What is seen next, by a watch that still counts; none when nothing is watched.
    pub(super) async fn next(&mut self) -> Option<(Arc<Kind>, Seen)> {
        loop {
            let (kind, number, seen) = self.streams.next().await?;
            if self.known.get(&kind).is_some_and(|watch| watch.number == number) {
                return Some((kind, seen));
            }
        }
    }

    pub(super) fn get(&mut self, kind: &Kind) -> Option<&mut Watch> {
        self.known.get_mut(kind)
    }

    /// Ends a watch for good.
    pub(super) fn end(&mut self, kind: &Kind) {
        self.known.remove(kind);
    }

    /// Those that have not seen all objects of their kind yet, unless they are about to end.
    pub(super) fn behind(&self) -> Vec<&Kind> {
        let behind = self.known.iter().filter(|(_, watch)| !watch.synced && !watch.is_leaving());
        behind.map(|(kind, _)| &**kind).collect()
    }
}

impl Watch {
    /// The list is complete: what it named.
    pub(super) fn done(&mut self) -> BTreeSet<Uid> {
        self.synced = true;
        std::mem::take(&mut self.listed)
    }

    pub(super) fn is_leaving(&self) -> bool {
        *self.leaving.borrow()
    }
}

/// Resolves when a watch has lingered long enough, or nobody wants it.
async fn left(mut leaving: watch::Receiver<bool>) {
    while leaving.wait_for(|leaving| *leaving).await.is_ok() {
        tokio::select! {
            biased;
            back = leaving.wait_for(|leaving| !*leaving) => if back.is_err() { return },
            () = sleep(LINGER) => return,
        }
    }
}
