//! Which events are written, and which of them are one. Pure: the time is passed in.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};

use jiff::{SignedDuration, Timestamp};

use super::Happened;

/// Events about one object that may come at once, and how long the next one takes.
const BURST: f64 = 25.0;
const REFILL: SignedDuration = SignedDuration::from_mins(5);
/// Texts of one reason within this time: the last of so many, and all that follow, are told as one.
const MOST_TEXTS: usize = 10;
const WINDOW: SignedDuration = SignedDuration::from_mins(10);
/// What is remembered of each kind; the oldest goes first.
const MOST_REMEMBERED: usize = 4096;
const COMBINED: &str = "(combined from similar events): ";

/// What to write.
#[derive(Debug, PartialEq)]
pub(super) enum Written {
    New { name: String, happened: Happened },
    Again { name: String, count: i32, happened: Happened },
}

impl Written {
    fn happened(&self) -> &Happened {
        match self {
            Self::New { happened, .. } | Self::Again { happened, .. } => happened,
        }
    }

    /// Events about cluster-wide objects are kept in `default`.
    pub(super) fn namespace(&self) -> &str {
        self.happened().about.namespace.as_deref().filter(|namespace| !namespace.is_empty()).unwrap_or("default")
    }

    pub(super) fn reason(&self) -> &str {
        &self.happened().reason
    }
}

/// Stands for a text, or several, in a tenth of the memory. It is the same in every process.
type Mark = u64;

