//! The factor on the memory overhead: a decimal number from 1 up.

use std::str::FromStr;

use api::quantity::Amount;

/// A factor, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio(i64);

/// A text that is no factor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a number from 1 to 1000, such as 1.5; ignoring it")]
pub struct RatioError(String);

impl Ratio {
    /// `amount` times the factor.
    #[must_use]
    pub fn of(self, amount: Amount) -> Amount {
        amount.scaled(self.0, 1000).unwrap_or(amount)
    }
}

impl FromStr for Ratio {
    type Err = RatioError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || RatioError(text.to_owned());
        // A suffix would be a size, not a factor.
        if !text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return Err(wrong());
        }
        let amount: Amount = text.parse().map_err(|_| wrong())?;
        let thousandths = i64::try_from(amount.milli_units()).map_err(|_| wrong())?;
        if (1000..=1_000_000).contains(&thousandths) { Ok(Self(thousandths)) } else { Err(wrong()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_multiplies() {
        let ratio: Ratio = "1.25".parse().unwrap();
        assert_eq!(ratio.of(Amount::bytes(1 << 20)), Amount::bytes(1_310_720));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "0.5", "1.5Gi", "-2", "two", "1e3", "1001", "1.2.3"] {
            assert!(text.parse::<Ratio>().is_err(), "{text:?} was taken");
        }
    }
}
