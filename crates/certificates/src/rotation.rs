//! When one authority takes over from another.
//!
//! | phase     | signs | is trusted | ends                                                          |
//! |-----------|-------|------------|---------------------------------------------------------------|
//! | alone     | A     | A          | when what A signs could outlive it                            |
//! | announced | A     | A, B       | when everybody has heard of B                                 |
//! | switched  | B     | B, A       | when everything that A signed has ended                       |
//! | alone     | B     | B          |                                                               |
//!
//! At no time is anything in use that somebody does not trust, as long as everybody hears of a change within
//! [`Terms::spread`]: the property test `every_certificate_in_use_is_trusted_by_everybody` plays it.

use jiff::{SignedDuration, Timestamp};

/// How long things are good, and how long they take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The life of an authority. It must be longer than three times the other two.
    pub authority: SignedDuration,
    /// The life of what it signs.
    pub leaf: SignedDuration,
    /// After how long of it that is replaced.
    pub renewed: SignedDuration,
    /// How long until everybody has heard which authorities are to be trusted.
    pub spread: SignedDuration,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make an authority, and let it be trusted.
    Announce,
    /// Let it sign from now on.
    Switch,
    /// Trust the old one no more.
    Forget,
}

/// How far it has come, with authorities of some kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase<A> {
    /// There is one.
    Alone(A),
    /// Another is trusted already, since then.
    Announced {
        signs: A,
        /// Who will.
        comes: A,
        since: Timestamp,
    },
    /// Another signs, since then.
    Switched {
        signs: A,
        /// The certificate of the one that did.
        went: String,
        since: Timestamp,
    },
}

impl<A> Phase<A> {
    /// Who signs.
    pub fn signs(&self) -> &A {
        match self {
            Self::Alone(signs) | Self::Announced { signs, .. } | Self::Switched { signs, .. } => signs,
        }
    }

    /// What is due now. `ends` is when the one that signs is no good any more.
    pub fn due(&self, terms: &Terms, ends: Timestamp, now: Timestamp) -> Option<Step> {
        let Terms { leaf, spread, .. } = *terms;
        let (step, at) = match self {
            // Until it switches it signs, and what it signed last must not outlive it; looks may be late by as much.
            Self::Alone(_) => (Step::Announce, ends - leaf - spread * 2),
            Self::Announced { since, .. } => (Step::Switch, *since + spread),
            Self::Switched { since, .. } => (Step::Forget, *since + leaf),
        };
        (now >= at).then_some(step)
    }

    /// Another is announced; nothing happens unless there is one alone.
    #[must_use]
    pub fn announce(self, comes: A, now: Timestamp) -> Self {
        match self {
            Self::Alone(signs) => Self::Announced { signs, comes, since: now },
            other => other,
        }
    }

    /// The one that was announced signs; `certificate` tells that of the one that did.
    #[must_use]
    pub fn switch(self, certificate: impl FnOnce(&A) -> String, now: Timestamp) -> Self {
        match self {
            Self::Announced { signs, comes, .. } => {
                Self::Switched { went: certificate(&signs), signs: comes, since: now }
            }
            other => other,
        }
    }

    /// The old one is forgotten.
    #[must_use]
    pub fn forget(self) -> Self {
        match self {
            Self::Switched { signs, .. } => Self::Alone(signs),
            other => other,
        }
    }

