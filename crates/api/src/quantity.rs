//! Quantities: amounts of memory, CPU and other resources, exact to the billionth.
//!
//! A [`Quantity`] is the text a client wrote, checked but not changed: `1024Mi` stays `1024Mi`, and a bare number stays
//! a number. An [`Amount`] is its value, to compare and to calculate with; it prints in Kubernetes' canonical form:
//! no fraction, the largest suffix that loses nothing, in the notation it was read in.

mod parse;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, Neg, Sub};
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use parse::parse;

/// Billionths in one.
const ONE: i128 = 1_000_000_000;
/// Kubernetes caps what it reads at the largest 64-bit number.
const MAX: u128 = i64::MAX.unsigned_abs() as u128 * ONE.unsigned_abs();

const PATTERN: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// A resource amount as it was written.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Quantity(Written);

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Written {
    Number(i64),
    Text(Box<str>),
}

impl Quantity {
    /// Its exact value.
    #[must_use]
    pub fn amount(&self) -> Amount {
        match &self.0 {
            Written::Number(number) => Amount::from(*number),
            // The constructors let nothing through that does not parse.
            Written::Text(text) => parse(text).unwrap_or_default(),
        }
    }
}

impl Default for Quantity {
    fn default() -> Self {
        Self(Written::Text("0".into()))
    }
}

impl From<Amount> for Quantity {
    fn from(amount: Amount) -> Self {
        Self(Written::Text(amount.to_string().into()))
    }
}

impl From<&Quantity> for k8s_openapi::apimachinery::pkg::api::resource::Quantity {
    fn from(quantity: &Quantity) -> Self {
        Self(quantity.to_string())
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text)?;
        Ok(Self(Written::Text(text.into())))
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Written::Number(number) => number.fmt(f),
            Written::Text(text) => f.write_str(text),
        }
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Written::Number(number) => serializer.serialize_i64(*number),
            Written::Text(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct QuantityVisitor;

        impl Visitor<'_> for QuantityVisitor {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as 500m, 2 or 1.5Gi")
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Quantity, E> {
                Ok(Quantity(Written::Number(number)))
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Quantity, E> {
                let number =
                    i64::try_from(number).map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))?;
                Ok(Quantity(Written::Number(number)))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Quantity, E> {
                text.parse().map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
            }
        }

        deserializer.deserialize_any(QuantityVisitor)
    }
}

impl JsonSchema for Quantity {
    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [{ "type": "integer" }, { "type": "string" }],
            "pattern": PATTERN,
            "x-kubernetes-int-or-string": true,
        })
    }
}

/// A text that is no quantity.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum QuantityError {
    /// It does not begin with a number.
    #[error("{0:?} does not begin with a number")]
    Number(String),
    /// What follows the number is none of the known suffixes.
    #[error("unknown suffix {suffix:?}; use one of n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or an exponent such as e3")]
    Suffix {
        /// What stands behind the number.
        suffix: String,
    },
    /// It is longer than any meaningful quantity.
    #[error("a quantity of {0} characters is too long")]
    Length(usize),
}

/// The notation an amount was read in and is printed in.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Notation {
    /// Powers of 1000 by letter: `500m`, `2k`.
    #[default]
    Decimal,
    /// Powers of 1024 by letter: `64Mi`.
    Binary,
    /// Powers of ten by exponent: `2e3`.
    Exponent,
}

/// An exact amount.
///
/// # Guarantees
/// - Calculation is exact; nothing is ever rounded to a float.
/// - Comparison looks at the value alone: `1Ki` equals `1024`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Amount {
    billionths: i128,
    notation: Notation,
}

impl Amount {
    /// An amount of whole units that prints with binary suffixes, as memory does.
    #[must_use]
    pub fn bytes(count: u64) -> Self {
        Self { billionths: i128::from(count) * ONE, notation: Notation::Binary }
    }

    /// An amount of thousandths, as CPU shares are given.
    #[must_use]
    pub fn milli(count: i64) -> Self {
        Self { billionths: i128::from(count) * (ONE / 1000), notation: Notation::Decimal }
    }

