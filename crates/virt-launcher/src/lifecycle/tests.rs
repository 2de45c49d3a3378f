use proptest::prelude::*;

use super::*;
use crate::domain::{End, Migration, Progress};
use crate::grant::GrantError;

mod keeping;
mod moving;
mod pair;
mod rebooting;

fn exit() -> Exit {
    Exit { code: Some(0), signal: None, words: String::new(), out_of_memory: false }
}

fn running() -> Lifecycle {
    let mut guest = Lifecycle::boot(false);
    guest.told(Told::Resumed);
    guest
}

#[test]
fn a_guest_runs_when_qemu_says_so() {
    let mut guest = Lifecycle::boot(false);
    assert_eq!(guest.up(), [Action::Keep(Grant::Holder), Action::Continue]);
    assert_eq!(guest.told(Told::Resumed), [Action::Publish]);
    assert_eq!(guest.domain().state, State::Running);
}

#[test]
fn a_pause_is_done_when_qemu_has_stopped() {
    let now = Instant::now();
    let mut guest = running();
    assert_eq!(guest.request(&Request::Pause, now), Ok(vec![Action::Stop]));
    assert_eq!(guest.domain().state, State::Running);
    assert_eq!(guest.told(Told::Stopped), [Action::Publish]);
    assert_eq!(guest.domain().state, State::Paused(Pause::ByUser));
    assert_eq!(guest.request(&Request::Pause, now), Ok(vec![]), "it is paused already");
    assert_eq!(guest.request(&Request::Unpause, now), Ok(vec![Action::Continue]));
}

#[test]
fn an_io_error_is_told_from_a_pause_in_either_order() {
    let failed = Told::IoError("full".to_owned());
    for order in [[failed.clone(), Told::Stopped], [Told::Stopped, failed]] {
        let mut guest = running();
        for told in order {
            guest.told(told);
        }
        assert_eq!(guest.domain().state, State::Paused(Pause::IoError));
        assert_eq!(guest.domain().io_error, "full");
        guest.told(Told::Resumed);
        assert_eq!(guest.domain().io_error, "");
    }
}

#[test]
fn a_shutdown_presses_again_and_kills_in_the_end() {
    let start = Instant::now();
    let mut guest = running();
    let actions = guest.request(&Request::Shutdown { grace: Duration::from_secs(12) }, start).unwrap();
    assert_eq!(actions, [Action::Publish, Action::PressPower]);
    assert_eq!(guest.tick(start + Duration::from_secs(4)), []);
    assert_eq!(guest.tick(start + Duration::from_secs(5)), [Action::PressPower]);
    assert_eq!(guest.tick(start + Duration::from_secs(10)), [Action::PressPower]);
    assert_eq!(guest.tick(start + Duration::from_secs(12)), [Action::Kill]);
    assert_eq!(guest.due(), None, "nothing is due after a kill");
    guest.exited(&Exit { code: None, signal: Some(9), ..exit() });
    assert_eq!(guest.domain().state, State::Ended(End::Killed));
}

#[test]
fn a_paused_guest_runs_on_to_power_off() {
    let mut guest = running();
    let now = Instant::now();
    guest.request(&Request::Pause, now).unwrap();
    guest.told(Told::Stopped);
    let actions = guest.request(&Request::Shutdown { grace: Duration::from_secs(9) }, now).unwrap();
    assert_eq!(actions, [Action::Publish, Action::Continue, Action::PressPower]);
}

#[test]
fn a_guest_that_qemu_gave_up_is_ended_and_its_cause_is_told() {
    for kvm_is_suspect in [true, false] {
        let mut guest = running();
        let actions = guest.told(Told::InternalError { kvm_is_suspect });
        assert_eq!(actions, [Action::Publish, Action::Kill]);
        guest.exited(&Exit { code: None, signal: Some(9), words: "KVM internal error. Suberror: 1".into(), ..exit() });
        let State::Ended(end) = &guest.domain().state else { panic!("{:?}", guest.domain()) };
        assert!(!end.is_success());
        let text = end.to_string();
        assert!(text.contains("(KVM internal error. Suberror: 1)"), "{text}");
        assert_eq!(text.contains("--accelerator tcg"), kvm_is_suspect, "{text}");
    }
}

#[test]
fn no_grace_is_a_kill() {
    let mut guest = running();
    let actions = guest.request(&Request::Shutdown { grace: Duration::ZERO }, Instant::now()).unwrap();
    assert_eq!(actions, [Action::Publish, Action::Kill]);
}

#[test]
fn a_second_shutdown_can_only_shorten_the_time_left() {
    let now = Instant::now();
    let mut guest = running();
    guest.request(&Request::Shutdown { grace: Duration::from_secs(30) }, now).unwrap();
    guest.request(&Request::Shutdown { grace: Duration::from_secs(90) }, now).unwrap();
    assert_eq!(guest.tick(now + Duration::from_secs(30)), [Action::Kill]);
}

