//! What a controller shows of itself under `/debug/controllers/NAME`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use tokio::time::Instant;

use super::remembered::Remembering;
use crate::cache::{Key, Listed};
use crate::queue::Queue;

pub(super) struct Page {
    queue: Queue<Key>,
    caches: Vec<Arc<dyn Listed>>,
    remembering: Remembering,
}

impl Page {
    pub(super) fn new(queue: Queue<Key>, caches: Vec<Arc<dyn Listed>>, remembering: Remembering) -> Self {
        Self { queue, caches, remembering }
    }

    /// The caches, the keys that are in the queue, and what is remembered by key.
    pub(super) fn text(&self) -> String {
        let mut text = String::from("caches\n");
        for cache in &self.caches {
            let state = if cache.has_synced() { "" } else { ", first list not complete" };
            line(&mut text, &format!("{}: {} objects{state}", cache.kind(), cache.count()));
        }
        text.push_str("queue\n");
        for (key, states) in self.keys() {
            line(&mut text, &format!("{key}: {}", states.join(", ")));
        }
        text.push_str("remembered\n");
        for (key, values) in self.remembering.show() {
            for value in values {
                line(&mut text, &format!("{key}: {value}"));
            }
        }
        text
    }

    fn keys(&self) -> BTreeMap<Key, Vec<String>> {
        let state = self.queue.state();
        let mut keys: BTreeMap<Key, Vec<String>> = BTreeMap::new();
        let mut say = |key: Key, what: String| keys.entry(key).or_default().push(what);
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
}

fn line(text: &mut String, line: &str) {
    // Writing into a string cannot fail.
    let _ = writeln!(text, "  {line}");
}
