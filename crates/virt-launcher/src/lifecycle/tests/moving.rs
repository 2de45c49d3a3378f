//! What happens to a guest on its way out, case by case as the table of [`crate::lifecycle`] has them.

use super::*;

const TO: &str = "migration";

fn to() -> String {
    TO.to_owned()
}

fn course(guest: &Lifecycle) -> Course {
    guest.domain().migration.as_ref().map(|migration| migration.course.clone()).unwrap()
}

fn under_way() -> Lifecycle {
    let mut guest = running();
    assert_eq!(guest.request(&Request::Leave { to: to() }, Instant::now()), Ok(vec![Action::Publish]));
    guest
}

fn parted() -> Lifecycle {
    let mut guest = under_way();
    guest.told(Told::StoppedToPart);
    assert_eq!(guest.request(&Request::Part { to: to() }, Instant::now()), Ok(vec![Action::Publish]));
    assert_eq!((&guest.domain().state, course(&guest)), (&State::Left, Course::Parted));
    guest
}

fn given() -> Lifecycle {
    let mut guest = parted();
    assert_eq!(guest.told(Told::Migrated), [Action::Keep(Grant::Given { to: to() }), Action::Publish]);
    assert_eq!(course(&guest), Course::Given);
    guest
}

#[test]
fn a_guest_leaves_once_and_for_one() {
    let now = Instant::now();
    let mut guest = under_way();
    assert_eq!(guest.request(&Request::Leave { to: to() }, now), Ok(vec![]), "told again");
    let other = guest.request(&Request::Leave { to: "another".into() }, now);
    assert_eq!(other, Err(Denied::OtherMigration(to())));
    guest.told(Told::NotMigrated);
    assert_eq!(guest.request(&Request::Leave { to: to() }, now), Err(Denied::OtherMigration(to())), "it is over");
    assert!(guest.request(&Request::Leave { to: "another".into() }, now).is_ok());
    assert_eq!(loaded().request(&Request::Leave { to: to() }, now), Err(Denied::Away));
}

#[test]
fn what_somebody_wants_of_a_guest_under_way_is_done_as_always() {
    let now = Instant::now();
    let mut guest = under_way();
    assert_eq!(guest.request(&Request::Reset, now), Ok(vec![Action::Reset]));
    assert_eq!(guest.request(&Request::Pause, now), Ok(vec![Action::Stop]));
    guest.told(Told::Stopped);
    assert_eq!(guest.request(&Request::Unpause, now), Ok(vec![Action::Continue]));
    guest.told(Told::Resumed);
    assert_eq!((&guest.domain().state, course(&guest)), (&State::Running, Course::UnderWay));
}

#[test]
fn a_guest_arrives_paused_if_it_was_paused_when_it_parted() {
    let now = Instant::now();
    for (told, pause) in
        [(vec![Told::Stopped], Pause::ByUser), (vec![Told::IoError(String::new()), Told::Stopped], Pause::IoError)]
    {
        let mut guest = under_way();
        if pause == Pause::ByUser {
            guest.request(&Request::Pause, now).unwrap();
        }
        told.into_iter().for_each(|told| drop(guest.told(told)));
        guest.request(&Request::Part { to: to() }, now).unwrap();
        guest.told(Told::Migrated);
        let Some(Migration { course: Course::Given, paused, .. }) = guest.domain().migration.clone() else { panic!() };
        assert_eq!(paused, Some(pause));
        let mut target = loaded();
        let actions = target.request(&Request::Take { from: "source".into(), paused }, now).unwrap();
        assert_eq!(actions, [Action::Keep(Grant::Holder), Action::StopExports, Action::Publish]);
        assert_eq!(target.domain().state, State::Paused(pause));
        assert_eq!(target.request(&Request::Unpause, now), Ok(vec![Action::Continue]));
        // And it comes back as it was.
        guest.request(&Request::Returned { by: to() }, now).unwrap();
        assert_eq!(guest.domain().state, State::Paused(pause));
    }
}

#[test]
fn a_pause_at_the_moment_of_the_switch_is_not_lost() {
    let now = Instant::now();
    let mut guest = under_way();
    guest.request(&Request::Pause, now).unwrap();
    guest.request(&Request::Part { to: to() }, now).unwrap();
    guest.told(Told::StoppedToPart);
    assert_eq!(guest.domain().migration.as_ref().unwrap().paused, Some(Pause::ByUser));
}

#[test]
fn nobody_steers_a_guest_that_has_parted() {
    let now = Instant::now();
    let grace = Duration::from_secs(9);
    for request in [Request::Pause, Request::Unpause, Request::Reset, Request::Shutdown { grace }] {
        assert_eq!(parted().request(&request, now), Err(Denied::Away), "{request:?}");
    }
    assert_eq!(parted().request(&Request::Cancel { to: to() }, now), Err(Denied::Away), "it is too late");
    assert_eq!(given().request(&Request::Shutdown { grace }, now), Ok(vec![Action::Publish, Action::Kill]));
}

#[test]
fn a_cancelled_guest_does_not_part_and_qemu_decides() {
    let now = Instant::now();
    let mut guest = under_way();
    assert_eq!(guest.request(&Request::Cancel { to: to() }, now), Ok(vec![Action::Abort]));
    assert_eq!(course(&guest), Course::UnderWay, "it is a request");
    assert_eq!(guest.request(&Request::Part { to: to() }, now), Err(Denied::Here));
    assert_eq!(guest.told(Told::NotMigrated), [Action::Publish]);
    guest.request(&Request::Stay { to: to(), why: "the migration was cancelled".into() }, now).unwrap();
    assert_eq!(course(&guest), Course::Stayed { why: "the migration was cancelled".into() });
    assert_eq!(guest.domain().state, State::Running);
}

