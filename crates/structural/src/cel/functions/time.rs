//! Functions of moments and durations.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::super::eval::{Failure, error};
use super::super::value::Val;

pub(super) fn call<'a>(this: &Val<'a>, name: &str, rest: &[Val<'a>]) -> Option<Result<Val<'a>, Failure>> {
    match (this, rest) {
        (Val::Duration(span), []) => {
            let number = match name {
                "getHours" => span.as_secs() / 3600,
                "getMinutes" => span.as_secs() / 60,
                "getSeconds" => span.as_secs(),
                "getMilliseconds" => i64::try_from(span.as_millis()).unwrap_or(i64::MAX),
                _ => return None,
            };
            Some(Ok(Val::Int(number)))
        }
        (Val::Timestamp(moment), []) => part(*moment, name, TimeZone::UTC).map(|number| Ok(Val::Int(number))),
        (Val::Timestamp(moment), [Val::String(zone)]) => match zone_of(zone.as_str()) {
            Some(zone) => part(*moment, name, zone).map(|number| Ok(Val::Int(number))),
            None => Some(Err(error(format!("unknown time zone {}", zone.as_str())))),
        },
        _ => None,
    }
}

/// Offsets alone: the names of zones need a database that this crate does not carry.
fn zone_of(text: &str) -> Option<TimeZone> {
    if text == "UTC" {
        return Some(TimeZone::UTC);
    }
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (hours, minutes) = rest.split_once(':')?;
    let seconds = sign * (i32::from(hours.parse::<u8>().ok()?) * 3600 + i32::from(minutes.parse::<u8>().ok()?) * 60);
    jiff::tz::Offset::from_seconds(seconds).ok().map(TimeZone::fixed)
}

fn part(moment: Timestamp, name: &str, zone: TimeZone) -> Option<i64> {
    let time = moment.to_zoned(zone);
    Some(match name {
        "getFullYear" => i64::from(time.year()),
        "getMonth" => i64::from(time.month()) - 1,
        "getDate" => i64::from(time.day()),
        "getDayOfMonth" => i64::from(time.day()) - 1,
        "getDayOfWeek" => i64::from(time.weekday().to_sunday_zero_offset()),
        "getDayOfYear" => i64::from(time.day_of_year()) - 1,
        "getHours" => i64::from(time.hour()),
        "getMinutes" => i64::from(time.minute()),
        "getSeconds" => i64::from(time.second()),
        "getMilliseconds" => i64::from(time.millisecond()),
        _ => return None,
    })
}

/// A duration in seconds, as CEL writes it.
pub(super) fn shown(span: SignedDuration) -> String {
    let sign = if span.is_negative() { "-" } else { "" };
    let fraction = format!("{:09}", span.subsec_nanos().unsigned_abs());
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{}{point}{fraction}s", span.as_secs().unsigned_abs())
}
