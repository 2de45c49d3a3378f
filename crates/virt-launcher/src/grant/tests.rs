use proptest::prelude::*;

use super::*;

/// Two launchers, each with what it has on disk, and what one has told the other. A message is told after it was written down; it
/// may come late, twice or never.
#[derive(Clone, Debug)]
struct Pair {
    source: Grant,
    target: Grant,
    told: Vec<Message>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Message {
    /// From the source: it has given.
    Given,
    /// From the target: it never takes.
    Renounced,
}

/// What may happen next, in any order.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The source gives, and tells.
    Give,
    /// The target renounces, and tells.
    Renounce,
    /// One of the messages arrives.
    Deliver(prop::sample::Index),
    /// A message is lost.
    Lose(prop::sample::Index),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        Just(Event::Give),
        Just(Event::Renounce),
        any::<prop::sample::Index>().prop_map(Event::Deliver),
        any::<prop::sample::Index>().prop_map(Event::Lose),
    ]
}

impl Pair {
    fn new() -> Self {
        Self { source: Grant::Holder, target: Grant::Awaiting { from: "source".into() }, told: vec![] }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Give => {
                if let Ok(grant) = self.source.give("target") {
                    self.source = grant;
                    self.told.push(Message::Given);
                }
            }
            Event::Renounce => {
                if let Ok(grant) = self.target.renounce() {
                    self.target = grant;
                    self.told.push(Message::Renounced);
                }
            }
            // A message stays where it is: it may come again.
            Event::Deliver(index) if !self.told.is_empty() => match *index.get(&self.told) {
                Message::Given => self.target = self.target.take("source").unwrap_or_else(|_| self.target.clone()),
                Message::Renounced => {
                    self.source = self.source.returned("target").unwrap_or_else(|_| self.source.clone());
                }
            },
            Event::Lose(index) if !self.told.is_empty() => drop(self.told.remove(index.index(self.told.len()))),
            Event::Deliver(_) | Event::Lose(_) => {}
        }
    }

    /// Whoever holds, if both go on telling what they have written down.
    fn holders(&self) -> usize {
        usize::from(self.source.may_write()) + usize::from(self.target.may_write())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::soak::cases(512)))]

    #[test]
    fn never_two_hold_and_one_always_can(events in proptest::collection::vec(event(), 0..40)) {
        let mut pair = Pair::new();
        for event in events {
            pair.happen(event);
            prop_assert!(pair.holders() <= 1, "{pair:?} after {event:?}");
            // Told once more what is on disk, one of them holds.
            let mut calm = pair.clone();
            if matches!(calm.source, Grant::Given { .. }) {
                match calm.target.take("source") {
                    Ok(grant) => calm.target = grant,
                    Err(_) => calm.source = calm.source.returned("target").unwrap(),
                }
            }
            prop_assert_eq!(calm.holders(), 1, "{:?} after {:?}", pair, event);
        }
    }
}

#[test]
fn a_promise_is_kept() {
    let given = Grant::Holder.give("a").unwrap();
    assert!(!given.may_write());
    assert_eq!(given.give("a"), Ok(given.clone()), "the same promise again");
    assert_eq!(given.give("b"), Err(GrantError::GivenTo("a".into())));
    assert_eq!(given.returned("b"), Err(GrantError::GivenTo("a".into())));
    assert_eq!(given.take("a"), Err(GrantError::NotAwaiting));
    let awaiting = Grant::Awaiting { from: "a".into() };
    assert_eq!(awaiting.take("b"), Err(GrantError::AwaitedFrom("a".into())));
    assert_eq!(awaiting.give("b"), Err(GrantError::NotHolder));
    assert_eq!(Grant::Renounced.take("a"), Err(GrantError::NotAwaiting));
    assert_eq!(Grant::Holder.renounce(), Err(GrantError::NotAwaiting), "what was taken is here");
}

#[test]
fn what_is_on_disk_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(Grant::stored(folder.path()).unwrap(), None);
    for grant in
        [Grant::Awaiting { from: "a".into() }, Grant::Holder, Grant::Given { to: "b".into() }, Grant::Renounced]
    {
        grant.store(folder.path()).unwrap();
        assert_eq!(Grant::stored(folder.path()).unwrap(), Some(grant));
    }
    // A crash while it was written leaves what was there before.
    std::fs::write(folder.path().join("grant.json.new"), "{").unwrap();
    assert_eq!(Grant::stored(folder.path()).unwrap(), Some(Grant::Renounced));
    std::fs::write(folder.path().join(FILE), "{").unwrap();
    assert!(Grant::stored(folder.path()).is_err());
}
