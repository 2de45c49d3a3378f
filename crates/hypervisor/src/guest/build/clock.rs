//! Guest time.

use api::clock::{self, ClockOffsetUTC, RTCTimer, RTCTrack, TickPolicy, Timer};

use crate::guest::Clock;

pub(super) fn clock(clock: Option<&clock::Clock>) -> Clock {
    let default = clock::Clock::default();
    let clock::Clock { timer, timezone, utc } = clock.unwrap_or(&default);
    let zone = timezone.clone().or_else(|| offset_zone(utc.as_ref()));
    // The other timers are as the board has them; it knows itself whether it has HPET.
    let rtc = timer.as_ref().and_then(|Timer { hpet: _, hyperv: _, kvm: _, pit: _, rtc }| rtc.as_ref());
    let tick_policy = rtc.and_then(|RTCTimer { present: _, tick_policy, track: _ }| tick_policy.as_ref());
    let goes_on = rtc.map(|rtc| rtc.track != Some(RTCTrack::Guest));
    Clock { zone, catches_up: tick_policy == Some(&TickPolicy::Catchup), goes_on }
}

/// An offset is a zone without a name: POSIX writes it with the sign of the other side of the world.
fn offset_zone(utc: Option<&ClockOffsetUTC>) -> Option<String> {
    let seconds = utc.and_then(|ClockOffsetUTC { offset_seconds }| *offset_seconds).filter(|seconds| *seconds != 0)?;
    let (sign, rest) = (if seconds > 0 { '-' } else { '+' }, seconds.unsigned_abs());
    Some(format!("UTC{sign}{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60))
}
