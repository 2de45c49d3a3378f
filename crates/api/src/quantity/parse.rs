//! From text to amount.

use super::{Amount, BINARY, DECIMAL, MAX, Notation, ONE, QuantityError};

/// The longest text that is read; the longest that means anything has some forty characters.
const MAX_LENGTH: usize = 256;
/// Exponents beyond this are zero or the cap, whatever the digits; it bounds the work a client can cause.
const MAX_EXPONENT: i64 = 64;

/// Reads an amount.
///
/// # Guarantees
/// Follows Kubernetes' own parser: what is finer than a billionth is rounded away from zero, what is larger than 2^63-1
/// is capped, and a binary amount below one prints as a decimal.
pub(super) fn parse(text: &str) -> Result<Amount, QuantityError> {
    if text.len() > MAX_LENGTH {
        return Err(QuantityError::Length(text.len()));
    }
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err(QuantityError::Number(text.to_owned()));
    }
    let (notation, power_of_ten, power_of_two) = read_suffix(suffix)?;
    let magnitude = magnitude(whole, fraction, power_of_ten + 9, power_of_two);
    let notation = match notation {
        Notation::Binary if magnitude < ONE.unsigned_abs() && magnitude > 0 => Notation::Decimal,
        other => other,
    };
    let billionths = i128::try_from(magnitude).unwrap_or(i128::MAX);
    Ok(Amount { billionths: if negative { -billionths } else { billionths }, notation })
}

/// The notation, the power of ten and the power of two that a suffix stands for.
fn read_suffix(suffix: &str) -> Result<(Notation, i64, u32), QuantityError> {
    if let Some(step) = DECIMAL.iter().position(|known| *known == suffix) {
        return Ok((Notation::Decimal, i64::try_from(step).unwrap_or_default() * 3 - 9, 0));
    }
    if let Some(step) = BINARY.iter().position(|known| *known == suffix) {
        return Ok((Notation::Binary, 0, u32::try_from(step).unwrap_or_default() * 10 + 10));
    }
    suffix
        .strip_prefix(['e', 'E'])
        .and_then(|exponent| exponent.parse::<i64>().ok())
        .map(|exponent| (Notation::Exponent, exponent.clamp(-MAX_EXPONENT, MAX_EXPONENT), 0))
        .ok_or_else(|| QuantityError::Suffix { suffix: suffix.to_owned() })
}

/// `whole.fraction * 10^power_of_ten * 2^power_of_two`, rounded up and capped.
fn magnitude(whole: &str, fraction: &str, power_of_ten: i64, power_of_two: u32) -> u128 {
    // A negative power moves the point to the left: the last digits of the whole part join the fraction.
    let shift = usize::try_from(-power_of_ten).unwrap_or(0);
    let split = whole.len().saturating_sub(shift);
    let (whole, moved) = whole.split_at(split);
    let padding = shift - moved.len();
    let unit = 10u128.checked_pow(u32::try_from(power_of_ten).unwrap_or(0)).unwrap_or(MAX) << power_of_two;

    let digits = |part: &str| part.bytes().map(|digit| u128::from(digit - b'0')).collect::<Vec<_>>();
    let units = digits(whole).into_iter().fold(0u128, |sum, digit| sum.saturating_mul(10).saturating_add(digit));

    // From the last digit to the first, each step divides by ten; a remainder anywhere means there is something to
    // round up. Flooring in between changes neither the final floor nor whether anything remains.
    let mut part = 0u128;
    let mut remains = false;
    let moved_first = std::iter::repeat_n(0, padding).chain(digits(moved)).chain(digits(fraction)).collect::<Vec<_>>();
    for digit in moved_first.into_iter().rev() {
        let sum = part.saturating_add(unit.saturating_mul(digit));
        remains |= sum % 10 != 0;
        part = sum / 10;
    }
    units.saturating_mul(unit).saturating_add(part).saturating_add(u128::from(remains)).min(MAX)
}
