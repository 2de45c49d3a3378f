//! Keeps the graph: asks what is served, watches it, and tells the workers what to look at.

use std::sync::Arc;
use std::time::Duration;

use kube::runtime::watcher;
use manager::errors::{chain, is_late};
use manager::watching::Patience;
use tokio::time::sleep;

use super::graph::{Effect, Identity, Kind};
use super::served::{DiscoveryError, Served};
use super::watches::{Meta, Seen, Watches};
use super::{Check, GarbageCollector};
use crate::discovery::Groups;

/// After a definition has changed the server is asked at once, and some times more: servers tell of a new kind, or stop
/// telling of one that is gone, a moment after its definition says so.
const LOOKS: [Duration; 4] = [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(10), Duration::from_secs(30)];

/// Kinds whose objects decide on what is served.
const DEFINITIONS: [(&str, &str); 2] =
    [("apiextensions.k8s.io/", "CustomResourceDefinition"), ("apiregistration.k8s.io/", "APIService")];

impl GarbageCollector {
    /// Asks what is served, at the start and whenever a definition has changed.
    pub(super) async fn discover(&self) {
        let (mut looks, mut last) = (LOOKS.iter(), Groups::default());
        loop {
            match looks.next() {
                Some(pause) => tokio::select! {
                    biased;
                    () = self.definitions.notified() => looks = LOOKS.iter(),
                    () = sleep(*pause) => self.look(&mut last).await,
                },
                None => {
                    self.definitions.notified().await;
                    looks = LOOKS.iter();
                }
            }
        }
    }

    /// Asks until there is an answer.
    async fn look(&self, last: &mut Groups) {
        let mut patience = Patience::new(self.chance.clone());
        while let Err(error) = self.look_once(last).await {
            tracing::warn!(error = chain(&error), "cannot discover the kinds of the server");
            sleep(patience.next().unwrap_or_default()).await;
        }
    }

    /// Asks once. An answer that is still the last one is not read again.
    async fn look_once(&self, last: &mut Groups) -> Result<(), DiscoveryError> {
        let groups = self.discovery.groups().await?;
        if groups.is(last) {
            return Ok(());
        }
        let old = self.discovered.borrow().clone().unwrap_or_default();
        let new = Served::read(&groups, &old)?;
        *last = groups;
        self.discovered.send_if_modified(|known| {
            let changed = known.as_deref() != Some(&new);
            if changed {
                *known = Some(Arc::new(new));
            }
            changed
        });
        Ok(())
    }

    /// Keeps the graph up to date.
    pub(super) async fn observe(&self) {
        let mut watches = Watches::new(self.client.clone(), self.chance.clone());
        let mut discovered = self.discovered.subscribe();
        loop {
            tokio::select! {
                biased;
                Some((kind, seen)) = watches.next() => self.see(&mut watches, &kind, seen),
                Ok(()) = discovered.changed() => {
                    let served = discovered.borrow_and_update().clone().unwrap_or_default();
                    watches.follow(&served);
                    let effects = self.state().serve(served);
                    self.tell(effects);
                }
                else => return,
            }
            let all = watches.behind().is_empty();
            self.synced.send_if_modified(|synced| std::mem::replace(synced, all) != all);
        }
    }

    fn see(&self, watches: &mut Watches, kind: &Kind, seen: Seen) {
        match seen {
            Seen::Event(event) => {
                if is_definition(kind) && !matches!(*event, watcher::Event::Init | watcher::Event::InitDone) {
                    self.definitions.notify_one();
                }
                let effects = self.take(watches, kind, *event);
                self.tell(effects);
            }
            Seen::Interrupted(error) => {
                let (name, api_version) = (&kind.kind, &kind.api_version);
                if is_late(&error) {
                    tracing::debug!(kind = name, api_version, error = chain(&error), "restarted a watch");
                } else {
                    tracing::warn!(kind = name, api_version, error = chain(&error), "a watch was interrupted");
                }
                if watches.get(kind).is_some_and(|watch| watch.is_leaving()) {
                    self.leave(watches, kind);
                }
            }
            Seen::Ended => self.leave(watches, kind),
        }
    }

    /// A resource is not served any more, and nothing more will be heard of its objects. Who depends on them is not
    /// touched: nobody can say that they are gone.
    fn leave(&self, watches: &mut Watches, kind: &Kind) {
        watches.end(kind);
        let effects = self.state().graph.keep_only(kind, &Default::default());
        self.tell(effects);
    }

    fn take(&self, watches: &mut Watches, kind: &Kind, event: watcher::Event<Meta>) -> Vec<Effect> {
        let mut state = self.state();
        let Some(watch) = watches.get(kind) else { return Vec::new() };
        match event {
            watcher::Event::Init => {
                watch.listed.clear();
                Vec::new()
            }
            watcher::Event::InitApply(object) => {
                watch.listed.insert(object.metadata.uid.as_deref().unwrap_or_default().into());
                state.graph.observe(kind, &object.metadata)
            }
            watcher::Event::InitDone => state.graph.keep_only(kind, &watch.done()),
            watcher::Event::Apply(object) => state.graph.observe(kind, &object.metadata),
            watcher::Event::Delete(object) => {
                let text = |part: &Option<String>| part.clone().unwrap_or_default();
                let metadata = &object.metadata;
                state.gone(Identity {
                    kind: Arc::new(kind.clone()),
                    namespace: text(&metadata.namespace).into(),
                    name: text(&metadata.name).into(),
                    uid: text(&metadata.uid).into(),
                })
            }
        }
    }

    /// Gives the workers what there is to look at.
    pub(super) fn tell(&self, effects: impl IntoIterator<Item = Effect>) {
        for effect in effects {
            match effect {
                Effect::Attempt(uid) => self.deletions.add(Check::Item(uid)),
                Effect::Verify(uid) => self.deletions.add(Check::Owner(uid)),
                Effect::Orphan(uid) => self.orphans.add(uid),
            }
        }
    }
}

fn is_definition(kind: &Kind) -> bool {
    DEFINITIONS.iter().any(|(group, name)| kind.kind == *name && kind.api_version.starts_with(group))
}