#[test]
fn a_guest_that_is_to_power_off_need_not_go() {
    let now = Instant::now();
    let mut guest = under_way();
    let actions = guest.request(&Request::Shutdown { grace: Duration::from_secs(9) }, now).unwrap();
    assert_eq!(actions, [Action::Publish, Action::Abort, Action::PressPower]);
    assert_eq!(guest.request(&Request::Part { to: to() }, now), Err(Denied::Stopping));
    assert_eq!(guest.told(Told::NotMigrated), [Action::Publish, Action::Continue], "QEMU may have stopped it");
    guest.told(Told::Shutdown("guest-shutdown".into()));
    guest.exited(&exit());
    assert_eq!(guest.domain().state, State::Ended(End::PoweredOff));
}

#[test]
fn a_guest_ends_where_it_is() {
    let mut guest = under_way();
    guest.told(Told::Panicked);
    guest.exited(&exit());
    assert_eq!(guest.domain().state, State::Ended(End::Panicked));
    let mut guest = parted();
    guest.exited(&Exit { signal: Some(9), code: None, ..exit() });
    assert!(matches!(guest.domain().state, State::Ended(End::OnTheWay { .. })), "{:?}", guest.domain());
    let mut guest = given();
    guest.exited(&exit());
    assert_eq!(guest.domain().state, State::Ended(End::Moved));
}

#[test]
fn a_guest_that_qemu_could_not_send_runs_on() {
    let mut guest = parted();
    assert_eq!(guest.told(Told::NotMigrated), [Action::Publish, Action::Continue]);
    guest.told(Told::Resumed);
    assert_eq!(guest.domain().state, State::Running);
    // As QEMU tells it after a cancel.
    let mut guest = parted();
    guest.told(Told::Resumed);
    guest.told(Told::NotMigrated);
    assert_eq!((&guest.domain().state, course(&guest)), (&State::Running, Course::Stayed { why: String::new() }));
}

#[test]
fn a_guest_that_is_cut_off_waits_for_the_other_side() {
    let now = Instant::now();
    let cut = || {
        let mut guest = parted();
        assert_eq!(guest.request(&Request::Cut { to: to() }, now), Ok(vec![Action::Publish]));
        guest
    };
    // The other side has refused it: QEMU gives up, and goes on.
    let mut guest = cut();
    let returned = guest.request(&Request::Returned { by: to() }, now);
    assert_eq!(returned, Ok(vec![Action::Keep(Grant::Holder), Action::Abort]));
    guest.told(Told::NotMigrated);
    guest.told(Told::Resumed);
    assert_eq!(guest.domain().state, State::Running);
    // It has everything.
    let mut guest = cut();
    let gave = guest.request(&Request::Give { to: to() }, now);
    assert_eq!(gave, Ok(vec![Action::Keep(Grant::Given { to: to() }), Action::Publish]));
    assert_eq!(guest.told(Told::Resumed), [Action::Publish, Action::Kill], "it is not ours any more");
    // It had everything, and was gone before it was told to go on: QEMU still waits for its answer.
    let mut guest = cut();
    guest.request(&Request::Give { to: to() }, now).unwrap();
    let returned = guest.request(&Request::Returned { by: to() }, now);
    assert_eq!(returned, Ok(vec![Action::Keep(Grant::Holder), Action::Publish, Action::Abort]));
    assert_eq!(guest.told(Told::NotMigrated), [Action::Publish, Action::Continue]);
    guest.told(Told::Resumed);
    assert_eq!(guest.domain().state, State::Running);
    // QEMU had heard it before.
    let mut guest = cut();
    guest.told(Told::Migrated);
    assert_eq!(course(&guest), Course::Given);
}

#[test]
fn a_guest_that_was_stopped_to_arrive_runs_there_or_here() {
    let now = Instant::now();
    let halted = || {
        let mut guest = under_way();
        assert_eq!(guest.request(&Request::Halt { to: to() }, now), Ok(vec![Action::Stop]));
        guest.told(Told::Stopped);
        assert_eq!(guest.domain().state, State::Paused(Pause::ForMigration));
        guest
    };
    let mut guest = halted();
    guest.request(&Request::Part { to: to() }, now).unwrap();
    assert_eq!(guest.domain().migration.as_ref().unwrap().paused, None);
    let mut guest = halted();
    assert_eq!(guest.request(&Request::Unpause, now), Err(Denied::Away));
    assert_eq!(guest.told(Told::NotMigrated), [Action::Publish, Action::Continue]);
    // Unless somebody wants it paused.
    let mut guest = halted();
    guest.request(&Request::Pause, now).unwrap();
    assert_eq!(guest.told(Told::NotMigrated), [Action::Publish]);
    assert_eq!(guest.domain().state, State::Paused(Pause::ByUser));
}

#[test]
fn the_clock_of_a_guest_that_has_arrived_is_set_when_its_agent_is_there() {
    let mut guest = loaded();
    guest.request(&Request::Take { from: "source".into(), paused: None }, Instant::now()).unwrap();
    guest.told(Told::Resumed);
    assert_eq!(guest.told(Told::Agent(true)), [Action::Publish, Action::SetClock]);
    guest.told(Told::Agent(false));
    assert_eq!(guest.told(Told::Agent(true)), [Action::Publish], "once");
}
