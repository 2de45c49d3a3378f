//! What differs by what a launcher is to its instance.

use super::*;

#[test]
fn a_guest_that_is_about_to_leave_stays_what_it_is() {
    let running = vmi("Running", None, None);
    let as_source = |launcher| as_role(Role::Source, &running, launcher);
    for state in [State::Running, State::PausedByUser, State::PausedByQemu, State::Stopping] {
        assert_eq!(as_source(reached(state)), enter(Phase::Running), "{state:?}");
        let efforts = Efforts::default();
        let changed = Observed { is_synced: false, ..observed(Some(&running), Role::Source, reached(state), &efforts) };
        assert_eq!(decide(&changed, at(100)), enter(Phase::Running), "it is told when it has arrived");
    }
    assert_eq!(as_source(reached(State::PausedByIoError)).action, Action::Resume);
    assert_eq!(as_source(ended(End::Panicked)), enter(Phase::Failed));
    assert_eq!(as_source(Launcher::Gone { end: Some(End::PoweredOff) }), enter(Phase::Succeeded));
    assert_eq!(as_source(reached(State::Absent)), enter(Phase::Failed));
    assert_eq!(as_role(Role::Source, &vmi("Scheduled", None, None), reached(State::Absent)), Plan::default());
    let deleted = as_role(Role::Source, &vmi("Running", Some(200), Some(0)), reached(State::Running));
    assert_eq!(deleted.action, Action::Shutdown { rest: seconds(100) });
}

#[test]
fn what_has_become_of_a_guest_that_left_is_not_its_sources_to_say() {
    let running = vmi("Running", None, None);
    for launcher in [reached(State::Left), ended(End::Moved), ended(End::OnTheWay), Launcher::Gone { end: None }] {
        assert_eq!(as_role(Role::Source, &running, launcher), Plan::default(), "{launcher:?}");
        assert_eq!(as_role(Role::Source, &vmi("Running", None, Some(0)), launcher), Plan::default(), "{launcher:?}");
    }
}

#[test]
fn nothing_is_done_in_a_launcher_that_awaits_a_guest() {
    for phase in ["Scheduled", "Running"] {
        for launcher in [reached(State::Absent), reached(State::Awaiting), reached(State::Running), ended(End::Crashed)]
        {
            for deleted in [None, Some(0)] {
                assert_eq!(
                    as_role(Role::Target, &vmi(phase, None, deleted), launcher),
                    Plan::default(),
                    "{launcher:?}"
                );
            }
        }
    }
    let failed = vmi("Failed", None, None);
    assert_eq!(as_role(Role::Target, &failed, reached(State::Awaiting)), act(Action::Kill));
    assert_eq!(as_role(Role::Target, &failed, reached(State::Absent)), act(Action::Delete));
}

#[test]
fn an_orphan_is_let_go_unless_it_holds_the_guest() {
    let mut elsewhere = vmi("Running", None, None);
    elsewhere.metadata.labels.as_mut().unwrap().insert(label::NODE_NAME.to_owned(), "other".to_owned());
    let as_orphan = |launcher| as_role(Role::Orphan, &elsewhere, launcher);
    for state in [State::Left, State::Awaiting, State::Loaded] {
        assert_eq!(as_orphan(reached(state)), act(Action::Kill), "{state:?}");
    }
    assert_eq!(as_orphan(ended(End::Moved)), act(Action::Delete));
    assert_eq!(as_orphan(reached(State::Absent)), act(Action::Delete));
    assert_eq!(as_orphan(Launcher::Gone { end: None }), act(Action::CleanUp));
    assert_eq!(as_orphan(Launcher::Connecting), Plan::default());
    for state in [State::Running, State::PausedByUser, State::Starting, State::Stopping] {
        assert_eq!(as_orphan(reached(state)), Plan::default(), "{state:?}");
    }
}
