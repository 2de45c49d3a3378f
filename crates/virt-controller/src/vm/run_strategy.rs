//! The run-strategy table: what a VM's strategy asks for, given its instance and what users asked for.

use api::vm::{StateChangeRequestAction, VirtualMachineRunStrategy, VirtualMachineStateChangeRequest};

/// A VM's instance, as far as its strategy cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance<'a> {
    /// Tells it from an earlier one of the same name.
    pub uid: &'a str,
    /// How far it is.
    pub stage: Stage,
}

/// How far an instance is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It runs, or is on its way there.
    Live,
    /// It ended by itself and well.
    Succeeded,
    /// It ended otherwise.
    Failed,
    /// Somebody asked for its end already.
    Going,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Nothing,
    /// An instance. `paused` if whoever asked wants to let it go by hand.
    Start {
        /// Start it, and let nothing run yet.
        paused: bool,
    },
    /// The end of the instance. `again` if another shall follow that its strategy alone would not ask for.
    Stop {
        /// A start must be noted with the stop, so that it is not lost.
        again: bool,
    },
    /// The strategy itself changes: somebody asked a halted VM to start.
    BecomeAlways,
}

/// What the strategy of a VM asks for.
///
/// `was` is the strategy that the VM's status tells of: a VM that becomes `RerunOnFailure` starts once by that alone.
///
/// # Guarantees
/// - Nothing is started under `Halted` or `Manual` that nobody asked for.
/// - A stop counts only for the instance that it names.
#[must_use]
pub fn wish(
    strategy: &VirtualMachineRunStrategy,
    was: Option<&VirtualMachineRunStrategy>,
    instance: Option<Instance<'_>>,
    requests: &[VirtualMachineStateChangeRequest],
) -> Wish {
    use VirtualMachineRunStrategy as Strategy;
    let asked = Asked::first(requests);
    match (strategy, instance) {
        // Whatever is asked for, it comes after its end.
        (_, Some(Instance { stage: Stage::Going, .. })) => Wish::Nothing,
        (Strategy::Always, None) => Wish::Start { paused: asked.start_paused() },
        // The next look starts another.
        (Strategy::Always, Some(one)) => stop_if(asked.stops(one) || one.stage != Stage::Live, false),
        (Strategy::RerunOnFailure, None) => match asked.starts() || was != Some(&Strategy::RerunOnFailure) {
            true => Wish::Start { paused: asked.start_paused() },
            false => Wish::Nothing,
        },
        (Strategy::RerunOnFailure, Some(one)) => {
            stop_if(asked.stops(one) || one.stage != Stage::Live, one.stage == Stage::Failed)
        }
        (Strategy::Manual, None) if asked.starts() => Wish::Start { paused: asked.start_paused() },
        (Strategy::Manual, Some(one)) => stop_if(asked.stops(one), false),
        (Strategy::Halted, None) if asked.starts() => Wish::BecomeAlways,
        (Strategy::Halted, Some(_)) => Wish::Stop { again: false },
        (Strategy::Once, None) => Wish::Start { paused: asked.start_paused() },
        (Strategy::Manual | Strategy::Halted, None) | (Strategy::Once, Some(_)) => Wish::Nothing,
        // Refused at admission; what got past it is left as it is.
        (Strategy::WaitAsReceiver | Strategy::Other(_), _) => Wish::Nothing,
    }
}

fn stop_if(stop: bool, again: bool) -> Wish {
    if stop { Wish::Stop { again } } else { Wish::Nothing }
}

/// The request that counts: the first. Those behind it wait for their turn.
struct Asked<'a>(Option<&'a VirtualMachineStateChangeRequest>);

impl<'a> Asked<'a> {
    fn first(requests: &'a [VirtualMachineStateChangeRequest]) -> Self {
        Self(requests.first())
    }

    fn starts(&self) -> bool {
        self.0.is_some_and(|request| request.action == StateChangeRequestAction::Start)
    }

    fn start_paused(&self) -> bool {
        let data = self.0.filter(|_| self.starts()).and_then(|request| request.data.as_ref());
        data.and_then(|data| data.get("paused")).is_some_and(|paused| paused == "true")
    }

