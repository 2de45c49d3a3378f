//! A disk that takes no grant: nothing has happened, and what is asked for or told again is done then.

use super::*;
use crate::lifecycle::keeping::KEEP_AGAIN;

const TO: &str = "migration";

/// The disk refuses what a request would have written.
fn refused(guest: &mut Lifecycle, request: &Request) {
    let before = guest.clone();
    let actions = guest.request(request, Instant::now()).unwrap();
    assert!(matches!(actions.as_slice(), [Action::Keep(_), ..]), "{actions:?}");
    guest.unkept(before.clone(), None, Instant::now());
    assert_eq!((guest.domain(), guest.grant()), (before.domain(), before.grant()));
}

#[test]
fn a_launcher_that_could_not_renounce_can_be_killed_and_asked_again() {
    let (now, mut guest) = (Instant::now(), loaded());
    refused(&mut guest, &Request::Renounce);
    let mut killed = guest.clone();
    assert_eq!(killed.request(&Request::Kill, now), Ok(vec![Action::Publish, Action::Kill]));
    let renounced = vec![Action::Keep(Grant::Renounced), Action::Publish, Action::Kill];
    assert_eq!(guest.request(&Request::Renounce, now), Ok(renounced));
}

#[test]
fn a_paused_guest_that_could_not_be_taken_is_written_down_when_it_is() {
    let (now, mut guest) = (Instant::now(), loaded());
    let take = Request::Take { from: "source".into(), paused: Some(Pause::ByUser) };
    refused(&mut guest, &take);
    assert_eq!(guest.domain().state, State::Loaded);
    let taken = vec![Action::Keep(Grant::Holder), Action::StopExports, Action::Publish];
    assert_eq!(guest.request(&take, now), Ok(taken));
}

#[test]
fn a_promise_that_could_not_be_written_is_told_of_only_when_it_was() {
    let mut now = Instant::now();
    let mut guest = running();
    guest.request(&Request::Leave { to: TO.into() }, now).unwrap();
    guest.request(&Request::Part { to: TO.into() }, now).unwrap();
    let given = vec![Action::Keep(Grant::Given { to: TO.into() }), Action::Publish];
    let before = guest.clone();
    assert_eq!(guest.told(Told::Migrated), given);
    guest.unkept(before.clone(), Some(Told::Migrated), now);
    // QEMU tells it once.
    for _ in 0..2 {
        assert_eq!((guest.domain(), guest.grant()), (before.domain(), &Grant::Holder));
        assert_eq!(guest.tick(now), []);
        now += KEEP_AGAIN;
        assert_eq!(guest.due(), Some(now));
        let unheard = guest.clone();
        assert_eq!(guest.tick(now), given);
        guest.unkept(unheard, None, now);
    }
    now += KEEP_AGAIN;
    assert_eq!(guest.tick(now), given);
    assert_eq!((guest.due(), guest.grant()), (None, &Grant::Given { to: TO.into() }));
}
