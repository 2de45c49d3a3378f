//! When a guest counts as quiet: what its instance says may be old, and who stopped it may let it go on.

use super::*;

/// The instance is told of its guest's freeze when somebody happens to ask, and keeps saying so for minutes.
#[test]
fn a_guest_is_frozen_whatever_its_instance_says() {
    let mut bench = Bench::new(Some(true));
    bench.frozen = true;
    bench.poll();
    bench.frozen = false;
    bench.settle();
    assert_eq!((bench.phase().as_str(), bench.torn, bench.frozen), ("Succeeded", 0, false));
}

#[test]
fn a_guest_that_a_dead_controller_has_frozen_is_copied_at_once() {
    let mut bench = Bench::new(Some(true));
    while bench.decide().quiet.is_none() {
        bench.act(&bench.decide(), usize::MAX);
    }
    bench.frozen = true;
    bench.act(&bench.decide(), usize::MAX);
    assert!(!bench.copies.is_empty() && bench.frozen);
    bench.settle();
    assert_eq!((bench.phase().as_str(), bench.torn, bench.frozen), ("Succeeded", 0, false));
}

/// virt-handler lets it try again by itself, which may be between two copies.
#[test]
fn a_guest_that_a_failed_disk_has_stopped_is_not_copied() {
    for agent in [false, true] {
        let mut bench = Bench::new(Some(agent));
        bench.pause_by(Some("PausedIOError"));
        for _ in 0..12 {
            bench.act(&bench.decide(), usize::MAX);
        }
        assert!(bench.content.is_some() && bench.copies.is_empty());
        let told = bench.snapshot.as_ref().map(|one| one["status"]["error"]["message"].clone()).unwrap_or_default();
        assert!(told.as_str().is_some_and(|told| told.contains("one of its disks failed")), "{told}");
        let mut late = bench.clone();
        bench.pause_by(None);
        bench.settle();
        assert_eq!((bench.phase().as_str(), bench.torn, bench.is_paused()), ("Succeeded", 0, false));
        late.seconds += 400;
        late.settle();
        assert_eq!((late.phase().as_str(), late.torn, late.is_locked()), ("Failed", 0, false));
    }
}

/// What was noted and never came to be is no reason to hold the VM.
#[test]
fn a_guest_that_its_disk_has_stopped_before_its_snapshot_could_does_not_hold_the_vm() {
    let mut bench = Bench::new(Some(false));
    while bench.decide().quiet.is_none() {
        bench.act(&bench.decide(), usize::MAX);
    }
    bench.pause_by(Some("PausedIOError"));
    bench.seconds += 400;
    bench.settle();
    assert_eq!((bench.phase().as_str(), bench.torn, bench.is_locked()), ("Failed", 0, false));
}
