//! What launchers and other nodes answer to the steps of a migration, as outcomes.

use launcher_api::Outcome;
use launcher_api::rpc::Domain;
use manager::errors::chain;
use tokio::time::error::Elapsed;
use tonic::{Code, Status};

use crate::relay::RelayError;

/// What a launcher answered to a step of a migration: the domain after it, or what came of it instead.
pub(super) fn taken(answer: Result<Result<Domain, Status>, Elapsed>) -> Result<Domain, Outcome> {
    let domain = known(answer)?;
    match Outcome::from_answer(Ok(&domain)) {
        Outcome::Done => Ok(domain),
        failed => Err(failed),
    }
}

/// What a launcher answered, whatever it was. What it does not know it will not know when it is asked again.
pub(super) fn known<T>(answer: Result<Result<T, Status>, Elapsed>) -> Result<T, Outcome> {
    match answer {
        Ok(Ok(known)) => Ok(known),
        Ok(Err(status)) if status.code() == Code::Unimplemented => Err(Outcome::never("", status.message())),
        Ok(Err(status)) => Err(Outcome::from_answer(Err(&status))),
        Err(_) => Err(Outcome::retry("the launcher did not answer in time")),
    }
}

/// What another node's handler did not do may be done the next time.
pub(super) fn relayed<T>(answer: Result<T, RelayError>) -> Result<T, Outcome> {
    answer.map_err(|error| Outcome::retry(chain(&error)))
}

pub(super) fn silent() -> Outcome {
    Outcome::retry("the launcher does not answer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_taken_only_if_its_launcher_says_so() {
        let told = |outcome: Option<Outcome>| Domain { outcome: outcome.map(Into::into), ..Domain::default() };
        let done = told(Some(Outcome::Done));
        assert_eq!(taken(Ok(Ok(done.clone()))), Ok(done));
        for failed in [Outcome::retry("no room"), Outcome::never("", "another guest")] {
            assert_eq!(taken(Ok(Ok(told(Some(failed.clone()))))), Err(failed));
        }
        assert_eq!(taken(Ok(Err(Status::unavailable("gone")))), Err(Outcome::retry("gone")));
        assert_eq!(taken(Ok(Err(Status::unimplemented("what?")))), Err(Outcome::never("", "what?")));
    }
}
