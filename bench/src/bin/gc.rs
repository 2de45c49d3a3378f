//! How fast the garbage collector removes trees of objects: on our own API server in one process, as in `orlop up`, or
//! beside kube-controller-manager's on a real kube-apiserver with its etcd.
//!
//! ```text
//! cargo run --release -p bench --bin gc
//! cargo run --release -p bench --bin gc -- --store folder --owners 10
//! ORLOP_PEERS=$(e2e/peers/build --dir) cargo run --release -p bench --bin gc -- --compare
//! ```
//!
//! Each owner has ten children and each of these nine, all config maps. The time is from the deletion of the first owner
//! until a watch has seen that the last object is gone. Each line is a run of its own. CPU and peak memory are those of
//! the whole process on our own server (server, load and watch included), and of the collector alone on a real one, whose
//! own CPU is in the column `server`. Bytes per object are what the collector's memory grew by when it started on all
//! these objects; on a real server, over its start on none. Requests are per object, without the deletion of the owners.
//! With `--compare` the last lines have, per policy, what ours has for each that kube-controller-manager has.
#![expect(clippy::print_stdout, reason = "figures go to standard output")]

use std::path::PathBuf;

use anyhow::Result;
use bench::controllers::plane::{Plane, Store, clients};
use bench::controllers::program::{Subject, Whose};
use bench::controllers::table::table;
use bench::controllers::{apart, told};
use bench::garbage::{Load, Measured, Policy, measure};
use bench::rounds::{self, in_turns, own_profile};
use clap::{Parser, ValueEnum as _};

/// Measures the garbage collector.
#[derive(Parser)]
struct Arguments {
    /// How many trees, of 101 objects each.
    #[arg(long, default_value_t = 100)]
    owners: usize,
    /// How they go.
    #[arg(long, value_delimiter = ',', default_value = "background,foreground")]
    policies: Vec<Policy>,
    /// Where our own server keeps its objects.
    #[arg(long, default_value = "memory")]
    store: Store,
    /// On a real server, ours and then that of kube-controller-manager.
    #[arg(long)]
    compare: bool,
    /// How often both of a comparison are measured, in turns.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// One run on our own server, told to the process that asked.
    #[arg(long, hide = true)]
    inside: bool,
    /// Be our collector on the server of this kubeconfig.
    #[arg(long, hide = true)]
    serve: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Arguments { owners, policies, store, compare, rounds, inside, serve } = Arguments::parse();
    if let Some(kubeconfig) = serve {
        return Subject::Garbage.run(clients(&kubeconfig, "kube-controller-manager").await?).await;
    }
    let loads: Vec<Load> = policies.into_iter().map(|policy| Load { owners, policy }).collect();
    if inside {
        let plane = Plane::embedded(store).await?;
        for load in loads {
            println!("{}", told(&measure(&plane, load, Whose::Inside).await?)?);
        }
        return Ok(());
    }
    let (mut rows, mut ratios) = (Vec::new(), Vec::new());
    for load in &loads {
        if compare {
            let one = async |whose| measure(&Plane::real()?, *load, whose).await;
            let pairs = in_turns(rounds, async || one(Whose::Ours).await, async || one(Whose::Theirs).await).await?;
            for (ours, theirs) in &pairs {
                rows.push(row("orlop", *load, ours));
                rows.push(row("kube-controller-manager", *load, theirs));
            }
            ratios.push(ratio(*load, &pairs));
        } else {
            rows.push(row("orlop, embedded", *load, &apart(&arguments(*load, store))?));
        }
    }
    println!(
        "{} objects in {owners} trees, {} build",
        Load { owners, policy: Policy::Background }.objects(),
        own_profile()
    );
    print!("{}", table(&HEADS, &rows));
    if !ratios.is_empty() {
        println!("\nours for each of theirs: the median of {rounds} rounds, and what half of them lie between");
        print!("{}", table(&RATIO_HEADS, &ratios));
    }
    Ok(())
}

fn arguments(load: Load, store: Store) -> Vec<String> {
    let Load { owners, policy } = load;
    let store = store.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    vec![
        "--inside".to_owned(),
        format!("--owners={owners}"),
        format!("--policies={}", policy.name()),
        format!("--store={store}"),
    ]
}

const HEADS: [&str; 9] = [
    "collector",
    "policy",
    "seconds",
    "objects/s",
    "CPU s",
    "peak MiB",
    "bytes/object",
    "server CPU s",
    "requests per object",
];
const RATIO_HEADS: [&str; 8] =
    ["policy", "seconds", "CPU", "peak memory", "bytes/object", "server CPU", "requests", ""];

fn row(who: &str, load: Load, measured: &Measured) -> Vec<String> {
    let Measured { seconds, usage, bytes_per_object, server_cpu_seconds, requests } = measured;
    #[expect(clippy::cast_precision_loss, reason = "counts are small")]
    let rate = load.objects() as f64 / seconds.max(f64::EPSILON);
    vec![
        who.to_owned(),
        load.policy.name().to_owned(),
        format!("{seconds:.2}"),
        format!("{rate:.0}"),
        format!("{:.2}", usage.cpu_seconds),
        format!("{:.0}", usage.peak_mib),
        format!("{bytes_per_object:.0}"),
        if *server_cpu_seconds > 0.0 { format!("{server_cpu_seconds:.1}") } else { "-".to_owned() },
        requests.per(load.objects()),
    ]
}

fn ratio(load: Load, pairs: &[(Measured, Measured)]) -> Vec<String> {
    let ratio = |of: fn(&Measured) -> f64| {
        let ratios = rounds::ratios(pairs.iter().map(|(ours, theirs)| (of(ours), of(theirs))));
        ratios.map_or_else(|| "-".to_owned(), |ratios| ratios.to_string())
    };
    vec![
        load.policy.name().to_owned(),
        ratio(|one| one.seconds),
        ratio(|one| one.usage.cpu_seconds),
        ratio(|one| one.usage.peak_mib),
        ratio(|one| one.bytes_per_object),
        ratio(|one| one.server_cpu_seconds),
        ratio(|one| one.requests.total()),
        String::new(),
    ]
}
