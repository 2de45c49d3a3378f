//! `orlop up` with real guests, pods, networks and disks, one test after the other, on a machine of their own: after each,
//! it must be as it was before.
#![expect(
    clippy::disallowed_methods,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and looks at a real machine in real time"
)]

#[path = "up/accelerators.rs"]
mod accelerators;
#[path = "up/browsing.rs"]
mod browsing;
#[path = "up/copying.rs"]
mod copying;
#[path = "up/exporting.rs"]
mod exporting;
#[path = "up/guests.rs"]
mod guests;
#[path = "up/images.rs"]
mod images;
#[path = "up/importing.rs"]
mod importing;
#[path = "up/killing.rs"]
mod killing;
#[path = "up/leftovers.rs"]
mod leftovers;
#[path = "up/logging.rs"]
mod logging;
#[path = "up/looking.rs"]
mod looking;
#[path = "up/machines.rs"]
mod machines;
#[path = "up/moving.rs"]
mod moving;
#[path = "up/networking.rs"]
mod networking;
#[path = "up/nodes.rs"]
mod nodes;
#[path = "up/operating.rs"]
mod operating;
#[path = "up/pods.rs"]
mod pods;
#[path = "up/room.rs"]
mod room;
#[path = "up/sockets.rs"]
mod sockets;
#[path = "up/storing.rs"]
mod storing;
#[path = "up/strategies.rs"]
mod strategies;
#[path = "up/streams.rs"]
mod streams;
#[path = "up/test_host.rs"]
mod test_host;
#[path = "up/tiny.rs"]
mod tiny;
#[path = "up/ways.rs"]
mod ways;

use testkit::{Harness, Need};

use leftovers::Leftovers;

type Test = fn() -> anyhow::Result<()>;

fn main() -> std::process::ExitCode {
    let all = [
        looking::TESTS,
        operating::TESTS,
        accelerators::TESTS,
        machines::TESTS,
        logging::TESTS,
        pods::TESTS,
        strategies::TESTS,
        networking::TESTS,
        storing::TESTS,
        room::TESTS,
        copying::TESTS,
        images::TESTS,
        importing::TESTS,
        exporting::TESTS,
        nodes::TESTS,
        moving::TESTS,
        ways::TESTS,
        streams::TESTS,
        killing::TESTS,
    ];
    let test = |(name, test): (&'static str, Test)| testkit::Test::new(name, move || run(test));
    let on_xfs = room::ON_XFS.iter().map(|one| test(*one).needing(&[Need::Xfs]));
    let long = streams::LONG.iter().map(|one| test(*one).needing(&[Need::Soak]));
    let tests = all.concat().into_iter().map(test).chain(on_xfs).chain(long);
    // What is left over is looked for on the whole machine: two tests at once would see each other's.
    let harness = Harness::default().needing(&[Need::Root, Need::Qemu, Need::Guest]).on_own_machine().one_by_one();
    harness.run(tests.collect())
}

fn run(test: Test) -> anyhow::Result<()> {
    let before = Leftovers::look()?;
    test()?;
    before.compare()
}