    /// Whole units, rounded away from zero.
    #[must_use]
    pub fn units(self) -> i128 {
        divide_away(self.billionths, ONE)
    }

    /// Thousandths, rounded away from zero.
    #[must_use]
    pub fn milli_units(self) -> i128 {
        divide_away(self.billionths, ONE / 1000)
    }

    /// Whether it is nothing.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.billionths == 0
    }

    /// `self * numerator / denominator`, rounded away from zero to a billionth; `None` if that is no number.
    #[must_use]
    pub fn scaled(self, numerator: i64, denominator: i64) -> Option<Self> {
        if denominator == 0 {
            return None;
        }
        let product = self.billionths.checked_mul(i128::from(numerator))?;
        Some(Self { billionths: divide_away(product, i128::from(denominator)), ..self })
    }

    fn combine(self, other: Self, billionths: i128) -> Self {
        let notation = if self.is_zero() { other.notation } else { self.notation };
        Self { billionths, notation }
    }
}

impl From<i64> for Amount {
    fn from(units: i64) -> Self {
        Self { billionths: i128::from(units) * ONE, notation: Notation::Decimal }
    }
}

impl FromStr for Amount {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text)
    }
}

impl PartialEq for Amount {
    fn eq(&self, other: &Self) -> bool {
        self.billionths == other.billionths
    }
}

impl Eq for Amount {}

impl Ord for Amount {
    fn cmp(&self, other: &Self) -> Ordering {
        self.billionths.cmp(&other.billionths)
    }
}

impl PartialOrd for Amount {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The notation of the left side holds, unless it is zero. A read amount has at most 94 bits, so that billions of them
/// can be added; beyond, the sum stays at the end of the range.
impl Add for Amount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.combine(other, self.billionths.saturating_add(other.billionths))
    }
}

impl Sub for Amount {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.combine(other, self.billionths.saturating_sub(other.billionths))
    }
}

impl Neg for Amount {
    type Output = Self;

    fn neg(self) -> Self {
        Self { billionths: self.billionths.saturating_neg(), ..self }
    }
}

impl std::iter::Sum for Amount {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::default(), Add::add)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.billionths % ONE == 0;
        let units = self.billionths / ONE;
        if self.notation == Notation::Binary && whole && units.unsigned_abs() >= 1024 {
            let (number, steps) = reduce(units, 1024, BINARY.len());
            return write!(f, "{number}{}", steps.checked_sub(1).map_or("", |step| BINARY[step]));
        }
        let (number, steps) = reduce(self.billionths, 1000, DECIMAL.len() - 1);
        if self.notation == Notation::Exponent {
            let exponent = i32::try_from(steps).unwrap_or_default() * 3 - 9;
            return if exponent == 0 { write!(f, "{number}") } else { write!(f, "{number}e{exponent}") };
        }
        write!(f, "{number}{}", DECIMAL[steps])
    }
}

/// Suffixes by power of 1000, from billionths up.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
/// Suffixes by power of 1024, from 1024 up.
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Divides by `base` while nothing is lost, at most `limit` times; zero counts as whole units.
fn reduce(mut number: i128, base: i128, limit: usize) -> (i128, usize) {
    if number == 0 {
        return (0, 3);
    }
    let mut steps = 0;
    while steps < limit && number % base == 0 {
        number /= base;
        steps += 1;
    }
    (number, steps)
}

