//! The greeting: who is on the other side of a connection, and what it can do.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use tonic::{Code, Status};

use crate::rpc;

/// Something that launchers of the first release cannot do.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Feature {
    /// `Sync` tells an outcome, and changes a guest that runs.
    Outcomes,
    /// `GetGuest` tells the model.
    Model,
    /// `Sync` takes a guest that comes from another launcher.
    Incoming,
    /// `Console` is there, and nobody else may use the serial port's socket.
    Console,
    /// `Migrate` sends the guest to another launcher, and what follows decides where it goes on.
    Migration,
}

impl Feature {
    const ALL: [Self; 5] = [Self::Outcomes, Self::Model, Self::Incoming, Self::Console, Self::Migration];

    /// As it is called on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Outcomes => "outcomes",
            Self::Model => "model",
            Self::Incoming => "incoming",
            Self::Console => "console",
            Self::Migration => "migration",
        }
    }
}

/// What a launcher says of itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Greeting {
    /// Its release; empty for the first, which did not say.
    pub release: String,
    /// The versions of the guest model that it reads; none for the first release, which had no model.
    pub models: Option<RangeInclusive<u32>>,
    /// What it can do.
    pub features: BTreeSet<Feature>,
}

impl Greeting {
    /// The greeting of this release, which reads these versions of the model.
    #[must_use]
    pub fn of_this_release(models: RangeInclusive<u32>) -> Self {
        let release = env!("CARGO_PKG_VERSION").to_owned();
        Self { release, models: Some(models), features: Feature::ALL.into() }
    }

    /// What is known of a launcher that does not know the greeting.
    #[must_use]
    pub fn of_the_first_release() -> Self {
        Self { release: String::new(), models: None, features: BTreeSet::new() }
    }

    /// From an answer. A launcher that does not know the question is of the first release.
    ///
    /// # Errors
    /// When it did not answer.
    pub fn from_answer(answer: Result<rpc::Greeting, Status>) -> Result<Self, Status> {
        match answer {
            Ok(greeting) => Ok(greeting.into()),
            Err(status) if status.code() == Code::Unimplemented => Ok(Self::of_the_first_release()),
            Err(status) => Err(status),
        }
    }

    /// Whether it can do this.
    #[must_use]
    pub fn has(&self, feature: Feature) -> bool {
        self.features.contains(&feature)
    }
}

impl From<rpc::Greeting> for Greeting {
    /// Features of a newer release say nothing to this one.
    fn from(greeting: rpc::Greeting) -> Self {
        let rpc::Greeting { release, oldest_model, newest_model, features } = greeting;
        let known = |feature: &Feature| features.iter().any(|name| name == feature.name());
        let models = (newest_model > 0).then_some(oldest_model..=newest_model);
        Self { release, models, features: Feature::ALL.into_iter().filter(known).collect() }
    }
}

impl From<Greeting> for rpc::Greeting {
    fn from(greeting: Greeting) -> Self {
        let Greeting { release, models, features } = greeting;
        let (oldest_model, newest_model) = models.map_or((0, 0), RangeInclusive::into_inner);
        let features = features.into_iter().map(|feature| feature.name().to_owned()).collect();
        Self { release, oldest_model, newest_model, features }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_survives_the_wire() {
        for greeting in [Greeting::of_this_release(1..=3), Greeting::of_the_first_release()] {
            assert_eq!(Greeting::from(rpc::Greeting::from(greeting.clone())), greeting);
        }
    }

    #[test]
    fn what_a_newer_release_can_do_is_no_problem() {
        let newer = rpc::Greeting { features: vec!["model".into(), "levitation".into()], ..rpc::Greeting::default() };
        assert_eq!(Greeting::from(newer).features, BTreeSet::from([Feature::Model]));
    }

    #[test]
    fn who_does_not_know_the_question_is_of_the_first_release() {
        let first = Greeting::from_answer(Err(Status::unimplemented("Hello"))).unwrap();
        assert!(!first.has(Feature::Outcomes));
        assert!(Greeting::from_answer(Err(Status::unavailable("gone"))).is_err());
    }
}
