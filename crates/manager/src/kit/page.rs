//! What a controller shows of itself under `/debug/controllers/NAME`, and how it tells that it is stuck.

use std::collections::BTreeMap;
use std::fmt::{Debug, Display, Write as _};
use std::sync::Arc;

use tokio::time::Instant;

use super::remembered::Remembering;
use super::{STUCK, Watched};
use crate::cache::{Cache, Key, Listed};
use crate::context::Started;
use crate::queue::Queue;

/// The caches, the keys that are in the queue, and what is remembered.
#[must_use = "a page is shown only after `of`"]
pub struct Page<K> {
    queue: Queue<K>,
    caches: Vec<Arc<dyn Listed>>,
    remembered: Box<dyn Fn() -> Vec<String> + Send + Sync>,
}

impl<K: Ord + Clone + Debug + Display + Send + 'static> Page<K> {
    /// The page of a controller with this queue.
    pub fn new(queue: &Queue<K>) -> Self {
        Self { queue: queue.clone(), caches: Vec::new(), remembered: Box::new(Vec::new) }
    }

    /// A cache that it reads.
    pub fn cache<T: Watched>(mut self, cache: &Cache<T>) -> Self {
        self.caches.push(Arc::new(cache.clone()));
        self
    }

    /// What it remembers, one line for each thing.
    pub fn remembers(self, remembered: impl Fn() -> Vec<String> + Send + Sync + 'static) -> Self {
        Self { remembered: Box::new(remembered), ..self }
    }

    /// The controller shows this page, and reports itself unhealthy when a key is worked on for longer than [`STUCK`].
    #[must_use]
    pub fn of(self, controller: Started) -> Started {
        let checked = self.queue.clone();
        controller.debug(move |path| path.is_empty().then(|| self.text())).health(move || is_healthy(&checked))
    }

    fn text(&self) -> String {
        let mut text = String::from("caches\n");
        for cache in &self.caches {
            let state = if cache.has_synced() { "" } else { ", first list not complete" };
            line(&mut text, &format!("{}: {} objects{state}", cache.kind(), cache.count()));
        }
        text.push_str("queue\n");
        for (key, states) in keys(&self.queue) {
            line(&mut text, &format!("{key}: {}", states.join(", ")));
        }
        text.push_str("remembered\n");
        for value in (self.remembered)() {
            line(&mut text, &value);
        }
        text
    }
}

impl Page<Key> {
    pub(super) fn of_kit(queue: &Queue<Key>, caches: Vec<Arc<dyn Listed>>, remembering: Remembering) -> Self {
        let remembered = move || {
            let all = remembering.show().into_iter();
            all.flat_map(|(key, values)| values.into_iter().map(move |value| format!("{key}: {value}"))).collect()
        };
        Self { caches, ..Self::new(queue).remembers(remembered) }
    }
}

/// Whether no key of a queue has been worked on for longer than [`STUCK`].
///
/// # Errors
/// Says which has.
pub fn is_healthy<K: Ord + Clone + Debug + Display>(queue: &Queue<K>) -> Result<(), String> {
    let stuck = queue.state().working.into_iter().find(|(_, since)| since.elapsed() > STUCK);
    match stuck {
        Some((key, since)) => Err(format!("{key} has been worked on for {} seconds", since.elapsed().as_secs())),
        None => Ok(()),
    }
}

/// What is true of each key, in their order.
fn keys<K: Ord + Clone + Debug>(queue: &Queue<K>) -> BTreeMap<K, Vec<String>> {
    let state = queue.state();
    let mut keys: BTreeMap<K, Vec<String>> = BTreeMap::new();
    let mut say = |key: K, what: String| keys.entry(key).or_default().push(what);
    for (key, since) in state.working {
        say(key, format!("worked on for {} s", since.elapsed().as_secs()));
    }
    for key in state.waiting {
        say(key, "waits".to_owned());
    }
    for (key, at) in state.delayed {
        say(key, format!("again in {} s", at.saturating_duration_since(Instant::now()).as_secs()));
    }
    for (key, failures) in state.failures {
        say(key, format!("failed {failures} times in a row"));
    }
    keys
}

fn line(text: &mut String, line: &str) {
    // Writing into a string cannot fail.
    let _ = writeln!(text, "  {line}");
}
