//! Many seeds on all cores. `ORLOP_SIM_SEED=7` runs one, `ORLOP_SIM_SEED=100..200` a hundred, `make seeds` thousands.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use mimalloc::MiMalloc;
use simulation::{Options, Outcome, Progress, check, check_once};
use tokio::time::Instant;

/// A run allocates and frees all the time, in one thread: the system's allocator takes a third of it.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Up to so many seeds run twice each; of more, every tenth does: what is not repeatable shows in many of them.
const EACH_TWICE: u64 = 100;
/// A run of many is told about so often.
const TELL: Duration = Duration::from_secs(10);
/// After so many failures more of them tell nothing new.
const MOST_FAILURES: usize = 10;

/// Runs all seeds and tells what came about; panics with the reports of those that fail.
pub(crate) fn check_seeds(usual: usize, options: impl Fn(u64) -> Options + Sync) {
    let seeds = testkit::soak::seeds("ORLOP_SIM_SEED", usual);
    let count = seeds.end - seeds.start;
    let (next, many) = (AtomicU64::new(seeds.start), Mutex::new(Many::new(count)));
    let work = || {
        while many.lock().unwrap().failures.len() < MOST_FAILURES {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let twice = count <= EACH_TWICE || seed % 10 == 0;
            let run = if twice { check } else { check_once };
            let outcome = run(&options(seed));
            many.lock().unwrap().add(outcome);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let mut many = many.into_inner().unwrap();
    println!("{many}");
    if many.failures.is_empty() {
        many.failures.extend(too_little(u64::from(many.done), many.progress));
    }
    if !many.failures.is_empty() {
        panic!("{}", many.failures.join("\n\n"));
    }
}

/// Of fewer seeds, chance alone may make nothing end.
const ENOUGH: u64 = 10;
/// Of so many that were made, one must have run.
const MADE_FOR_ONE_THAT_RAN: usize = 4;

/// Why many seeds together have shown too little: rules about what runs and ends hold wherever nothing does.
fn too_little(seeds: u64, progress: Progress) -> Option<String> {
    let Progress { made, ran, ended } = progress;
    let enough = ended > 0 && ran * MADE_FOR_ONE_THAT_RAN >= made;
    (seeds >= ENOUGH && !enough).then(|| format!("{seeds} seeds came to too little: {progress}"))
}

#[test]
fn seeds_in_which_hardly_anything_happens_are_found() {
    let progress = |made, ran, ended| Progress { made, ran, ended };
    assert_eq!(too_little(10, progress(40, 10, 1)), None);
    assert_eq!(too_little(9, progress(40, 1, 0)), None, "too few to tell");
    for poor in [progress(40, 40, 0), progress(40, 9, 9), progress(0, 0, 0)] {
        assert!(too_little(10, poor).is_some(), "{poor}");
    }
}

/// What many seeds have come to so far.
struct Many {
    count: u64,
    done: u32,
    progress: Progress,
    failures: Vec<String>,
    began: Instant,
    told: Instant,
}

impl Many {
    fn new(count: u64) -> Self {
        let now = Instant::now();
        Self { count, done: 0, progress: Progress::default(), failures: Vec::new(), began: now, told: now }
    }

    fn add(&mut self, outcome: Result<Outcome, String>) {
        self.done += 1;
        match outcome {
            Ok(outcome) => self.progress += outcome.progress,
            Err(report) => {
                // Whoever waits for thousands may begin with the first that failed.
                println!(
                    "{}\n{}",
                    report.lines().next().unwrap_or_default(),
                    report.lines().last().unwrap_or_default()
                );
                self.failures.push(report);
            }
        }
        if self.told.elapsed() >= TELL {
            self.told = Instant::now();
            println!("{self}");
        }
    }
}

impl std::fmt::Display for Many {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { count, done, progress, failures, began, .. } = self;
        let rate = f64::from(*done) / began.elapsed().as_secs_f64().max(0.001);
        write!(f, "{done} of {count} seeds, {rate:.1} a second, {} failed: {progress}", failures.len())
    }
}
