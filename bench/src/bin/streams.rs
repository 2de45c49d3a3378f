//! What a forwarded port costs beside a plain relay of TCP in the same run, and how long a keystroke takes to a console and back.
//!
//! `cargo run --release -p bench --bin streams`
#![expect(clippy::print_stdout, reason = "figures go to standard output")]

use anyhow::Result;
use bench::rounds::own_profile;
use bench::streams::{Bench, Direction};
use clap::Parser;

/// Figures of streams.
#[derive(Parser)]
struct Arguments {
    /// Rounds of each comparison.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// What is sent in a round, in MiB.
    #[arg(long, default_value_t = 512)]
    mib: u64,
    /// Keys that are typed.
    #[arg(long, default_value_t = 2000)]
    keys: usize,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Arguments { rounds, mib, keys } = Arguments::parse();
    let profile = own_profile();
    let bench = Bench::start().await?;
    for direction in [Direction::Down, Direction::Up] {
        let mut figure = bench.port_forward(direction, mib, rounds).await?;
        figure["profile"] = profile.clone().into();
        println!("{figure}");
    }
    let mut figure = bench.keystroke(keys).await?;
    figure["profile"] = profile.into();
    println!("{figure}");
    bench.stop().await
}
