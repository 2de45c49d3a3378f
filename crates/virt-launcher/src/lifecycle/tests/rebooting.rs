use super::super::rebooting::PATIENCE;
use super::*;

fn powered_off() -> Told {
    Told::Shutdown("guest-shutdown".into())
}

/// A guest that was asked to reboot, and when.
fn asked() -> (Lifecycle, Instant) {
    let (mut guest, now) = (running(), Instant::now());
    assert_eq!(guest.request(&Request::Reboot, now), Ok(vec![Action::PowerCycle]));
    (guest, now)
}

#[test]
fn a_guest_that_powers_off_to_reboot_starts_again() {
    let (mut guest, now) = asked();
    assert_eq!(guest.told(powered_off()), [Action::LetPowerOff, Action::Reset]);
    assert!(guest.is_held());
    for request in
        [Request::Pause, Request::Unpause, Request::Reset, Request::Reboot, Request::Leave { to: "b".into() }]
    {
        assert_eq!(guest.request(&request, now), Err(Denied::Rebooting), "{request:?}");
    }
    assert_eq!(guest.told(Told::Reset), [Action::Publish, Action::Continue]);
    assert_eq!(guest.told(Told::Resumed), []);
    assert_eq!((&guest.domain().state, guest.domain().resets), (&State::Running, 1));
    // The next time it means it.
    assert_eq!(guest.told(powered_off()), []);
    guest.exited(&exit());
    assert_eq!(guest.domain().state, State::Ended(End::PoweredOff));
}

#[test]
fn a_guest_that_does_not_react_may_power_off_later() {
    let (mut guest, now) = asked();
    assert_eq!(guest.due(), Some(now + PATIENCE));
    assert_eq!(guest.tick(now + PATIENCE), [Action::LetPowerOff]);
    assert_eq!((guest.due(), guest.told(powered_off())), (None, vec![]));
}

#[test]
fn a_shutdown_goes_before_a_reboot() {
    let (mut guest, now) = asked();
    let actions = guest.request(&Request::Shutdown { grace: Duration::from_secs(9) }, now).unwrap();
    assert_eq!(actions, [Action::Publish, Action::LetPowerOff, Action::PressPower]);
    assert_eq!(guest.told(powered_off()), []);
    // And one that has powered off already runs once more, to see the button.
    let (mut guest, now) = asked();
    guest.told(powered_off());
    guest.request(&Request::Shutdown { grace: Duration::from_secs(9) }, now).unwrap();
    assert_eq!(guest.told(Told::Reset), [Action::Publish, Action::Continue]);
    guest.told(Told::Resumed);
    assert_eq!(guest.domain().state, State::Stopping);
    assert_eq!(guest.told(powered_off()), []);
}

#[test]
fn a_guest_that_panics_instead_ends() {
    let (mut guest, _) = asked();
    guest.told(Told::Panicked);
    assert!(
        guest.told(Told::Shutdown("guest-panic".into())).contains(&Action::Kill),
        "QEMU holds it, and would for ever"
    );
    guest.exited(&Exit { code: None, signal: Some(9), ..exit() });
    assert_eq!(guest.domain().state, State::Ended(End::Panicked));
}

#[test]
fn a_guest_that_must_not_reboot_ends_where_it_would_start_again() {
    let (mut guest, _) = asked();
    guest.told(powered_off());
    assert_eq!(guest.told(Told::Shutdown("host-qmp-system-reset".into())), []);
    guest.exited(&exit());
    assert_eq!(guest.domain().state, State::Ended(End::Rebooted));
}

#[test]
fn neither_a_paused_guest_nor_one_that_moves_is_asked() {
    let (mut guest, now) = (running(), Instant::now());
    guest.request(&Request::Leave { to: "b".into() }, now).unwrap();
    assert_eq!(guest.request(&Request::Reboot, now), Err(Denied::Migrating));
    let (mut guest, now) = asked();
    assert_eq!(guest.request(&Request::Leave { to: "b".into() }, now), Err(Denied::Rebooting));
    let mut guest = running();
    guest.request(&Request::Pause, now).unwrap();
    guest.told(Told::Stopped);
    assert_eq!(guest.request(&Request::Reboot, now), Err(Denied::Paused));
}