    /// The certificates that are to be trusted, that of the one that signs first.
    pub fn trusted(&self, certificate: impl Fn(&A) -> String) -> Vec<String> {
        match self {
            Self::Alone(signs) => vec![certificate(signs)],
            Self::Announced { signs, comes, .. } => vec![certificate(signs), certificate(comes)],
            Self::Switched { signs, went, .. } => vec![certificate(signs), went.clone()],
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An authority that is a number, and when it ends.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Numbered(u32, Timestamp);

    fn name(authority: &Numbered) -> String {
        authority.0.to_string()
    }

    const HOUR: i64 = 3600;
    const TERMS: Terms = Terms {
        authority: SignedDuration::from_hours(100),
        leaf: SignedDuration::from_hours(10),
        renewed: SignedDuration::from_hours(7),
        spread: SignedDuration::from_hours(3),
    };

    /// A leaf in use: who signed it, and when it was made.
    #[derive(Clone)]
    struct Used {
        by: String,
        made: Timestamp,
    }

    proptest! {
        /// Servers renew when they please, but before the end; clients know what was to be trusted some time ago.
        #[test]
        fn every_certificate_in_use_is_trusted_by_everybody(
            pauses in proptest::collection::vec(1..3 * HOUR, 50..300),
            ages in proptest::collection::vec(0..=3 * HOUR, 1..5),
            haste in proptest::collection::vec(1..=9_i64, 1..4),
            by_hand in proptest::collection::vec(any::<prop::sample::Index>(), 0..3),
        ) {
            let mut now = Timestamp::from_second(1_000_000_000).unwrap();
            let mut made = 1;
            let mut phase = Phase::Alone(Numbered(made, now + TERMS.authority));
            let mut history = vec![(now, phase.trusted(name))];
            let mut leaves: Vec<Used> = haste.iter().map(|_| Used { by: name(phase.signs()), made: now }).collect();
            let asked: Vec<usize> = by_hand.iter().map(|index| index.index(pauses.len())).collect();
            let mut turns = 0;
            for (index, pause) in pauses.iter().enumerate() {
                now += SignedDuration::from_secs(*pause);
                let due = phase.due(&TERMS, phase.signs().1, now);
                let step = due.or_else(|| asked.contains(&index).then_some(Step::Announce));
                phase = match step {
                    Some(Step::Announce) => {
                        made += 1;
                        phase.announce(Numbered(made, now + TERMS.authority), now)
                    }
                    Some(Step::Switch) => phase.switch(name, now),
                    Some(Step::Forget) => { turns += 1; phase.forget() }
                    None => phase,
                };
                prop_assert!(now < phase.signs().1, "whoever signs is good");
                history.push((now, phase.trusted(name)));
                for (leaf, haste) in leaves.iter_mut().zip(&haste) {
                    // Between two looks it may come to its end: then it is not in use.
                    if now >= leaf.made + SignedDuration::from_hours(*haste) {
                        *leaf = Used { by: name(phase.signs()), made: now };
                    }
                    prop_assert!(leaf.made + TERMS.leaf > now);
                    prop_assert!(leaf.made + TERMS.leaf <= phase_end(&history, leaf), "it does not outlive its authority");
                }
                for age in &ages {
                    let heard = now - SignedDuration::from_secs(*age);
                    let (_, known) = history.iter().rev().find(|(at, _)| *at <= heard).unwrap_or(&history[0]);
                    for leaf in &leaves {
                        prop_assert!(known.contains(&leaf.by), "{known:?} knows nothing of {}", leaf.by);
                    }
                }
            }
            let lasted = pauses.iter().sum::<i64>();
            prop_assert!(lasted < 130 * HOUR || turns > 0, "nobody took over in {lasted} s");
        }
    }

    /// When the authority of a leaf ends: it was first trusted when it was made.
    fn phase_end(history: &[(Timestamp, Vec<String>)], leaf: &Used) -> Timestamp {
        let made = history.iter().find(|(_, trusted)| trusted.contains(&leaf.by)).map(|(at, _)| *at);
        made.unwrap_or(leaf.made) + TERMS.authority
    }

    #[test]
    fn nothing_is_due_in_the_middle() {
        let now = Timestamp::from_second(1_000_000_000).unwrap();
        let alone = Phase::Alone(Numbered(1, now + TERMS.authority));
        let ends = alone.signs().1;
        assert_eq!(alone.due(&TERMS, ends, now), None);
        assert_eq!(alone.due(&TERMS, ends, ends - SignedDuration::from_hours(16)), Some(Step::Announce));
        assert_eq!(alone.clone().forget().switch(name, now), alone, "there is nobody to take over");
        let announced = alone.announce(Numbered(2, ends), now);
        assert_eq!(announced.due(&TERMS, ends, now), None);
        assert_eq!(announced.trusted(name), ["1", "2"]);
        let switched = announced.switch(name, now);
        assert_eq!(
            (switched.trusted(name), switched.due(&TERMS, ends, now)),
            (vec!["2".to_owned(), "1".to_owned()], None)
        );
    }
}
