//! Many seeds on all cores. `ORLOP_SIM_SEED=7` runs one, `make soak` many more.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use simulation::{Options, Progress, check};

/// Runs each seed twice and tells what came about; panics with the report of the first that fails.
pub(crate) fn check_seeds(usual: usize, options: impl Fn(u64) -> Options + Sync) {
    let seeds = testkit::soak::seeds("ORLOP_SIM_SEED", usual);
    let (next, failed) = (AtomicU64::new(seeds.start), Mutex::new(None));
    let all = Mutex::new(Progress::default());
    let work = || {
        while failed.lock().unwrap().is_none() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            match check(&options(seed)) {
                Ok(outcome) => *all.lock().unwrap() += outcome.progress,
                Err(report) => *failed.lock().unwrap() = Some(report),
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    if let Some(report) = failed.into_inner().unwrap() {
        panic!("{report}");
    }
    println!("{} seeds: {}", seeds.end - seeds.start, all.into_inner().unwrap());
}
