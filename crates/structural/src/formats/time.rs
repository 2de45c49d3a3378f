//! Dates, times and durations.

use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp};

pub(super) fn date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let shape = bytes.len() == 10
        && bytes
            .iter()
            .enumerate()
            .all(|(index, byte)| if matches!(index, 4 | 7) { *byte == b'-' } else { byte.is_ascii_digit() });
    shape && text.parse::<Date>().is_ok()
}

/// A date, a `t`, and a time of day with its zone.
pub(super) fn date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(day), Some(time)) = (parts.next(), parts.next()) else { return false };
    let Some((clock, rest)) = time.split_at_checked(8) else { return false };
    date(day) && clock_time(clock) && zone(rest)
}

fn clock_time(text: &str) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    let digits = |part: &str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
    matches!(parts.as_slice(), [hour, minute, second]
        if digits(hour) && digits(minute) && digits(second) && *hour <= "23" && *minute <= "59" && *second <= "59")
}

/// An optional fraction, then `z` or an offset.
fn zone(text: &str) -> bool {
    let mut rest = text;
    if !rest.starts_with(['z', '+', '-']) {
        let mut characters = rest.chars();
        characters.next();
        let digits = characters.as_str();
        let after = digits.trim_start_matches(|digit: char| digit.is_ascii_digit());
        if after.len() == digits.len() {
            return false;
        }
        rest = after;
    }
    let offset = |text: &str| {
        text.len() == 5
            && text
                .bytes()
                .enumerate()
                .all(|(index, byte)| if index == 2 { byte == b':' } else { byte.is_ascii_digit() })
    };
    rest == "z" || rest.strip_prefix(['+', '-']).is_some_and(offset)
}

/// The moment that a date-time or a date names.
pub(crate) fn timestamp(text: &str) -> Option<Timestamp> {
    text.parse().ok().or_else(|| {
        let midnight = text.parse::<Date>().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
        Some(midnight.timestamp())
    })
}

/// A duration as Go writes it, or a sum of numbers with units as Scala does.
pub(crate) fn duration(text: &str) -> Option<SignedDuration> {
    go_duration(text).or_else(|| scala_duration(text))
}

/// Go's syntax alone, which is also CEL's.
pub(crate) fn go_duration(text: &str) -> Option<SignedDuration> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanoseconds: i128 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|digit: char| !digit.is_ascii_digit() && digit != '.')?;
        let (number, after) = rest.split_at(digits);
        let unit = after.find(|letter: char| letter.is_ascii_digit() || letter == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        nanoseconds = nanoseconds.checked_add(scaled(number, unit_length(unit)?)?)?;
        rest = after;
    }
    let nanoseconds = i64::try_from(if negative { -nanoseconds } else { nanoseconds }).ok()?;
    Some(SignedDuration::from_nanos(nanoseconds))
}

fn unit_length(unit: &str) -> Option<i128> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// A decimal number of units, in nanoseconds.
fn scaled(number: &str, unit: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || whole.len() > 20 {
        return None;
    }
    let mut sum = if whole.is_empty() { 0 } else { whole.parse::<i128>().ok()?.checked_mul(unit)? };
    let mut part = unit;
    for digit in fraction.chars() {
        part /= 10;
        sum += part * i128::from(digit.to_digit(10)?);
    }
    Some(sum)
}

/// Units as Scala spells them; a unit's last spelling may be continued, as in `days`.
const UNITS: [(&[&str], i64); 8] = [
    (&["ns", "nano"], 1),
    (&["us", "µs", "micro"], 1_000),
    (&["ms", "milli"], 1_000_000),
    (&["s", "sec"], 1_000_000_000),
    (&["m", "min"], 60_000_000_000),
    (&["h", "hr", "hour"], 3_600_000_000_000),
    (&["d", "day"], 86_400_000_000_000),
    (&["w", "wk", "week"], 604_800_000_000_000),
];

fn scala_duration(text: &str) -> Option<SignedDuration> {
    let mut total: Option<i64> = None;
    let mut rest = text;
    while let Some(start) = rest.find(|digit: char| digit.is_ascii_digit()) {
        let number = &rest[start..];
        let end = number.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(number.len());
        let (number, after) = number.split_at(end);
        let after = after.trim_start();
        let end = after.find(|letter: char| !letter.is_ascii_alphabetic() && letter != 'µ').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        rest = after;
        if unit.is_empty() {
            continue;
        }
        let factor: i64 = number.parse().ok()?;
        let unit = unit.to_lowercase();
        for (spellings, length) in UNITS {
            let known =
                spellings.contains(&unit.as_str()) || spellings.last().is_some_and(|last| unit.starts_with(last));
            if known {
                total = Some(total.unwrap_or_default().wrapping_add(factor.wrapping_mul(length)));
            }
        }
    }
    total.map(SignedDuration::from_nanos)
}
