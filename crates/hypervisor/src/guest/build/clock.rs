//! Guest time.

use api::clock::{self, ClockOffsetUTC, HPETTimer, PITTimer, RTCTimer, RTCTrack, TickPolicy, Timer};

use crate::guest::Clock;
use crate::refusal::Refusals;

const PATH: &str = "spec.domain.clock";
/// Zones are at most fourteen hours from UTC; a day is a generous bound for an offset.
const MOST_OFFSET: i64 = 86_400;

pub(super) fn clock(refusals: &mut Refusals, clock: Option<&clock::Clock>) -> Clock {
    let default = clock::Clock::default();
    let clock::Clock { timer, timezone, utc } = clock.unwrap_or(&default);
    let zone = match (timezone, utc) {
        (Some(_), Some(_)) => {
            refusals.refuse(PATH, "timezone and utc exclude each other");
            None
        }
        (Some(zone), None) => Some(named_zone(refusals, zone)),
        (None, utc) => offset_zone(refusals, utc.as_ref()),
    };
    let mut clock = Clock { zone, catches_up: false, goes_on: None };
    if let Some(timer) = timer {
        timers(refusals, timer, &mut clock);
    }
    clock
}

fn named_zone(refusals: &mut Refusals, zone: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/_+-".contains(c);
    if zone.is_empty() || zone.starts_with('/') || !zone.chars().all(plain) {
        let problem = format!("{zone:?} is not a time zone such as Europe/Berlin");
        refusals.refuse(format!("{PATH}.timezone"), problem);
    }
    zone.to_owned()
}

/// An offset is a zone without a name: POSIX writes it with the sign of the other side of the world.
fn offset_zone(refusals: &mut Refusals, utc: Option<&ClockOffsetUTC>) -> Option<String> {
    let seconds = utc.and_then(|ClockOffsetUTC { offset_seconds }| *offset_seconds).filter(|seconds| *seconds != 0)?;
    if seconds.unsigned_abs() > MOST_OFFSET.unsigned_abs() {
        refusals.refuse(format!("{PATH}.utc.offsetSeconds"), format!("{seconds} is more than a day"));
    }
    let (sign, rest) = (if seconds > 0 { '-' } else { '+' }, seconds.unsigned_abs());
    Some(format!("UTC{sign}{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60))
}

fn timers(refusals: &mut Refusals, timer: &Timer, guest: &mut Clock) {
    let Timer { hpet, hyperv, kvm, pit, rtc } = timer;
    refusals.unsupported("spec.domain.clock.timer.hyperv", hyperv.is_some());
    refusals.unsupported("spec.domain.clock.timer.kvm", kvm.as_ref().is_some_and(|kvm| kvm.present == Some(false)));
    if let Some(HPETTimer { present: _, tick_policy }) = hpet {
        refusals.unsupported("spec.domain.clock.timer.hpet.tickPolicy", tick_policy.is_some());
    }
    if let Some(PITTimer { present, tick_policy }) = pit {
        refusals.unsupported("spec.domain.clock.timer.pit.present", *present == Some(false));
        if !matches!(tick_policy, None | Some(TickPolicy::Delay)) {
            refusals.refuse(format!("{PATH}.timer.pit.tickPolicy"), "only delay is supported");
        }
    }
    let Some(RTCTimer { present, tick_policy, track }) = rtc else { return };
    refusals.unsupported("spec.domain.clock.timer.rtc.present", *present == Some(false));
    match tick_policy {
        None | Some(TickPolicy::Delay) => {}
        Some(TickPolicy::Catchup) => guest.catches_up = true,
        Some(_) => refusals.refuse(format!("{PATH}.timer.rtc.tickPolicy"), "only delay and catchup are supported"),
    }
    match track {
        None | Some(RTCTrack::Wall) => guest.goes_on = Some(true),
        Some(RTCTrack::Guest) => guest.goes_on = Some(false),
        Some(RTCTrack::Other(other)) => {
            let problem = format!("{other:?} is not one of {}", RTCTrack::KNOWN.join(", "));
            refusals.refuse(format!("{PATH}.timer.rtc.track"), problem);
        }
    }
}
