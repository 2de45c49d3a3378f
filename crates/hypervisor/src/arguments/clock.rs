//! Guest time.

use api::clock::{Clock, ClockOffsetUTC, HPETTimer, PITTimer, RTCTimer, RTCTrack, TickPolicy, Timer};

use super::line::Line;
use crate::keyval::Keyval;

const PATH: &str = "spec.domain.clock";
/// Zones are at most fourteen hours from UTC; a day is a generous bound for an offset.
const MOST_OFFSET: i64 = 86_400;

pub(super) fn add(line: &mut Line, clock: Option<&Clock>) {
    let default = Clock::default();
    let Clock { timer, timezone, utc } = clock.unwrap_or(&default);
    let base = match (timezone, utc) {
        (Some(_), Some(_)) => {
            line.refuse(PATH, "timezone and utc exclude each other");
            return;
        }
        (Some(zone), None) => zone_base(line, zone),
        (None, utc) => utc_base(line, utc.as_ref()),
    };
    let mut rtc = Keyval::default().set("base", base);
    if let Some(timer) = timer {
        rtc = timers(line, timer, rtc);
    }
    line.keyval("-rtc", rtc);
}

/// QEMU's local time is that of its environment.
fn zone_base(line: &mut Line, zone: &str) -> &'static str {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/_+-".contains(c);
    if zone.is_empty() || zone.starts_with('/') || !zone.chars().all(plain) {
        line.refuse(format!("{PATH}.timezone"), format!("{zone:?} is no time zone such as Europe/Berlin"));
    }
    line.variable("TZ", zone.to_owned());
    "localtime"
}

/// An offset is a zone without a name: POSIX writes it with the sign of the other side of the world.
fn utc_base(line: &mut Line, utc: Option<&ClockOffsetUTC>) -> &'static str {
    let seconds = utc.and_then(|ClockOffsetUTC { offset_seconds }| *offset_seconds).unwrap_or(0);
    if seconds == 0 {
        return "utc";
    }
    if seconds.abs() > MOST_OFFSET {
        line.refuse(format!("{PATH}.utc.offsetSeconds"), format!("{seconds} is more than a day"));
    }
    let (sign, rest) = (if seconds > 0 { '-' } else { '+' }, seconds.unsigned_abs());
    line.variable("TZ", format!("UTC{sign}{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60));
    "localtime"
}

fn timers(line: &mut Line, timer: &Timer, mut rtc: Keyval) -> Keyval {
    let Timer { hpet, hyperv, kvm, pit, rtc: clock } = timer;
    line.unsupported("spec.domain.clock.timer.hyperv", hyperv.is_some());
    line.unsupported("spec.domain.clock.timer.kvm", kvm.as_ref().is_some_and(|kvm| kvm.present == Some(false)));
    if let Some(HPETTimer { present: _, tick_policy }) = hpet {
        line.unsupported("spec.domain.clock.timer.hpet.tickPolicy", tick_policy.is_some());
    }
    if let Some(PITTimer { present, tick_policy }) = pit {
        line.unsupported("spec.domain.clock.timer.pit.present", *present == Some(false));
        if !matches!(tick_policy, None | Some(TickPolicy::Delay)) {
            line.refuse(format!("{PATH}.timer.pit.tickPolicy"), "only delay is supported");
        }
    }
    if let Some(RTCTimer { present, tick_policy, track }) = clock {
        line.unsupported("spec.domain.clock.timer.rtc.present", *present == Some(false));
        match tick_policy {
            None | Some(TickPolicy::Delay) => {}
            Some(TickPolicy::Catchup) => rtc = rtc.set("driftfix", "slew"),
            Some(_) => line.refuse(format!("{PATH}.timer.rtc.tickPolicy"), "only delay and catchup are supported"),
        }
        match track {
            None | Some(RTCTrack::Wall) => rtc = rtc.set("clock", "host"),
            Some(RTCTrack::Guest) => rtc = rtc.set("clock", "vm"),
            Some(RTCTrack::Other(other)) => {
                line.refuse(
                    format!("{PATH}.timer.rtc.track"),
                    format!("{other:?} is none of {}", RTCTrack::KNOWN.join(", ")),
                );
            }
        }
    }
    rtc
}
