//! Many seeds on all cores. `ORLOP_SIM_SEED=7` runs one, `make soak` many more.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use simulation::{Options, check};

/// Runs each seed twice; panics with the report of the first that fails.
pub(crate) fn check_seeds(usual: usize, options: impl Fn(u64) -> Options + Sync) {
    let seeds = testkit::soak::seeds("ORLOP_SIM_SEED", usual);
    let (next, failed) = (AtomicU64::new(seeds.start), Mutex::new(None));
    let work = || {
        while failed.lock().unwrap().is_none() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            if let Err(report) = check(&options(seed)) {
                failed.lock().unwrap().get_or_insert(report);
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
}
