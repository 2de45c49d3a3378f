//! `orlop up` with real guests, pods, networks and disks, one test after the other: after each, the machine must be as it
//! was before.
#![expect(
    clippy::disallowed_methods,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and looks at a real machine in real time"
)]

#[path = "up/guests.rs"]
mod guests;
#[path = "up/images.rs"]
mod images;
#[path = "up/killing.rs"]
mod killing;
#[path = "up/leftovers.rs"]
mod leftovers;
#[path = "up/machine.rs"]
mod machine;
#[path = "up/networking.rs"]
mod networking;
#[path = "up/operating.rs"]
mod operating;
#[path = "up/pods.rs"]
mod pods;
#[path = "up/storing.rs"]
mod storing;
#[path = "up/strategies.rs"]
mod strategies;

use libtest_mimic::{Arguments, Conclusion, Failed, Trial};

use leftovers::Leftovers;

type Test = fn() -> anyhow::Result<()>;

fn main() -> std::process::ExitCode {
    let mut arguments = Arguments::from_args();
    // What is left over is looked for on the whole machine: two tests at once would see each other's.
    arguments.test_threads = Some(1);
    let all = [
        operating::TESTS,
        pods::TESTS,
        strategies::TESTS,
        networking::TESTS,
        storing::TESTS,
        images::TESTS,
        killing::TESTS,
    ];
    let trials = all.concat().into_iter().map(|(name, test)| Trial::test(name, move || run(test))).collect();
    let conclusion: Conclusion = libtest_mimic::run(&arguments, trials);
    conclusion.exit_code()
}

fn run(test: Test) -> Result<(), Failed> {
    let before = Leftovers::look().map_err(told)?;
    test().map_err(told)?;
    before.compare().map_err(told)
}

fn told(error: anyhow::Error) -> Failed {
    format!("{error:#}").into()
}
