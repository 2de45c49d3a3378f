//! A guest that moves: what its source does, what its target does, and what neither may.

use launcher_api::Outcome;
use launcher_api::rpc::Paused;

use super::*;

const OTHER: &str = "other";

/// What is seen of a migration besides the launcher.
#[derive(Clone, Debug, Default)]
struct Scene {
    /// The target has said where it is reached.
    is_prepared: bool,
    has_begun: bool,
    is_unwanted: bool,
    /// The other side's pod has ended.
    is_alone: bool,
    has_failed: bool,
    /// The instance is to be deleted, since second 90.
    is_deleted: bool,
}

impl Scene {
    fn vmi(&self, from: &str, to: &str) -> VirtualMachineInstance {
        let Self { is_prepared, has_begun, is_unwanted, is_alone, has_failed, is_deleted } = self.clone();
        let mut vmi = vmi("Running", Some(30), is_deleted.then_some(90));
        let mut state = json!({ "migrationUid": "m", "sourceNode": from, "targetNode": to });
        if is_prepared {
            state["targetNodeAddress"] = json!("127.0.0.1");
        }
        if has_begun {
            state["startTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        if is_unwanted {
            state["abortRequested"] = json!(true);
        }
        if has_failed {
            state["failed"] = json!(true);
        }
        let mut pods = json!({ "here": NODE });
        if !is_alone {
            pods["there"] = json!(OTHER);
        }
        let status = json!({ "phase": "Running", "activePods": pods, "migrationState": state });
        vmi.status = serde_json::from_value(status).unwrap();
        vmi
    }

    fn at_source(&self, state: State, way: &Way, efforts: &Efforts) -> Plan {
        let vmi = self.vmi(NODE, OTHER);
        decide(&Observed { way, ..observed(Some(&vmi), Role::Source, reached(state), efforts) }, at(100))
    }

    fn at_target(&self, launcher: Launcher, efforts: &Efforts) -> Plan {
        let vmi = self.vmi(OTHER, NODE);
        decide(&observed(Some(&vmi), Role::Target, launcher, efforts), at(100))
    }
}

fn failed(plan: &Plan) -> Option<&str> {
    match &plan.milestone {
        Some(Milestone::Failed { why, .. }) => Some(why),
        _ => None,
    }
}

fn tried(failures: u32, failed: Outcome) -> Efforts {
    let moving = Attempts { uid: "m".to_owned(), failures, failed: Some(failed), ..Attempts::default() };
    Efforts { moving, ..Efforts::default() }
}

fn given() -> Way {
    Way::Given { paused: Paused::Not }
}

#[test]
fn a_guest_leaves_only_after_that_was_written() {
    let none = Efforts::default();
    let look = |scene: Scene| scene.at_source(State::Running, &Way::None, &none);
    assert_eq!(look(Scene::default()), enter(Phase::Running), "the target is not ready");
    let begins = look(Scene { is_prepared: true, ..Scene::default() });
    assert_eq!((begins.action, begins.milestone), (Action::Nothing, Some(Milestone::Begun)));
    let begun = Scene { is_prepared: true, has_begun: true, ..Scene::default() };
    assert_eq!(look(begun.clone()).action, Action::Send);
    assert_eq!(begun.at_source(State::Running, &Way::Sending, &none), enter(Phase::Running));
    assert_eq!(begun.at_source(State::Left, &Way::Parted, &none), Plan::default());
}

#[test]
fn what_cannot_be_sent_stays_with_its_reason() {
    let begun = Scene { is_prepared: true, has_begun: true, ..Scene::default() };
    for efforts in [tried(1, Outcome::never("", "why")), tried(100, Outcome::retry("why"))] {
        let plan = begun.at_source(State::Running, &Way::None, &efforts);
        assert_eq!((plan.action, failed(&plan)), (Action::Nothing, Some("why")));
    }
    let stayed = begun.at_source(State::Running, &Way::Stayed { why: "slow".to_owned() }, &Efforts::default());
    assert_eq!(failed(&stayed), Some("slow"));
}

#[test]
fn who_cancels_is_heard_once_and_qemu_decides() {
    let none = Efforts::default();
    let unwanted = Scene { is_prepared: true, has_begun: true, is_unwanted: true, ..Scene::default() };
    let before = Scene { has_begun: false, ..unwanted.clone() }.at_source(State::Running, &Way::None, &none);
    let cancelled = Milestone::Failed { why: "the migration was cancelled".to_owned(), is_aborted: true };
    assert_eq!(before.milestone, Some(cancelled));
    assert_eq!(unwanted.at_source(State::Running, &Way::Sending, &none).action, Action::Cancel);
    let mut asked = tried(0, Outcome::retry("why"));
    asked.moving.is_cancelled = true;
    assert_eq!(unwanted.at_source(State::Running, &Way::Sending, &asked), enter(Phase::Running));
    assert_eq!(unwanted.at_source(State::Left, &Way::Parted, &none), Plan::default(), "too late");
    assert_eq!(unwanted.at_source(State::Left, &given(), &none).action, Action::HandOver, "too late");
}

#[test]
fn a_guest_that_was_cut_off_goes_on_only_after_its_failure_is_on_record() {
    let begun = Scene { is_prepared: true, has_begun: true, ..Scene::default() };
    let none = Efforts::default();
    assert_eq!(begun.at_source(State::Left, &Way::Cut, &none).action, Action::Settle);
    let alone = Scene { is_alone: true, ..begun.clone() };
    for (scene, efforts) in [(&alone, &none), (&begun, &tried(100, Outcome::retry("why")))] {
        let plan = scene.at_source(State::Left, &Way::Cut, efforts);
        assert!(plan.action == Action::Nothing && failed(&plan).is_some(), "{plan:?}");
    }
    let vmi = Scene { has_failed: true, ..begun }.vmi(NODE, OTHER);
    let over = Observed { way: &Way::Cut, ..observed(Some(&vmi), Role::Sole, reached(State::Left), &none) };
    assert_eq!(decide(&over, at(100)).action, Action::Return);
    let over = Observed { way: &given(), ..over };
    assert_eq!(decide(&over, at(100)), Plan::default(), "it was given away");
}

#[test]
fn a_guest_that_was_given_never_comes_back_by_itself() {
    let begun = Scene { is_prepared: true, has_begun: true, ..Scene::default() };
    for efforts in [Efforts::default(), tried(100, Outcome::never("", "why"))] {
        assert_eq!(begun.at_source(State::Left, &given(), &efforts).action, Action::HandOver);
    }
    let alone = Scene { is_alone: true, ..begun };
    assert_eq!(alone.at_source(State::Left, &given(), &Efforts::default()), enter(Phase::Failed));
}

#[test]
fn a_deleted_guest_that_has_left_is_brought_to_where_it_can_shut_down() {
    let none = Efforts::default();
    let deleted = Scene { is_prepared: true, has_begun: true, is_deleted: true, ..Scene::default() };
    assert_eq!(deleted.at_source(State::Left, &Way::Parted, &none), Plan::default(), "QEMU decides");
    assert_eq!(deleted.at_source(State::Left, &Way::Cut, &none).action, Action::Settle);
    assert_eq!(deleted.at_source(State::Left, &given(), &none).action, Action::HandOver);
    let alone = Scene { is_alone: true, ..deleted.clone() };
    assert!(failed(&alone.at_source(State::Left, &Way::Cut, &none)).is_some());
    assert_eq!(alone.at_source(State::Left, &given(), &none), enter(Phase::Failed));
    assert_eq!(alone.at_target(reached(State::Loaded), &none).action, Action::Take);

    let vmi = Scene { has_failed: true, ..deleted.clone() }.vmi(NODE, OTHER);
    let back = Observed { way: &Way::Cut, ..observed(Some(&vmi), Role::Sole, reached(State::Left), &none) };
    assert_eq!(decide(&back, at(100)), Plan { again: Some(seconds(20)), ..act(Action::Return) });
    assert_eq!(decide(&back, at(120)).action, Action::Kill, "its grace period is over");

    for way in [Way::None, Way::Sending, Way::Stayed { why: "slow".to_owned() }] {
        let plan = deleted.at_source(State::Running, &way, &none);
        assert_eq!((plan.action, plan.milestone), (Action::Shutdown { rest: seconds(20) }, None), "{way:?}");
    }
}

#[test]
fn a_target_is_prepared_then_told_of() {
    let none = Efforts::default();
    let fresh = Scene::default();
    assert_eq!(fresh.at_target(reached(State::Absent), &none).action, Action::Prepare);
    assert_eq!(failed(&fresh.at_target(reached(State::Absent), &tried(1, Outcome::never("", "why")))), Some("why"));
    let unwanted = Scene { is_unwanted: true, ..Scene::default() };
    assert_eq!(unwanted.at_target(reached(State::Absent), &none), Plan::default());
    assert_eq!(fresh.at_target(reached(State::Awaiting), &none).milestone, Some(Milestone::Prepared));
    let told = Scene { is_prepared: true, ..Scene::default() };
    assert_eq!(told.at_target(reached(State::Awaiting), &none), Plan::default());
    assert!(failed(&told.at_target(ended(End::NotTaken), &none)).is_some(), "nothing was sent yet");
}

#[test]
fn a_guest_is_taken_without_a_word_only_when_its_source_has_ended() {
    let none = Efforts::default();
    let begun = Scene { is_prepared: true, has_begun: true, ..Scene::default() };
    assert_eq!(begun.at_target(reached(State::Loaded), &none), Plan::default());
    assert_eq!(begun.at_target(ended(End::NotTaken), &none), Plan::default(), "the source says it");
    let alone = Scene { is_alone: true, ..begun.clone() };
    assert_eq!(alone.at_target(reached(State::Loaded), &none).action, Action::Take);
    for launcher in [reached(State::Awaiting), ended(End::NotTaken), Launcher::Gone { end: None }] {
        assert!(failed(&alone.at_target(launcher, &none)).is_some(), "{launcher:?}: the guest is lost");
    }
    for launcher in [reached(State::Running), reached(State::PausedByUser), ended(End::PoweredOff)] {
        for scene in [&begun, &alone] {
            let plan = scene.at_target(launcher, &none);
            assert_eq!((plan.milestone, plan.phase), (Some(Milestone::Arrived), None), "{launcher:?}");
        }
    }
}

#[test]
fn a_target_that_waits_for_its_turn_is_left_alone() {
    let elsewhere = Scene { has_begun: true, ..Scene::default() }.vmi(OTHER, "third");
    let none = Efforts::default();
    for state in [State::Absent, State::Awaiting, State::Loaded] {
        assert_eq!(decide(&observed(Some(&elsewhere), Role::Target, reached(state), &none), at(100)), Plan::default());
    }
}
