//! Runs tests that not every machine can run. What is left out is counted as ignored, and told with its reason.

use std::fmt::Display;
use std::future::Future;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::needs::Need;
use crate::test_host;

/// Which part of a program's tests is run, as `1of2`: several processes share the tests of a long program.
const PART: &str = "ORLOP_TEST_PART";

/// Tests by their functions' names: `tests![one, async other]`, the latter on a runtime of its own.
#[macro_export]
macro_rules! tests {
    (@ [$($done:expr,)*]) => { vec![$($done),*] };
    (@ [$($done:expr,)*] async $name:path $(, $($rest:tt)*)?) => {
        $crate::tests!(@ [$($done,)* $crate::Test::new(stringify!($name), || $crate::harness::block_on($name())),]
            $($($rest)*)?)
    };
    (@ [$($done:expr,)*] $name:path $(, $($rest:tt)*)?) => {
        $crate::tests!(@ [$($done,)* $crate::Test::new(stringify!($name), || $name()),] $($($rest)*)?)
    };
    ($($all:tt)*) => { $crate::tests!(@ [] $($all)*) };
}

/// One test.
pub struct Test {
    name: String,
    needs: Vec<Need>,
    run: Box<dyn FnOnce() -> Result<(), Failed> + Send>,
}

impl Test {
    /// A test that fails by a panic, or by what it returns.
    pub fn new<O: Outcome>(name: impl Into<String>, run: impl FnOnce() -> O + Send + 'static) -> Self {
        // Spaces are how paths are printed by some compilers.
        let name = name.into().replace(' ', "");
        Self { name, needs: Vec::new(), run: Box::new(|| run().judge()) }
    }

    /// The same test, where a machine has this.
    #[must_use]
    pub fn needing(mut self, needs: &[Need]) -> Self {
        self.needs.extend(needs);
        self
    }
}

/// How a test may end.
pub trait Outcome {
    /// Whether it was well.
    ///
    /// # Errors
    /// With why not.
    fn judge(self) -> Result<(), Failed>;
}

impl Outcome for () {
    fn judge(self) -> Result<(), Failed> {
        Ok(())
    }
}

impl<E: Display> Outcome for Result<(), E> {
    fn judge(self) -> Result<(), Failed> {
        self.map_err(|error| format!("{error:#}").into())
    }
}

/// Runs an asynchronous test to its end.
pub fn block_on<O>(test: impl Future<Output = O>) -> O {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).enable_all().build().unwrap().block_on(test)
}

/// How the tests of one program are run.
#[derive(Default)]
pub struct Harness {
    needs: Vec<Need>,
    own_machine: bool,
    one_by_one: bool,
}

impl Harness {
    /// What every test needs.
    #[must_use]
    pub fn needing(mut self, needs: &[Need]) -> Self {
        self.needs.extend(needs);
        self
    }

    /// Tests that look at the whole machine, or change it, get one of their own: see [`test_host`].
    #[must_use]
    pub fn on_own_machine(mut self) -> Self {
        self.own_machine = true;
        self
    }

    /// Tests that would see each other.
    #[must_use]
    pub fn one_by_one(mut self) -> Self {
        self.one_by_one = true;
        self
    }

    /// Runs them, as the arguments of this process say.
    #[must_use]
    pub fn run(self, mut tests: Vec<Test>) -> ExitCode {
        if let Ok(part) = std::env::var(PART) {
            tests = Part::read(&part).of(tests);
        }
        let mut arguments = Arguments::from_args();
        if self.one_by_one {
            arguments.test_threads = Some(1);
        }
        // What is ignored here cannot be run, whoever asks for it.
        (arguments.ignored, arguments.include_ignored) = (false, false);
        let judged: Vec<(Test, Option<String>)> = tests
            .into_iter()
            .map(|test| {
                let missing = self.needs.iter().chain(&test.needs).find_map(|need| need.missing());
                (test, missing)
            })
            .collect();
        let runs = |test: &Test| arguments.filter.as_ref().is_none_or(|filter| test.name.contains(filter));
        let is_any = judged.iter().any(|(test, missing)| missing.is_none() && runs(test));
        // Without the rights to make one, what needs no rights can be run as well.
        let can_have_own = rustix::process::geteuid().is_root();
        if self.own_machine && can_have_own && is_any && !arguments.list && !test_host::is_inside() {
            return test_host::run_inside();
        }
        let trials = judged.into_iter().map(|(test, missing)| {
            let trial = Trial::test(test.name, test.run).with_ignored_flag(missing.is_some());
            trial.with_kind(missing.unwrap_or_default())
        });
        libtest_mimic::run(&arguments, trials.collect()).exit_code()
    }
}

/// One of several parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    number: usize,
    count: usize,
}

impl Part {
    /// A part that is misspelled must not pass for all tests, or for none.
    fn read(text: &str) -> Self {
        let parts = text.split_once("of").and_then(|(number, count)| Some((number.parse().ok()?, count.parse().ok()?)));
        match parts {
            Some((number, count)) if (1..=count).contains(&number) => Self { number, count },
            _ => panic!("{PART}={text} is not a part such as 1of2"),
        }
    }

    /// Its share of the tests. Neighbours, which are often alike, go to different parts.
    fn of<T>(self, all: Vec<T>) -> Vec<T> {
        let is_mine = |index: &usize| index % self.count == self.number - 1;
        all.into_iter().enumerate().filter(|(index, _)| is_mine(index)).map(|(_, one)| one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_is_in_exactly_one_part() {
        for count in 1..5 {
            let mut all: Vec<u32> =
                (1..=count).flat_map(|number| Part { number, count }.of((0..7).collect::<Vec<u32>>())).collect();
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2, 3, 4, 5, 6]);
        }
        assert_eq!(Part::read("2of3"), Part { number: 2, count: 3 });
    }

    #[test]
    fn a_part_that_is_not_there_is_refused() {
        for wrong in ["", "0of2", "3of2", "1", "of", "1/2", "-1of2"] {
            assert!(std::panic::catch_unwind(|| Part::read(wrong)).is_err(), "{wrong}");
        }
    }
}
