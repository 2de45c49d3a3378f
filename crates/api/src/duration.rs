//! Durations as Go writes them: `1h30m`, `500ms`, `-2s`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error as _, Unexpected};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Nanoseconds per unit, in the order in which units are tried: the longer name first.
const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// A length of time as it was written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Duration {
    text: Box<str>,
    nanoseconds: i64,
}

/// A text that is no duration.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0:?} is not a valid duration; use one such as 1h30m, 90s or 500ms")]
pub struct DurationError(String);

impl Duration {
    /// Signed nanoseconds.
    #[must_use]
    pub fn nanoseconds(&self) -> i64 {
        self.nanoseconds
    }

    /// The length, or `None` if it is negative.
    #[must_use]
    pub fn to_std(&self) -> Option<std::time::Duration> {
        u64::try_from(self.nanoseconds).ok().map(std::time::Duration::from_nanos)
    }
}

impl Default for Duration {
    fn default() -> Self {
        Self { text: "0s".into(), nanoseconds: 0 }
    }
}

impl FromStr for Duration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text)
            .map(|nanoseconds| Self { text: text.into(), nanoseconds })
            .ok_or_else(|| DurationError(text.to_owned()))
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let expected = &"a duration such as 1h30m, 90s or 500ms";
        text.parse().map_err(|_| D::Error::invalid_value(Unexpected::Str(&text), expected))
    }
}

impl JsonSchema for Duration {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

/// Nanoseconds, or `None` if the text is malformed or the sum overflows.
fn parse(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut sum = 0i64;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(end);
        let (name, unit) = UNITS.iter().find(|(name, _)| tail.starts_with(name))?;
        sum = sum.checked_add(scale(number, *unit)?)?;
        rest = &tail[name.len()..];
    }
    Some(if negative { -sum } else { sum })
}

/// `number * unit`, what is finer than a nanosecond cut off.
fn scale(number: &str, unit: i64) -> Option<i64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole = if whole.is_empty() { 0 } else { whole.parse::<i64>().ok()? };
    let mut part = 0;
    let mut place = unit;
    for digit in fraction.chars() {
        place /= 10;
        part += i64::from(digit.to_digit(10)?) * place;
    }
    whole.checked_mul(unit)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_mean_what_they_mean_in_go() {
        for (text, expected) in [
            ("0", 0),
            ("0s", 0),
            ("90s", 90_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1.5s", 1_500_000_000),
            ("-2ms", -2_000_000),
            ("+1us", 1_000),
            ("3µs", 3_000),
            (".5m", 30_000_000_000),
            ("1h0m0.000000001s", 3_600_000_000_001),
        ] {
            assert_eq!(text.parse::<Duration>().map(|duration| duration.nanoseconds()), Ok(expected), "{text}");
        }
    }

    #[test]
    fn malformed_durations_are_refused() {
        for text in ["", "-", "5", "s", "1x", "1.2.3s", ".s", "1s ", "1 s", "300000h9999999h"] {
            assert!(text.parse::<Duration>().is_err(), "{text:?} was taken");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "[-+.0-9a-zµ]{0,30}") {
            let _ = text.parse::<Duration>();
        }

        #[test]
        fn whole_units_add_up(hours in 0i64..10_000, minutes in 0i64..60, seconds in 0i64..60) {
            let duration: Duration = format!("{hours}h{minutes}m{seconds}s").parse().unwrap();
            prop_assert_eq!(duration.nanoseconds(), (hours * 3600 + minutes * 60 + seconds) * 1_000_000_000);
        }
    }
}