fn divide_away(number: i128, divisor: i128) -> i128 {
    let quotient = number / divisor;
    match number % divisor {
        0 => quotient,
        _ if (number < 0) == (divisor < 0) => quotient + 1,
        _ => quotient - 1,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn canonical(text: &str) -> String {
        text.parse::<Amount>().unwrap().to_string()
    }

    #[test]
    fn canonical_forms_are_those_of_kubernetes() {
        for (text, expected) in [
            ("0", "0"),
            ("0Gi", "0"),
            ("-0", "0"),
            ("1", "1"),
            ("+1", "1"),
            ("1.", "1"),
            (".5", "500m"),
            ("1.5", "1500m"),
            ("1.5Gi", "1536Mi"),
            ("1024Mi", "1Gi"),
            ("1000", "1k"),
            ("1024", "1024"),
            ("1Ki", "1Ki"),
            ("1000Ki", "1000Ki"),
            ("0.5Ki", "512"),
            ("0.0001Ki", "102400u"),
            ("1.0001Ki", "1024102400u"),
            ("1e3", "1e3"),
            ("1E3", "1e3"),
            ("1500e-3", "1500e-3"),
            ("12e4", "120e3"),
            ("100m", "100m"),
            ("1000m", "1"),
            ("0.1n", "1n"),
            ("1.0000000001", "1000000001n"),
            ("-1.5", "-1500m"),
            ("-0.1n", "-1n"),
            ("1E", "1E"),
            ("1Ei", "1Ei"),
            ("99999999999999999999", "9223372036854775807"),
            ("1e400", "9223372036854775807"),
            ("1e-400", "1e-9"),
            ("16Ei", "9223372036854775807"),
        ] {
            assert_eq!(canonical(text), expected, "{text}");
        }
    }

    #[test]
    fn malformed_texts_are_refused() {
        for text in ["", "-", "+", ".", "Mi", "1.2.3", "1 Gi", "1gi", "1KiB", "0x10", "1e", "1e1.5", "--1", "one", "１"]
        {
            assert!(text.parse::<Quantity>().is_err(), "{text:?} was taken");
        }
        assert_eq!("9".repeat(300).parse::<Quantity>(), Err(QuantityError::Length(300)));
    }

    #[test]
    fn what_was_written_comes_back() {
        for json in [r#""1024Mi""#, "2", r#""2""#, r#""1e3""#, r#""0.5""#, "-3"] {
            let quantity: Quantity = serde_json::from_str(json).unwrap();
            assert_eq!(serde_json::to_string(&quantity).unwrap(), json);
        }
        assert!(serde_json::from_str::<Quantity>("1.5").is_err(), "a float is not exact");
    }

    #[test]
    fn arithmetic_keeps_the_notation_of_the_left_side() {
        let amount = |text: &str| text.parse::<Amount>().unwrap();
        assert_eq!((amount("1Gi") + amount("1G")).to_string(), "2073741824");
        assert_eq!((amount("0") + amount("1Gi")).to_string(), "1Gi");
        assert_eq!((amount("1Gi") - amount("512Mi")).to_string(), "512Mi");
        assert_eq!(amount("1Gi").scaled(1, 3).map(Amount::units), Some(357_913_942));
        assert_eq!(amount("100m").units(), 1);
        assert_eq!(amount("-100m").units(), -1);
        assert_eq!(amount("1").scaled(1, 0), None);
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in ".{0,40}") {
            let _ = text.parse::<Quantity>();
        }

        #[test]
        fn a_canonical_form_is_its_own_canonical_form(number in any::<i64>(), suffix in "|n|u|m|k|M|G|Ki|Mi|Gi|Ti|e3|e-3|E") {
            let Ok(amount) = format!("{number}{suffix}").parse::<Amount>() else { return Ok(()) };
            let again: Amount = amount.to_string().parse().unwrap();
            prop_assert_eq!(amount, again);
            prop_assert_eq!(amount.to_string(), again.to_string());
        }

        #[test]
        fn the_value_is_exact(whole in 0u64..1 << 40, fraction in 0u32..1_000_000_000, step in 0usize..6) {
            let text = format!("{whole}.{fraction:09}{}", if step == 0 { "" } else { BINARY[step - 1] });
            let factor = 1u128 << (10 * step);
            let billionths = (u128::from(whole) * 1_000_000_000 + u128::from(fraction)) * factor;
            prop_assert_eq!(text.parse::<Amount>().unwrap().billionths.unsigned_abs(), billionths.min(MAX));
        }

        #[test]
        fn order_and_sums_agree_with_the_numbers(left in any::<i32>(), right in any::<i32>()) {
            let (a, b) = (Amount::milli(left.into()), Amount::milli(right.into()));
            prop_assert_eq!(a.cmp(&b), left.cmp(&right));
            prop_assert_eq!((a + b).milli_units(), i128::from(left) + i128::from(right));
            prop_assert_eq!((a - b) + b, a);
        }
    }
}
