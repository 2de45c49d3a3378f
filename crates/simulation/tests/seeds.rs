//! Some hundred seeds, each twice. `ORLOP_SIM_SEED=7` runs one, `ORLOP_SIM_SEEDS=1000` more.

use simulation::{Options, check};

const SEEDS: u64 = 200;

#[test]
fn what_must_hold_holds_for_every_seed() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match number("ORLOP_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("ORLOP_SIM_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        if let Err(report) = check(&Options::seeded(seed)) {
            panic!("{report}");
        }
    }
}