#[test]
fn a_panic_stays_the_cause_of_what_follows() {
    let mut guest = running();
    guest.told(Told::Panicked);
    guest.told(Told::Shutdown("guest-shutdown".into()));
    guest.exited(&exit());
    assert_eq!(guest.domain().state, State::Ended(End::Panicked));
}

#[test]
fn a_guest_that_starts_paused_runs_when_somebody_unpauses_it() {
    let mut guest = Lifecycle::boot(true);
    assert_eq!(guest.up(), [Action::Keep(Grant::Holder), Action::Publish]);
    assert_eq!(guest.domain().state, State::Paused(Pause::ByUser));
    assert_eq!(guest.request(&Request::Unpause, Instant::now()), Ok(vec![Action::Continue]));
}

/// A guest whose state has come.
fn loaded() -> Lifecycle {
    let mut guest = Lifecycle::arrival("source");
    assert_eq!(guest.up(), [Action::Keep(Grant::Awaiting { from: "source".into() }), Action::Publish]);
    assert_eq!(guest.domain().state, State::Awaiting);
    guest.told(Told::Migrated);
    assert_eq!(guest.domain().state, State::Loaded);
    guest
}

/// A guest whose state has gone.
fn left() -> Lifecycle {
    let mut guest = running();
    guest.told(Told::StoppedToPart);
    guest.told(Told::Migrated);
    assert_eq!(guest.domain().state, State::Left);
    guest
}

#[test]
fn a_guest_arrives_and_runs_when_it_was_given() {
    let now = Instant::now();
    let mut guest = loaded();
    for request in [Request::Unpause, Request::Pause, Request::Reset] {
        assert_eq!(guest.request(&request, now), Err(Denied::Away), "{request:?}");
    }
    let stranger = guest.request(&Request::Take { from: "stranger".into(), paused: None }, now);
    assert_eq!(stranger, Err(GrantError::AwaitedFrom("source".into()).into()));
    let take = Request::Take { from: "source".into(), paused: None };
    let taken = vec![Action::Keep(Grant::Holder), Action::StopExports, Action::Continue];
    assert_eq!(guest.request(&take, now), Ok(taken.clone()));
    // The disk did not take it the first time, or nobody heard the answer.
    assert_eq!(guest.request(&take, now), Ok(taken));
    guest.told(Told::Resumed);
    assert_eq!((guest.request(&take, now), &guest.domain().state), (Ok(vec![]), &State::Running));
}

#[test]
fn a_guest_that_was_given_does_not_run_here_until_it_is_returned() {
    let now = Instant::now();
    let mut guest = left();
    let give = |to: &str| Request::Give { to: to.into() };
    assert_eq!(guest.request(&give("target"), now), Ok(vec![Action::Keep(Grant::Given { to: "target".into() })]));
    assert_eq!(guest.request(&Request::Unpause, now), Err(Denied::Away));
    assert_eq!(guest.request(&give("another"), now), Err(GrantError::GivenTo("target".into()).into()));
    let returned = Request::Returned { by: "target".into() };
    assert_eq!(guest.request(&returned, now), Ok(vec![Action::Keep(Grant::Holder), Action::Continue]));
    guest.told(Told::Resumed);
    assert_eq!(guest.domain().state, State::Running);
}

#[test]
fn a_guest_that_nobody_was_promised_runs_on_where_it_was_when_it_was_refused() {
    let mut guest = left();
    let now = Instant::now();
    assert_eq!(guest.request(&Request::Unpause, now), Err(Denied::Away), "the other side may have everything");
    let returned = Request::Returned { by: "target".into() };
    assert_eq!(guest.request(&returned, now), Ok(vec![Action::Keep(Grant::Holder), Action::Continue]));
}

#[test]
fn whoever_lets_a_guest_run_without_a_grant_ends_it() {
    let mut guest = loaded();
    assert_eq!(guest.told(Told::Resumed), [Action::Publish, Action::Kill]);
}

#[test]
fn the_end_of_a_launcher_is_not_the_end_of_a_guest_that_is_elsewhere() {
    let now = Instant::now();
    let mut source = left();
    source.request(&Request::Give { to: "target".into() }, now).unwrap();
    source.request(&Request::Shutdown { grace: Duration::from_secs(30) }, now).unwrap();
    source.exited(&Exit { code: None, signal: Some(9), ..exit() });
    assert_eq!(source.domain().state, State::Ended(End::Moved));

    let mut target = loaded();
    let actions = target.request(&Request::Renounce, now).unwrap();
    assert_eq!(actions, [Action::Keep(Grant::Renounced), Action::Publish, Action::Kill]);
    target.exited(&Exit { code: None, signal: Some(9), ..exit() });
    assert!(matches!(target.domain().state, State::Ended(End::NotTaken { .. })), "{:?}", target.domain());
}

#[derive(Clone, Debug)]
enum Step {
    Request(Request),
    Told(Told),
    Tick,
    Exit,
}

