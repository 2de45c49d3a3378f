//! The simulation by the dozen: `cargo run --release -p bench --bin sim -- --seeds 1000`, and with virtual machines by
//! `--scene virtual-machines`.
//!
//! Runs seeds on all cores, prints how many there were per second and how many requests and simulated seconds that was, and
//! stops with the trace of the first seed in which something did not hold.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::bail;
use clap::{Parser, ValueEnum};
use serde_json::json;
use simulation::{Options, check, run};

/// Run many seeds of the simulation.
#[derive(Parser)]
struct Arguments {
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// Run each seed twice and compare the requests.
    #[arg(long)]
    twice: bool,
    /// What the user works with.
    #[arg(long, value_enum, default_value_t = Scene::Deployments)]
    scene: Scene,
}

#[derive(Clone, Copy, ValueEnum)]
enum Scene {
    Deployments,
    VirtualMachines,
}

impl Scene {
    fn options(self, seed: u64) -> Options {
        match self {
            Self::Deployments => Options::seeded(seed),
            Self::VirtualMachines => Options::virtual_machines(seed),
        }
    }
}

#[expect(clippy::disallowed_methods, clippy::print_stdout, reason = "a figure is a time, and is printed")]
fn main() -> anyhow::Result<()> {
    let Arguments { from, seeds, twice, scene } = Arguments::parse();
    let started = Instant::now();
    let (next, requests, simulated) = (AtomicU64::new(from), AtomicU64::new(0), AtomicU64::new(0));
    let failed = Mutex::new(None);
    let fail = |report: String| {
        next.store(u64::MAX, Ordering::Relaxed);
        if let Ok(mut failed) = failed.lock() {
            failed.get_or_insert(report);
        }
    };
    let work = || loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= from.saturating_add(seeds) {
            return;
        }
        let options = scene.options(seed);
        // A run that fails is repeated by the check, which tells how.
        let outcome = match run(&options) {
            Ok(outcome) if outcome.violations.is_empty() && !twice => Ok(outcome),
            _ => check(&options),
        };
        match outcome {
            Ok(outcome) => {
                requests.fetch_add(outcome.log.requests() as u64, Ordering::Relaxed);
                simulated.fetch_add(outcome.lasted.0 / 1000, Ordering::Relaxed);
            }
            Err(report) => return fail(report),
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    if let Ok(Some(report)) = failed.into_inner() {
        bail!("{report}");
    }
    let seconds = started.elapsed().as_secs_f64();
    let figures = json!({
        "figure": "simulation",
        "scene": scene.to_possible_value().map(|value| value.get_name().to_owned()),
        "profile": bench::rounds::own_profile(),
        "seeds": seeds,
        "seconds": seconds,
        "seeds_per_second": seeds as f64 / seconds,
        "requests": requests.into_inner(),
        "simulated_seconds": simulated.into_inner(),
    });
    println!("{figures}");
    Ok(())
}
