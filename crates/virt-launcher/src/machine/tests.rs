use proptest::prelude::*;

use super::*;
use crate::domain::End;

fn exit() -> Exit {
    Exit { code: Some(0), signal: None, words: String::new(), out_of_memory: false }
}

fn running() -> Machine {
    let mut machine = Machine::new();
    machine.told(Told::Resumed);
    machine
}

#[test]
fn a_guest_runs_when_qemu_says_so() {
    let mut machine = Machine::new();
    assert_eq!(machine.told(Told::Resumed), [Action::Publish]);
    assert_eq!(machine.domain().state, State::Running);
}

#[test]
fn a_pause_is_done_when_qemu_has_stopped() {
    let now = Instant::now();
    let mut machine = running();
    assert_eq!(machine.request(&Request::Pause, now), Ok(vec![Action::Stop]));
    assert_eq!(machine.domain().state, State::Running);
    assert_eq!(machine.told(Told::Stopped), [Action::Publish]);
    assert_eq!(machine.domain().state, State::Paused(Pause::ByUser));
    assert_eq!(machine.request(&Request::Pause, now), Ok(vec![]), "it is paused already");
    assert_eq!(machine.request(&Request::Unpause, now), Ok(vec![Action::Continue]));
}

#[test]
fn an_io_error_is_told_from_a_pause_in_either_order() {
    for order in [[Told::IoError, Told::Stopped], [Told::Stopped, Told::IoError]] {
        let mut machine = running();
        for told in order {
            machine.told(told);
        }
        assert_eq!(machine.domain().state, State::Paused(Pause::IoError));
    }
}

#[test]
fn a_shutdown_presses_again_and_kills_in_the_end() {
    let start = Instant::now();
    let mut machine = running();
    let actions = machine.request(&Request::Shutdown { grace: Duration::from_secs(12) }, start).unwrap();
    assert_eq!(actions, [Action::Publish, Action::PressPower]);
    assert_eq!(machine.tick(start + Duration::from_secs(4)), []);
    assert_eq!(machine.tick(start + Duration::from_secs(5)), [Action::PressPower]);
    assert_eq!(machine.tick(start + Duration::from_secs(10)), [Action::PressPower]);
    assert_eq!(machine.tick(start + Duration::from_secs(12)), [Action::Kill]);
    assert_eq!(machine.due(), None, "nothing is due after a kill");
    machine.exited(&Exit { code: None, signal: Some(9), ..exit() });
    assert_eq!(machine.domain().state, State::Ended(End::Killed));
}

#[test]
fn a_paused_guest_runs_on_to_power_off() {
    let mut machine = running();
    let now = Instant::now();
    machine.request(&Request::Pause, now).unwrap();
    machine.told(Told::Stopped);
    let actions = machine.request(&Request::Shutdown { grace: Duration::from_secs(9) }, now).unwrap();
    assert_eq!(actions, [Action::Publish, Action::Continue, Action::PressPower]);
}

#[test]
fn a_guest_that_qemu_gave_up_is_ended_and_its_cause_is_told() {
    for kvm_is_suspect in [true, false] {
        let mut machine = running();
        let actions = machine.told(Told::InternalError { kvm_is_suspect });
        assert_eq!(actions, [Action::Publish, Action::Kill]);
        machine.exited(&Exit {
            code: None,
            signal: Some(9),
            words: "KVM internal error. Suberror: 1".into(),
            ..exit()
        });
        let State::Ended(end) = &machine.domain().state else { panic!("{:?}", machine.domain()) };
        assert!(!end.is_success());
        let text = end.to_string();
        assert!(text.contains("(KVM internal error. Suberror: 1)"), "{text}");
        assert_eq!(text.contains("--accelerator tcg"), kvm_is_suspect, "{text}");
    }
}

#[test]
fn no_grace_is_a_kill() {
    let mut machine = running();
    let actions = machine.request(&Request::Shutdown { grace: Duration::ZERO }, Instant::now()).unwrap();
    assert_eq!(actions, [Action::Publish, Action::Kill]);
}

#[test]
fn a_second_shutdown_can_only_shorten_the_time_left() {
    let now = Instant::now();
    let mut machine = running();
    machine.request(&Request::Shutdown { grace: Duration::from_secs(30) }, now).unwrap();
    machine.request(&Request::Shutdown { grace: Duration::from_secs(90) }, now).unwrap();
    assert_eq!(machine.tick(now + Duration::from_secs(30)), [Action::Kill]);
}

#[test]
fn a_panic_stays_the_cause_of_what_follows() {
    let mut machine = running();
    machine.told(Told::Panicked);
    machine.told(Told::Shutdown("guest-shutdown".into()));
    machine.exited(&exit());
    assert_eq!(machine.domain().state, State::Ended(End::Panicked));
}

#[derive(Clone, Debug)]
enum Step {
    Request(Request),
    Told(Told),
    Tick,
    Exit,
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let request = prop_oneof![
        Just(Request::Pause),
        Just(Request::Unpause),
        Just(Request::Reset),
        Just(Request::Kill),
        (0u64..40).prop_map(|seconds| Request::Shutdown { grace: Duration::from_secs(seconds) }),
    ];
    let told = prop_oneof![
        Just(Told::Resumed),
        Just(Told::Stopped),
        Just(Told::IoError),
        Just(Told::Reset),
        Just(Told::Panicked),
        Just(Told::Shutdown("guest-shutdown".into())),
        any::<bool>().prop_map(Told::Agent),
    ];
    let step = prop_oneof![
        4 => request.prop_map(Step::Request),
        4 => told.prop_map(Step::Told),
        4 => Just(Step::Tick),
        1 => Just(Step::Exit),
    ];
    prop::collection::vec((0u64..20, step), 0..60)
}

proptest! {
    /// Against a model that remembers only what was asked: whatever the order, the rules of a life hold.
    #[test]
    fn the_rules_of_a_life_hold(steps in steps()) {
        let mut machine = Machine::new();
        let mut now = Instant::now();
        let (mut kills, mut ended, mut asked_by) = (0, false, None::<Instant>);
        for (pause, step) in steps {
            now += Duration::from_secs(pause);
            let before = machine.domain().clone();
            let actions = match step {
                Step::Request(request) => {
                    let taken = machine.request(&request, now);
                    if let (Ok(_), Request::Shutdown { grace }) = (&taken, &request) && !ended {
                        let by = now + *grace;
                        asked_by = Some(asked_by.map_or(by, |earlier| earlier.min(by)));
                    }
                    taken.unwrap_or_default()
                }
                Step::Told(told) => machine.told(told),
                Step::Tick => machine.tick(now),
                Step::Exit if ended => continue,
                Step::Exit => machine.exited(&exit()),
            };
            let after = machine.domain();
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
                machine.tick(now);
                kills = kills.max(1);
                prop_assert!(machine.due().is_none(), "it was killed in time");
            }
        }
    }
}
