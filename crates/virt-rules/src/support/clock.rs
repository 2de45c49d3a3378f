//! Guest time.

use api::clock::{
    Clock, ClockOffsetUTC, HPETTimer, HypervTimer, KVMTimer, PITTimer, RTCTimer, RTCTrack, TickPolicy, Timer,
};

use super::sheet::Sheet;

/// Zones are at most fourteen hours from UTC; a day is a generous bound for an offset.
const MOST_OFFSET: u64 = 86_400;
const STAYS: &str = "set it to true; every board has it";

pub(super) fn place(sheet: &mut Sheet<'_>, clock: &Clock) {
    let Clock { timer, timezone, utc } = clock;
    sheet.part("timer", timer.as_ref(), timers);
    let wrong = timezone.as_deref().filter(|zone| !is_zone(zone));
    let problem = wrong.map(|zone| format!("{zone:?} is not a valid time zone; use one such as Europe/Berlin"));
    sheet.within("timezone", "a time zone that the node knows, such as Europe/Berlin", problem);
    sheet.part("utc", utc.as_ref(), |sheet, ClockOffsetUTC { offset_seconds }| {
        let wrong = offset_seconds.filter(|seconds| seconds.unsigned_abs() > MOST_OFFSET);
        let problem = wrong.map(|seconds| format!("{seconds} is more than a day; use less"));
        sheet.within("offsetSeconds", "a day at most", problem);
    });
    if timezone.is_some() && utc.is_some() {
        sheet.refuse("", "timezone and utc are mutually exclusive; remove one");
    }
}

/// Whether this is a name of a time zone, by its letters.
#[must_use]
pub fn is_zone(zone: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/_+-".contains(c);
    !zone.is_empty() && !zone.starts_with('/') && zone.chars().all(plain)
}

fn timers(sheet: &mut Sheet<'_>, timer: &Timer) {
    let Timer { hpet, hyperv, kvm, pit, rtc } = timer;
    sheet.part("hpet", hpet.as_ref(), |sheet, HPETTimer { present, tick_policy }| {
        sheet.works("present", present);
        sheet.unsupported("tickPolicy", "remove it; QEMU decides", tick_policy.is_some());
    });
    let hidden = hyperv.as_ref().is_none_or(|HypervTimer { present }| *present == Some(false));
    sheet.unsupported("hyperv", "remove it; Hyper-V's clock is not offered to guests", !hidden);
    sheet.part("kvm", kvm.as_ref(), |sheet, KVMTimer { present }| {
        sheet.unsupported("present", "set it to true; the CPU model decides", *present == Some(false));
    });
    sheet.part("pit", pit.as_ref(), |sheet, PITTimer { present, tick_policy }| {
        sheet.unsupported("present", STAYS, *present == Some(false));
        sheet.words("tickPolicy", tick_policy.as_ref().map(TickPolicy::as_str), &["delay"]);
    });
    sheet.part("rtc", rtc.as_ref(), |sheet, RTCTimer { present, tick_policy, track }| {
        sheet.unsupported("present", STAYS, *present == Some(false));
        sheet.words("tickPolicy", tick_policy.as_ref().map(TickPolicy::as_str), &["delay", "catchup"]);
        sheet.words("track", track.as_ref().map(RTCTrack::as_str), RTCTrack::KNOWN);
    });
}