fn mark(of: impl Hash) -> Mark {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

#[derive(Default)]
pub(super) struct Correlator {
    /// By object, kind, reason and text.
    written: BTreeMap<Mark, Known>,
    /// By object, kind and reason.
    texts: BTreeMap<Mark, Vec<(Mark, Timestamp)>>,
    /// By object.
    buckets: BTreeMap<Mark, (f64, Timestamp)>,
}

struct Known {
    name: String,
    count: i32,
    last: Timestamp,
}

impl Correlator {
    /// What to write about it, if anything.
    pub(super) fn take(&mut self, mut happened: Happened, now: Timestamp) -> Option<Written> {
        let object = object(&happened);
        if !self.has_token(object, now) {
            return None;
        }
        let (subject, text) = (mark((object, happened.kind.as_str(), &happened.reason)), mark(&happened.message));
        make_room(&mut self.texts, subject, |texts| texts.last().map_or(Timestamp::MIN, |(_, at)| *at));
        let texts = self.texts.entry(subject).or_default();
        texts.retain(|(known, at)| now.duration_since(*at) <= WINDOW && *known != text);
        texts.push((text, now));
        let combined = texts.len() >= MOST_TEXTS;
        if combined {
            happened.message = format!("{COMBINED}{}", happened.message);
        }
        let identity = mark((subject, (!combined).then_some(text)));
        if let Some(known) = self.written.get_mut(&identity) {
            known.count = known.count.saturating_add(1);
            known.last = now;
            return Some(Written::Again { name: known.name.clone(), count: known.count, happened });
        }
        // As Kubernetes names events: the object, and the time in hexadecimal.
        let object = happened.about.name.as_deref().unwrap_or_default();
        let name = format!("{object}.{:x}", now.as_nanosecond().saturating_add(self.written.len() as i128));
        make_room(&mut self.written, identity, |known| known.last);
        self.written.insert(identity, Known { name: name.clone(), count: 1, last: now });
        Some(Written::New { name, happened })
    }

    /// It could not be written.
    pub(super) fn forget(&mut self, written: &Written) {
        let (Written::New { name, .. } | Written::Again { name, .. }) = written;
        self.written.retain(|_, known| known.name != *name);
    }

    fn has_token(&mut self, object: Mark, now: Timestamp) -> bool {
        make_room(&mut self.buckets, object, |(_, at)| *at);
        let (tokens, at) = self.buckets.entry(object).or_insert((BURST, now));
        let gained = now.duration_since(*at).as_secs_f64() / REFILL.as_secs_f64();
        (*tokens, *at) = ((*tokens + gained).min(BURST), now);
        let has = *tokens >= 1.0;
        if has {
            *tokens -= 1.0;
        }
        has
    }
}

/// Lets the oldest go where one comes that is not known yet.
fn make_room<V>(known: &mut BTreeMap<Mark, V>, coming: Mark, last: impl Fn(&V) -> Timestamp) {
    if known.len() < MOST_REMEMBERED || known.contains_key(&coming) {
        return;
    }
    if let Some(oldest) = known.iter().min_by_key(|(_, value)| last(value)).map(|(key, _)| *key) {
        known.remove(&oldest);
    }
}

/// Each component has its own say.
fn object(happened: &Happened) -> Mark {
    let about = &happened.about;
    mark((&happened.component, &about.kind, &about.namespace, &about.name, &about.uid))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ObjectReference;

    use super::*;
    use crate::events::Kind;

    fn happened(message: &str) -> Happened {
        let about = ObjectReference { name: Some("p".to_owned()), ..ObjectReference::default() };
        Happened {
            component: "test".to_owned(),
            about,
            kind: Kind::Warning,
            reason: "Failed".to_owned(),
            message: message.to_owned(),
        }
    }

    #[test]
    fn the_same_again_is_counted() {
        let mut correlator = Correlator::default();
        let now = Timestamp::UNIX_EPOCH;
        let Some(Written::New { name, .. }) = correlator.take(happened("x"), now) else { panic!("the first is new") };
        assert_eq!(
            correlator.take(happened("x"), now),
            Some(Written::Again { name, count: 2, happened: happened("x") })
        );
    }

    #[test]
    fn what_was_not_written_is_new_again() {
        let mut correlator = Correlator::default();
        let now = Timestamp::UNIX_EPOCH;
        let first = correlator.take(happened("x"), now).unwrap();
        correlator.forget(&first);
        assert!(matches!(correlator.take(happened("x"), now), Some(Written::New { .. })));
    }

    #[test]
    fn no_more_is_remembered_than_there_is_room_for() {
        let mut correlator = Correlator::default();
        for index in 0..MOST_REMEMBERED + 100 {
            let mut one = happened("x");
            one.about.name = Some(index.to_string());
            let now = Timestamp::from_second(i64::try_from(index).unwrap()).unwrap();
            let written = correlator.take(one, now).unwrap();
            // Whether it could be written or not.
            if index % 2 == 0 {
                correlator.forget(&written);
            }
        }
        let Correlator { written, texts, buckets } = &correlator;
        assert!(written.len() <= MOST_REMEMBERED);
        assert_eq!((texts.len(), buckets.len()), (MOST_REMEMBERED, MOST_REMEMBERED));
        let mut oldest = happened("x");
        oldest.about.name = Some("0".to_owned());
        assert!(!buckets.contains_key(&object(&oldest)), "the oldest went");
    }

    #[test]
    fn many_texts_become_one() {
        let mut correlator = Correlator::default();
        let now = Timestamp::UNIX_EPOCH;
        let written: Vec<Written> =
            (0..13).filter_map(|index| correlator.take(happened(&index.to_string()), now)).collect();
        let new = written.iter().filter(|one| matches!(one, Written::New { .. })).count();
        // Nine are told apart, as by Kubernetes; the tenth is the first of the others.
        assert_eq!((new, written.len()), (10, 13));
        assert_eq!(written[8].happened().message, "8");
        assert_eq!(written[9].happened().message, "(combined from similar events): 9");
        assert_eq!(written[12].happened().message, "(combined from similar events): 12");
    }

    #[test]
    fn a_flood_about_one_object_is_cut() {
        let mut correlator = Correlator::default();
        let now = Timestamp::UNIX_EPOCH;
        let count = |correlator: &mut Correlator, now| {
            (0..100).filter(|_| correlator.take(happened("x"), now).is_some()).count()
        };
        assert_eq!(count(&mut correlator, now), 25);
        assert_eq!(count(&mut correlator, now + SignedDuration::from_mins(10)), 2);
    }
}
