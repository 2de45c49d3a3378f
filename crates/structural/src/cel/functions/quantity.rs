//! Quantities such as `1.5Gi`, in billionths, which is as fine as Kubernetes keeps them.

use super::super::eval::{Failure, error};
use super::super::value::Val;
use super::truth;

const ONE: i128 = 1_000_000_000;

pub(super) fn parse(text: &str) -> Option<i128> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = rest.find(|digit: char| !digit.is_ascii_digit() && digit != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || whole.len() > 18 || fraction.len() > 9 {
        return None;
    }
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let scale = i128::from(10_i64.checked_pow(u32::try_from(fraction.len()).ok()?)?);
    let (numerator, denominator) = multiplier(suffix)?;
    let product = digits.checked_mul(ONE)?.checked_mul(numerator)?;
    let divisor = scale.checked_mul(denominator)?;
    // What is finer than a billionth is rounded up, away from zero.
    let amount = product / divisor + i128::from(product % divisor != 0);
    Some(if negative { -amount } else { amount })
}

fn multiplier(suffix: &str) -> Option<(i128, i128)> {
    Some(match suffix {
        "" => (1, 1),
        "n" => (1, 1_000_000_000),
        "u" => (1, 1_000_000),
        "m" => (1, 1_000),
        "k" => (1_000, 1),
        "M" => (1_000_000, 1),
        "G" => (1_000_000_000, 1),
        "T" => (1_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000, 1),
        "E" => (1_000_000_000_000_000_000, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let power = 10_i128.checked_pow(exponent.unsigned_abs()).filter(|_| exponent.abs() <= 18)?;
            if exponent < 0 { (1, power) } else { (power, 1) }
        }
    })
}

pub(super) fn call<'a>(this: i128, name: &str, rest: &[Val<'a>]) -> Option<Result<Val<'a>, Failure>> {
    let other = match rest {
        [] => return alone(this, name),
        [Val::Quantity(other)] => *other,
        [Val::Int(number)] => i128::from(*number) * ONE,
        _ => return None,
    };
    let overflow = || error("quantity overflow");
    match name {
        "isGreaterThan" => truth(this > other),
        "isLessThan" => truth(this < other),
        "compareTo" => Some(Ok(Val::Int(match this.cmp(&other) {
            std::cmp::Ordering::Less => -1,
            std::cmp::Ordering::Equal => 0,
            std::cmp::Ordering::Greater => 1,
        }))),
        "add" => Some(this.checked_add(other).map(Val::Quantity).ok_or_else(overflow)),
        "sub" => Some(this.checked_sub(other).map(Val::Quantity).ok_or_else(overflow)),
        _ => None,
    }
}

#[expect(clippy::cast_precision_loss, reason = "the function is called approximate")]
fn alone<'a>(this: i128, name: &str) -> Option<Result<Val<'a>, Failure>> {
    let whole = (this % ONE == 0).then_some(this / ONE).and_then(|whole| i64::try_from(whole).ok());
    Some(match name {
        "sign" => Ok(Val::Int(i64::try_from(this.signum()).unwrap_or_default())),
        "isInteger" => Ok(Val::Bool(whole.is_some())),
        "asInteger" => whole.map(Val::Int).ok_or_else(|| error("cannot convert value to integer")),
        "asApproximateFloat" => Ok(Val::Double(this as f64 / ONE as f64)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{ONE, parse};

    #[test]
    fn quantities_are_exact_to_the_billionth() {
        for (text, amount) in [
            ("1", ONE),
            ("1.5Gi", 3 * (1 << 29) * ONE),
            ("100m", ONE / 10),
            ("-2k", -2000 * ONE),
            ("1e3", 1000 * ONE),
            ("0.1n", 1),
            ("12E", 12 * 1_000_000_000_000_000_000 * ONE),
        ] {
            assert_eq!(parse(text), Some(amount), "{text}");
        }
        for bad in ["", "x", "1.2.3", "1Zi", ".", "1 Gi"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
