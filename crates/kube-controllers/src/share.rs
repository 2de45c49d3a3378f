//! A number, or a percentage of another: how limits and budgets are given.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Which way a fraction goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    Up,
    Down,
}

/// The number that is meant; none, if it is negative or not a percentage.
pub(crate) fn share(value: &IntOrString, of: i32, rounding: Rounding) -> Option<i32> {
    match value {
        IntOrString::Int(number) => (*number >= 0).then_some(*number),
        IntOrString::String(text) => {
            let percent = text.strip_suffix('%').and_then(|digits| digits.parse::<u16>().ok())?;
            Some(percentage(percent, of, rounding))
        }
    }
}

pub(crate) fn percentage(percent: u16, of: i32, rounding: Rounding) -> i32 {
    let product = i64::from(percent) * i64::from(of);
    let share = match rounding {
        Rounding::Up => (product + 99) / 100,
        Rounding::Down => product / 100,
    };
    i32::try_from(share).unwrap_or(i32::MAX)
}

/// As it was given.
pub(crate) fn text(value: &IntOrString) -> String {
    match value {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => text.clone(),
    }
}
