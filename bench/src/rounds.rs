//! Rounds of a comparison: who begins changes from round to round, and a figure is told with its spread.

use std::path::Path;

use serde_json::{Value, json};

/// The middle of some numbers, and what half of them lie between.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The middle one.
    pub median: f64,
    /// A quarter is below.
    pub lower: f64,
    /// A quarter is above.
    pub upper: f64,
    /// How many there were.
    pub rounds: usize,
}

impl Spread {
    /// Of these numbers; none of none.
    #[must_use]
    pub fn of(numbers: &[f64]) -> Option<Self> {
        let mut sorted = numbers.to_vec();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        // Between two numbers, in proportion.
        let quantile = |quarters: usize| {
            let (whole, rest) = (last * quarters / 4, last * quarters % 4);
            let (low, high) = (sorted[whole], sorted[(whole + 1).min(last)]);
            low + (high - low) * f64::from(u32::try_from(rest).unwrap_or_default()) / 4.0
        };
        Some(Self { median: quantile(2), lower: quantile(1), upper: quantile(3), rounds: sorted.len() })
    }

    /// As a part of a line of JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        let round = |number: f64| (number * 1000.0).round() / 1000.0;
        json!({ "median": round(self.median), "quartiles": [round(self.lower), round(self.upper)], "rounds": self.rounds })
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { median, lower, upper, rounds } = self;
        if *rounds == 1 {
            return write!(formatter, "{median:.2}");
        }
        write!(formatter, "{median:.2} ({lower:.2}-{upper:.2})")
    }
}

/// The ratios of pairs, one of each round, where there is something to divide by.
#[must_use]
pub fn ratios(pairs: impl IntoIterator<Item = (f64, f64)>) -> Option<Spread> {
    let ratios = pairs.into_iter().filter(|(_, theirs)| *theirs > 0.0).map(|(ours, theirs)| ours / theirs);
    Spread::of(&ratios.collect::<Vec<_>>())
}

/// Measures one and another as often as wanted, in turns: whatever a machine does in the course of a run, such as growing
/// warm, meets both.
///
/// # Errors
/// When one cannot be measured.
pub async fn in_turns<T, E>(
    rounds: usize,
    mut ours: impl AsyncFnMut() -> Result<T, E>,
    mut theirs: impl AsyncFnMut() -> Result<T, E>,
) -> Result<Vec<(T, T)>, E> {
    let mut pairs = Vec::new();
    for round in 0..rounds {
        pairs.push(if round % 2 == 0 {
            let ours = ours().await?;
            (ours, theirs().await?)
        } else {
            let theirs = theirs().await?;
            (ours().await?, theirs)
        });
    }
    Ok(pairs)
}

/// How a program was built: the name of the profile, which is that of its directory.
#[must_use]
pub fn profile(program: &Path) -> String {
    let folders = program.parent().into_iter().flat_map(Path::ancestors);
    let named = folders.filter_map(Path::file_name).find(|name| *name != "deps");
    named.map_or_else(|| "unknown".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// How this program was built. Figures of a debug build are not worth much: that is told, once.
#[must_use]
#[expect(clippy::print_stderr, reason = "whoever reads the figures must know")]
pub fn own_profile() -> String {
    if cfg!(debug_assertions) {
        eprintln!("this is a debug build: its figures say nothing about a release");
        return "debug".to_owned();
    }
    std::env::current_exe().map_or_else(|_| "unknown".to_owned(), |program| profile(&program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_numbers_lie_between_the_quartiles() {
        let spread = Spread::of(&[5.0, 1.0, 3.0, 2.0, 4.0]).unwrap();
        assert_eq!(spread, Spread { median: 3.0, lower: 2.0, upper: 4.0, rounds: 5 });
        assert_eq!(Spread::of(&[1.0, 2.0]).unwrap(), Spread { median: 1.5, lower: 1.25, upper: 1.75, rounds: 2 });
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(spread.to_string(), "3.00 (2.00-4.00)");
        assert_eq!(spread.json(), json!({ "median": 3.0, "quartiles": [2.0, 4.0], "rounds": 5 }));
    }

    #[test]
    fn ratios_are_of_the_pairs_and_not_of_the_medians() {
        let spread = ratios([(2.0, 1.0), (8.0, 4.0), (9.0, 3.0)]).unwrap();
        assert_eq!((spread.median, spread.rounds), (2.0, 3));
        assert_eq!(ratios([(1.0, 0.0)]), None);
    }

    #[tokio::test]
    async fn each_begins_every_second_round() {
        let order = std::cell::RefCell::new(String::new());
        let note = async |who: char| {
            order.borrow_mut().push(who);
            Ok::<_, ()>(who)
        };
        let pairs = in_turns(3, async || note('o').await, async || note('t').await).await.unwrap();
        assert_eq!(pairs, [('o', 't'); 3]);
        assert_eq!(*order.borrow(), "ottoot");
    }

    #[test]
    fn a_program_says_by_its_place_how_it_was_built() {
        for (path, expected) in
            [("target/release/orlop", "release"), ("/a/target/debug/deps/boot-12", "debug"), ("orlop", "unknown")]
        {
            assert_eq!(profile(Path::new(path)), expected);
        }
    }
}
