//! The outcome of a request to a launcher, which decides what the caller does next.

use std::fmt;

use tonic::{Code, Status};

use crate::rpc::{self, outcome::Kind};

/// What came of making a guest what its instance says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// The guest is what was asked for.
    Done,
    /// Not now: the same request may succeed later.
    Retry {
        /// Why not now, in words for people.
        why: String,
    },
    /// Never, as it is: no retry helps.
    Never(Vec<Refusal>),
    /// The guest runs; these fields take effect at its next migration, or at its next start.
    NeedsMigration(Vec<String>),
    /// The guest runs; these fields take effect at its next start.
    NeedsRestart(Vec<String>),
}

/// A field that cannot be honoured.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Refusal {
    /// Where, as in `spec.domain.devices.gpus[0]`; empty if it is about the whole.
    pub path: String,
    /// Why, and what to do instead.
    pub problem: String,
}

impl Outcome {
    /// Not now, for this reason.
    pub fn retry(why: impl Into<String>) -> Self {
        Self::Retry { why: why.into() }
    }

    /// Never, for this reason.
    pub fn never(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Never(vec![Refusal { path: path.into(), problem: problem.into() }])
    }

    /// From what a launcher answered, of this release or the first: that one answered with a status.
    #[must_use]
    pub fn from_answer(answer: Result<&rpc::Domain, &Status>) -> Self {
        match answer {
            Ok(domain) => domain.outcome.clone().map_or(Self::Done, Self::from),
            Err(status) if matches!(status.code(), Code::InvalidArgument | Code::AlreadyExists) => {
                Self::never("", status.message())
            }
            Err(status) => Self::retry(status.message()),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() { f.write_str(&self.problem) } else { write!(f, "{}: {}", self.path, self.problem) }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Retry { why } => f.write_str(why),
            Self::Never(refusals) => {
                let all: Vec<String> = refusals.iter().map(ToString::to_string).collect();
                f.write_str(&all.join("; "))
            }
            Self::NeedsMigration(fields) => write!(f, "{} take effect at the next migration", fields.join(", ")),
            Self::NeedsRestart(fields) => write!(f, "{} take effect at the next start", fields.join(", ")),
        }
    }
}

impl From<Outcome> for rpc::Outcome {
    fn from(outcome: Outcome) -> Self {
        let kind = match outcome {
            Outcome::Done => Kind::Done(rpc::Empty {}),
            Outcome::Retry { why } => Kind::Retry(rpc::Retry { why }),
            Outcome::Never(refusals) => {
                let refusal = |Refusal { path, problem }| rpc::Refusal { path, problem };
                Kind::Never(rpc::Never { refusals: refusals.into_iter().map(refusal).collect() })
            }
            Outcome::NeedsMigration(paths) => Kind::NeedsMigration(rpc::Fields { paths }),
            Outcome::NeedsRestart(paths) => Kind::NeedsRestart(rpc::Fields { paths }),
        };
        Self { kind: Some(kind) }
    }
}

impl From<rpc::Outcome> for Outcome {
    /// An outcome that only a newer release knows is asked for again: by then there may be one that this release knows.
    fn from(outcome: rpc::Outcome) -> Self {
        match outcome.kind {
            Some(Kind::Done(rpc::Empty {})) => Self::Done,
            Some(Kind::Retry(rpc::Retry { why })) => Self::Retry { why },
            Some(Kind::Never(rpc::Never { refusals })) => {
                let refusal = |rpc::Refusal { path, problem }| Refusal { path, problem };
                Self::Never(refusals.into_iter().map(refusal).collect())
            }
            Some(Kind::NeedsMigration(rpc::Fields { paths })) => Self::NeedsMigration(paths),
            Some(Kind::NeedsRestart(rpc::Fields { paths })) => Self::NeedsRestart(paths),
            None => Self::retry("the launcher is newer and answered with an unknown outcome"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn outcomes() -> impl Strategy<Value = Outcome> {
        let refusal = (".{0,20}", ".{0,20}").prop_map(|(path, problem)| Refusal { path, problem });
        let fields = || proptest::collection::vec(".{0,20}", 0..4);
        prop_oneof![
            Just(Outcome::Done),
            ".{0,20}".prop_map(Outcome::retry),
            proptest::collection::vec(refusal, 0..4).prop_map(Outcome::Never),
            fields().prop_map(Outcome::NeedsMigration),
            fields().prop_map(Outcome::NeedsRestart),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(testkit::soak::cases(64)))]

        #[test]
        fn an_outcome_survives_the_wire(outcome in outcomes()) {
            use prost::Message as _;
            let bytes = rpc::Outcome::from(outcome.clone()).encode_to_vec();
            prop_assert_eq!(Outcome::from(rpc::Outcome::decode(&*bytes).unwrap()), outcome);
        }
    }

    #[test]
    fn the_first_release_told_it_by_a_status() {
        let never = Outcome::from_answer(Err(&Status::invalid_argument("no such board")));
        assert_eq!(never, Outcome::never("", "no such board"));
        let retry = Outcome::from_answer(Err(&Status::unavailable("the registry is down")));
        assert_eq!(retry, Outcome::retry("the registry is down"));
        assert_eq!(Outcome::from_answer(Ok(&rpc::Domain::default())), Outcome::Done);
    }
}