/// How long after the one before, whether the disk takes nothing then, and what happens.
fn steps() -> impl Strategy<Value = Vec<(u64, bool, Step)>> {
    let request = prop_oneof![
        Just(Request::Pause),
        Just(Request::Unpause),
        Just(Request::Reset),
        Just(Request::Reboot),
        Just(Request::Kill),
        (0u64..40).prop_map(|seconds| Request::Shutdown { grace: Duration::from_secs(seconds) }),
        Just(Request::Give { to: "other".into() }),
        Just(Request::Take { from: "other".into(), paused: None }),
        Just(Request::Take { from: "other".into(), paused: Some(Pause::ByUser) }),
        Just(Request::Renounce),
        Just(Request::Returned { by: "other".into() }),
        Just(Request::Leave { to: "other".into() }),
        Just(Request::Part { to: "other".into() }),
        Just(Request::Cut { to: "other".into() }),
        Just(Request::Cancel { to: "other".into() }),
        Just(Request::Halt { to: "other".into() }),
        Just(Request::Stay { to: "other".into(), why: "so".into() }),
        (0u64..3).prop_map(|sent| Request::Progress(Progress { sent, ..Progress::default() })),
    ];
    let told = prop_oneof![
        Just(Told::Resumed),
        Just(Told::Stopped),
        Just(Told::IoError("full".to_owned())),
        Just(Told::Reset),
        Just(Told::Panicked),
        Just(Told::Shutdown("guest-shutdown".into())),
        any::<bool>().prop_map(Told::Agent),
        Just(Told::Migrated),
        Just(Told::NotMigrated),
        Just(Told::StoppedToPart),
    ];
    let step = prop_oneof![
        4 => request.prop_map(Step::Request),
        4 => told.prop_map(Step::Told),
        4 => Just(Step::Tick),
        1 => Just(Step::Exit),
    ];
    let step = (0u64..20, prop::bool::weighted(0.2), step);
    prop::collection::vec(step, 0..60)
}

proptest! {
    /// Against a model that remembers only what was asked: whatever the order, the rules of a life hold.
    #[test]
    fn the_rules_of_a_life_hold(arrives in any::<bool>(), steps in steps()) {
        let mut guest = if arrives { Lifecycle::arrival("other") } else { Lifecycle::boot(false) };
        let mut on_disk = None;
        for action in guest.up() {
            if let Action::Keep(grant) = action {
                on_disk = Some(grant);
            }
        }
        let mut now = Instant::now();
        let (mut kills, mut ended, mut asked_by) = (0, false, None::<Instant>);
        for (pause, is_full, step) in steps {
            now += Duration::from_secs(pause);
            let before = guest.domain().clone();
            let life_before = guest.clone();
            let told = if let Step::Told(told) = &step { Some(told.clone()) } else { None };
            let mut actions = match step {
                Step::Request(request) => {
                    let taken = guest.request(&request, now);
                    if let (Ok(_), Request::Shutdown { grace }) = (&taken, &request) && !ended {
                        let by = now + *grace;
                        asked_by = Some(asked_by.map_or(by, |earlier| earlier.min(by)));
                    }
                    taken.unwrap_or_default()
                }
                Step::Told(told) => guest.told(told),
                Step::Tick => guest.tick(now),
                Step::Exit if ended => continue,
                Step::Exit => guest.exited(&exit()),
            };
            let keeps = |action: &Action| matches!(action, Action::Keep(_));
            prop_assert!(!actions.iter().skip(1).any(keeps), "what cannot be kept is found before anything is done");
            if is_full && actions.iter().any(keeps) {
                guest.unkept(life_before, told, now);
                prop_assert_eq!(guest.domain(), &before, "nothing has happened");
                actions.clear();
            }
            let after = guest.domain();
            for action in &actions {
                match action {
                    Action::Keep(grant) => on_disk = Some(grant.clone()),
                    Action::Continue | Action::PressPower | Action::PowerCycle => {
                        prop_assert_eq!(on_disk.as_ref(), Some(&Grant::Holder), "it runs only where that is on disk");
                    }
                    _ => {}
                }
            }
            prop_assert_eq!(on_disk.as_ref(), Some(guest.grant()), "a grant is on disk before it is told");
            kills += actions.iter().filter(|action| **action == Action::Kill).count();
            prop_assert!(kills <= 1, "it is killed once at most");
            prop_assert!(!ended || (actions.is_empty() && after == &before), "nothing happens after the end");
            prop_assert_eq!(actions.contains(&Action::Publish), after != &before, "every change is told, and nothing else");
            prop_assert_eq!(after.sequence - before.sequence, u64::from(after != &before), "changes are counted");
            if before.state == State::Stopping {
                prop_assert!(matches!(after.state, State::Stopping | State::Ended(_)), "there is no way back");
            }
            ended = matches!(after.state, State::Ended(_));
            // Once the time is over and the clock was looked at, it has been killed.
            if !ended && asked_by.is_some_and(|by| by <= now) {
                guest.tick(now);
                kills = kills.max(1);
                prop_assert!(guest.due().is_none(), "it was killed in time");
            }
        }
    }
}
