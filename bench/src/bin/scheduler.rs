//! How fast the scheduler binds pods: on our own API server in one process, as in `orlop up`, or beside kube-scheduler on a
//! real kube-apiserver with its etcd.
//!
//! ```text
//! cargo run --release -p bench --bin scheduler
//! cargo run --release -p bench --bin scheduler -- --store folder --running --shapes plain
//! ORLOP_PEERS=$(e2e/peers/build --dir) cargo run --release -p bench --bin scheduler -- --compare
//! ... --compare --shapes plain --arrivals stream --rate 200 --pods 3000
//! ```
//!
//! Each line is a run of its own. With a *backlog* all pods are there before the scheduler starts: bindings per second are
//! its own. As a *stream* they are created while it runs, as fast as the server takes them or at a `--rate`: P50 and P95
//! are from a pod's creation to its binding, both as one watch sees them. CPU and peak memory are those of the whole process on our own
//! server (server, load and watch included), and of the scheduler alone on a real one, whose own CPU is in the column
//! `server`. Requests are per pod, without the creation of the pods. With `--compare` the last lines have, per load,
//! what ours has for each that kube-scheduler has. These compare the same work only where `requests` is near 1: under a
//! backlog ours writes one event at a time and drops those that wait too long, while kube-scheduler writes one per pod.
//! At a `--rate` that both keep up with, both write all.
#![expect(clippy::print_stdout, reason = "figures go to standard output")]

use std::path::PathBuf;

use anyhow::Result;
use bench::controllers::plane::{Plane, Store, clients};
use bench::controllers::program::{Subject, Whose};
use bench::controllers::table::table;
use bench::controllers::{apart, told};
use bench::rounds::{self, in_turns, own_profile};
use bench::scheduler::{Load, Measured, Shape, measure};
use clap::{Parser, ValueEnum as _};

/// Measures the scheduler.
#[derive(Parser)]
struct Arguments {
    /// How many pods.
    #[arg(long, default_value_t = 10_000)]
    pods: usize,
    /// How many hollow nodes.
    #[arg(long, default_value_t = 100)]
    nodes: usize,
    /// What the pods ask for.
    #[arg(long, value_delimiter = ',', default_value = "plain,preferred,required,taints")]
    shapes: Vec<Shape>,
    /// How the pods come.
    #[arg(long, value_delimiter = ',', default_value = "backlog,stream")]
    arrivals: Vec<Arrival>,
    /// Pods per second of a stream; 0 is as fast as the server takes them.
    #[arg(long, default_value_t = 0)]
    rate: u32,
    /// Where our own server keeps its objects.
    #[arg(long, default_value = "memory")]
    store: Store,
    /// The nodes say of each pod that it runs: one more write.
    #[arg(long)]
    running: bool,
    /// On a real server, ours and then kube-scheduler.
    #[arg(long)]
    compare: bool,
    /// How often both of a comparison are measured, in turns.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// One run on our own server, told to the process that asked.
    #[arg(long, hide = true)]
    inside: bool,
    /// Be our scheduler on the server of this kubeconfig.
    #[arg(long, hide = true)]
    serve: Option<PathBuf>,
}

/// How the pods come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Arrival {
    /// Before the scheduler starts.
    Backlog,
    /// While it runs.
    Stream,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Arguments { pods, nodes, shapes, arrivals, rate, store, running, compare, rounds, inside, serve } =
        Arguments::parse();
    if let Some(kubeconfig) = serve {
        return Subject::Scheduler.run(clients(&kubeconfig, "kube-scheduler").await?).await;
    }
    let loads = shapes.into_iter().flat_map(|shape| {
        arrivals.iter().map(move |arrival| {
            let backlog = *arrival == Arrival::Backlog;
            Load { pods, nodes, shape, backlog, rate, running }
        })
    });
    if inside {
        let plane = Plane::embedded(store).await?;
        for load in loads {
            println!("{}", told(&measure(&plane, load, Whose::Inside).await?)?);
        }
        return Ok(());
    }
    let (mut rows, mut ratios) = (Vec::new(), Vec::new());
    for load in loads {
        if compare {
            let one = async |whose| measure(&Plane::real()?, load, whose).await;
            let pairs = in_turns(rounds, async || one(Whose::Ours).await, async || one(Whose::Theirs).await).await?;
            for (ours, theirs) in &pairs {
                rows.push(row("orlop", load, ours));
                rows.push(row("kube-scheduler", load, theirs));
            }
            ratios.push(ratio(load, &pairs));
        } else {
            rows.push(row("orlop, embedded", load, &apart(&arguments(load, store))?));
        }
    }
    println!("{pods} pods, {nodes} nodes, {} build", own_profile());
    print!("{}", table(&HEADS, &rows));
    if !ratios.is_empty() {
        println!("\nours for each of theirs: the median of {rounds} rounds, and what half of them lie between");
        print!("{}", table(&RATIO_HEADS, &ratios));
    }
    Ok(())
}

fn arguments(load: Load, store: Store) -> Vec<String> {
    let Load { pods, nodes, shape, backlog, rate, running } = load;
    let value =
        |value: Option<clap::builder::PossibleValue>| value.map_or_else(String::new, |one| one.get_name().into());
    let mut arguments = vec![
        "--inside".to_owned(),
        format!("--pods={pods}"),
        format!("--nodes={nodes}"),
        format!("--shapes={}", shape.name()),
        format!("--arrivals={}", if backlog { "backlog" } else { "stream" }),
        format!("--rate={rate}"),
        format!("--store={}", value(store.to_possible_value())),
    ];
    if running {
        arguments.push("--running".to_owned());
    }
    arguments
}

const HEADS: [&str; 9] =
    ["scheduler", "load", "bindings/s", "P50 ms", "P95 ms", "CPU s", "peak MiB", "server CPU s", "requests per pod"];
const RATIO_HEADS: [&str; 7] = ["load", "bindings/s", "P95", "CPU", "peak memory", "requests", ""];

fn row(who: &str, load: Load, measured: &Measured) -> Vec<String> {
    let Measured { bindings_per_second, p50_ms, p95_ms, usage, server_cpu_seconds, requests } = measured;
    let wait = |millis: &f64| if load.backlog { "-".to_owned() } else { format!("{millis:.1}") };
    vec![
        who.to_owned(),
        name(load),
        format!("{bindings_per_second:.0}"),
        wait(p50_ms),
        wait(p95_ms),
        format!("{:.2}", usage.cpu_seconds),
        format!("{:.0}", usage.peak_mib),
        if *server_cpu_seconds > 0.0 { format!("{server_cpu_seconds:.1}") } else { "-".to_owned() },
        requests.per(load.pods),
    ]
}

fn ratio(load: Load, pairs: &[(Measured, Measured)]) -> Vec<String> {
    let ratio = |of: fn(&Measured) -> f64| {
        let ratios = rounds::ratios(pairs.iter().map(|(ours, theirs)| (of(ours), of(theirs))));
        ratios.map_or_else(|| "-".to_owned(), |ratios| ratios.to_string())
    };
    vec![
        name(load),
        ratio(|one| one.bindings_per_second),
        if load.backlog { "-".to_owned() } else { ratio(|one| one.p95_ms) },
        ratio(|one| one.usage.cpu_seconds),
        ratio(|one| one.usage.peak_mib),
        ratio(|one| one.requests.total()),
        String::new(),
    ]
}

fn name(load: Load) -> String {
    format!("{}, {}", load.shape.name(), if load.backlog { "backlog" } else { "stream" })
}
