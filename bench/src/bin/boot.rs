//! How long a guest takes to run and to its own userland, beside bare QEMU with the same arguments in the same run, and
//! what that costs: for `orlop run` and for `orlop up`. Needs root, as `orlop up` does.
//!
//! `cargo build --release -p orlop && cargo run --release -p bench --bin boot [RUNS]`
#![expect(clippy::print_stdout, reason = "figures go to standard output")]

use anyhow::{Result, bail};
use bench::boot::machine::Machine;
use bench::boot::{cost, foreground, many, program, start};
use bench::rounds::profile;
use clap::{Parser, ValueEnum};
use serde_json::{Value, json};

/// Figures of starting guests.
#[derive(Parser)]
struct Arguments {
    /// Runs that a median is taken of.
    #[arg(default_value_t = 3)]
    runs: usize,
    /// What is measured.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "run,memory,start,many,hollow")]
    parts: Vec<Part>,
    /// Real VMs that are created at once.
    #[arg(long, default_value_t = 20)]
    many: usize,
    /// VMs on hollow nodes.
    #[arg(long, default_value_t = 500)]
    hollow: usize,
    /// Hollow nodes.
    #[arg(long, default_value_t = 10)]
    hollow_nodes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// `orlop run`.
    Run,
    /// The memory of `orlop up`.
    Memory,
    /// VMs of `orlop up`, one after the other.
    Start,
    /// Many at once.
    Many,
    /// Many that only the API knows.
    Hollow,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let profile = profile(&program()?);
    let mut tell = |mut figure: Value| {
        figure["profile"] = profile.clone().into();
        println!("{figure}");
    };
    if arguments.parts.contains(&Part::Run) {
        foreground::measure(arguments.runs, &mut tell)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        // Whoever is interrupted cleans up, too.
        tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
            measured = measure(&arguments, &mut tell) => measured,
        }
    })
}

async fn measure(arguments: &Arguments, tell: &mut dyn FnMut(Value)) -> Result<()> {
    let Arguments { runs, parts, many: count, hollow, hollow_nodes } = arguments;
    let has = |part: Part| parts.contains(&part);
    if has(Part::Memory) || has(Part::Start) || has(Part::Many) {
        let machine = Machine::up(&[]).await?;
        tell(json!({ "figure": "orlop up to ready", "ms": machine.started().as_millis() }));
        if has(Part::Memory) {
            cost::measure(&machine, tell).await?;
        }
        if has(Part::Start) {
            start::measure(&machine, *runs, tell).await?;
        }
        if has(Part::Many) {
            many::at_once(&machine, *count, tell).await?;
        }
    }
    if has(Part::Hollow) {
        many::hollow(*hollow, *hollow_nodes, tell).await?;
    }
    Ok(())
}