    fn stops(&self, instance: Instance<'_>) -> bool {
        self.0.is_some_and(|request| {
            request.action == StateChangeRequestAction::Stop && request.uid.as_deref() == Some(instance.uid)
        })
    }
}

/// The requests that are still open: a stop until its instance is gone, a start until an instance lives.
#[must_use]
pub fn still_open(
    requests: &[VirtualMachineStateChangeRequest],
    instance: Option<Instance<'_>>,
) -> Vec<VirtualMachineStateChangeRequest> {
    let is_open = |request: &&VirtualMachineStateChangeRequest| match request.action {
        StateChangeRequestAction::Stop => instance.is_some_and(|one| request.uid.as_deref() == Some(one.uid)),
        StateChangeRequestAction::Start => !instance.is_some_and(|one| one.stage == Stage::Live),
        // Of a newer release: not ours to clear.
        StateChangeRequestAction::Other(_) => true,
    };
    // Only the first can be done with; the others have not had their turn.
    match requests.split_first() {
        Some((first, rest)) if !is_open(&first) => rest.to_vec(),
        _ => requests.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use VirtualMachineRunStrategy::{Always, Halted, Manual, Once, Other, RerunOnFailure, WaitAsReceiver};
    use proptest::prelude::*;

    use super::*;

    fn request(action: StateChangeRequestAction, uid: Option<&str>) -> VirtualMachineStateChangeRequest {
        VirtualMachineStateChangeRequest { action, data: None, uid: uid.map(str::to_owned) }
    }

    fn start() -> VirtualMachineStateChangeRequest {
        request(StateChangeRequestAction::Start, None)
    }

    fn stop(uid: &str) -> VirtualMachineStateChangeRequest {
        request(StateChangeRequestAction::Stop, Some(uid))
    }

    fn instance(stage: Stage) -> Option<Instance<'static>> {
        Some(Instance { uid: "u", stage })
    }

    const START: Wish = Wish::Start { paused: false };
    const STOP: Wish = Wish::Stop { again: false };

    /// The table of the documentation, cell by cell: strategy, instance, requests, wish.
    #[test]
    fn every_strategy_over_every_state() {
        let (live, succeeded, failed) = (instance(Stage::Live), instance(Stage::Succeeded), instance(Stage::Failed));
        let going = instance(Stage::Going);
        let none: &[VirtualMachineStateChangeRequest] = &[];
        let (starts, stops, stops_another) = (&[start()][..], &[stop("u")][..], &[stop("other")][..]);
        let cases = [
            (Always, None, none, START),
            (Always, None, starts, START),
            (Always, live, none, Wish::Nothing),
            (Always, live, stops, STOP),
            (Always, live, stops_another, Wish::Nothing),
            (Always, succeeded, none, STOP),
            (Always, failed, none, STOP),
            (RerunOnFailure, None, none, Wish::Nothing),
            (RerunOnFailure, None, starts, START),
            (RerunOnFailure, live, none, Wish::Nothing),
            (RerunOnFailure, live, stops, STOP),
            (RerunOnFailure, succeeded, none, STOP),
            (RerunOnFailure, failed, none, Wish::Stop { again: true }),
            (Manual, None, none, Wish::Nothing),
            (Manual, None, starts, START),
            (Manual, live, none, Wish::Nothing),
            (Manual, live, stops, STOP),
            (Manual, live, stops_another, Wish::Nothing),
            (Manual, succeeded, none, Wish::Nothing),
            (Manual, failed, none, Wish::Nothing),
            (Halted, None, none, Wish::Nothing),
            (Halted, None, starts, Wish::BecomeAlways),
            (Halted, live, none, STOP),
            (Halted, succeeded, none, STOP),
            (Halted, failed, none, STOP),
            (Once, None, none, START),
            (Once, live, none, Wish::Nothing),
            (Once, succeeded, none, Wish::Nothing),
            (Once, failed, none, Wish::Nothing),
            (WaitAsReceiver, None, starts, Wish::Nothing),
            (Other("Tomorrow".to_owned()), live, stops, Wish::Nothing),
            (Always, going, stops, Wish::Nothing),
            (RerunOnFailure, going, none, Wish::Nothing),
            (Halted, going, none, Wish::Nothing),
        ];
        for (strategy, instance, requests, wanted) in cases {
            let wish = wish(&strategy, Some(&strategy), instance, requests);
            assert_eq!(wish, wanted, "{strategy:?} {instance:?} {requests:?}");
        }
    }

    /// A guest that crashed is deleted, and the start that was noted with it must outlive it.
    #[test]
    fn a_start_waits_for_the_end_of_an_instance_that_goes() {
        assert_eq!(still_open(&[start()], instance(Stage::Going)), [start()]);
        assert_eq!(still_open(&[start()], instance(Stage::Live)), []);
    }

    #[test]
    fn a_vm_that_becomes_rerun_on_failure_starts_once_by_that() {
        assert_eq!(wish(&RerunOnFailure, Some(&Halted), None, &[]), START);
        assert_eq!(wish(&RerunOnFailure, None, None, &[]), START);
    }

    #[test]
    fn whoever_asks_for_a_paused_start_gets_one() {
        let data = Some(BTreeMap::from([("paused".to_owned(), "true".to_owned())]));
        let paused = VirtualMachineStateChangeRequest { data, ..start() };
        assert_eq!(wish(&Manual, None, None, &[paused]), Wish::Start { paused: true });
    }

    #[test]
    fn a_restart_is_a_stop_and_then_a_start() {
        let requests = vec![stop("u"), start()];
        assert_eq!(wish(&Manual, None, instance(Stage::Live), &requests), STOP);
        assert_eq!(still_open(&requests, instance(Stage::Live)), requests);
        // The instance is gone: the stop is done, and the start has its turn.
        let rest = still_open(&requests, None);
        assert_eq!(rest, [start()]);
        assert_eq!(wish(&Manual, None, None, &rest), START);
        assert_eq!(still_open(&rest, instance(Stage::Live)), []);
    }

    fn any_request() -> impl Strategy<Value = VirtualMachineStateChangeRequest> {
        prop_oneof![Just(start()), "[uv]".prop_map(|uid| stop(&uid))]
    }

    fn any_instance() -> impl Strategy<Value = Option<Instance<'static>>> {
        prop_oneof![
            Just(None),
            Just(instance(Stage::Live)),
            Just(instance(Stage::Succeeded)),
            Just(instance(Stage::Failed)),
            Just(instance(Stage::Going)),
        ]
    }

    proptest! {
        #[test]
        fn nothing_starts_that_nobody_asked_for(
            instance in any_instance(),
            requests in prop::collection::vec(any_request(), 0..4),
            was in prop::option::of(prop::sample::select(vec![Always, Halted, Manual, Once, RerunOnFailure])),
        ) {
            let asked = requests.first().is_some_and(|one| one.action == StateChangeRequestAction::Start);
            for strategy in [Halted, Manual] {
                let wish = wish(&strategy, was.as_ref(), instance, &requests);
                let starts = matches!(wish, Wish::Start { .. } | Wish::BecomeAlways);
                prop_assert!(asked || !starts, "{strategy:?}");
            }
            for strategy in [Always, Halted, Manual, Once, RerunOnFailure] {
                let wish = wish(&strategy, was.as_ref(), instance, &requests);
                prop_assert!(instance.is_none() || !matches!(wish, Wish::Start { .. }), "one instance at a time");
                prop_assert!(instance.is_some() || !matches!(wish, Wish::Stop { .. }), "nothing to stop");
            }
        }

        /// Requests are only ever taken from the front, one at a time.
        #[test]
        fn requests_are_done_in_their_order(
            instance in any_instance(),
            requests in prop::collection::vec(any_request(), 0..5),
        ) {
            let rest = still_open(&requests, instance);
            prop_assert!(requests.ends_with(&rest) && requests.len() - rest.len() <= 1);
        }
    }
}
