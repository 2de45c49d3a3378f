//! How fast an API server is, and how much memory it holds: ours, a real kube-apiserver with its etcd, or both in one run.
//!
//! ```text
//! cargo build --release -p orlop
//! cargo run --release -p bench --bin apiserver -- --embedded target/release/orlop
//! ORLOP_PEERS=$(e2e/peers/build --dir) cargo run --release -p bench --bin apiserver -- --compare target/release/orlop
//! cargo run --release -p bench --bin apiserver -- --kubeconfig ~/.kube/config
//! ```
#![expect(clippy::print_stdout, reason = "figures go to standard output")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use bench::apiserver::{Figure, Scale, Target, measure, ready};
use bench::rounds::{in_turns, own_profile, profile, ratios};
use clap::Parser;
use e2e::control_plane::ControlPlane;
use e2e::embedded::Embedded;
use e2e::http::Server;
use e2e::kubeconfig::Kubeconfig;
use serde_json::json;
use tokio::time::Instant;

/// Measures API servers.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    which: Which,
    /// How many objects the largest list has.
    #[arg(long, default_value_t = 10_000)]
    objects: usize,
    /// How many requests one figure takes.
    #[arg(long, default_value_t = 4_000)]
    requests: usize,
    /// How many clients there are at once.
    #[arg(long, default_value_t = 32)]
    clients: usize,
    /// How many events one figure of watches takes.
    #[arg(long, default_value_t = 500)]
    events: usize,
    /// How many seconds the mixed load takes.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// How often both servers of a comparison are measured, in turns.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// What is measured.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// Any server, which must be empty.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Our server, started from this program.
    #[arg(long)]
    embedded: Option<PathBuf>,
    /// Our server from this program and a real one, in turns; with the ratios of both.
    #[arg(long)]
    compare: Option<PathBuf>,
    /// A real server.
    #[arg(long)]
    real: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let Arguments { which, objects, requests, clients, events, seconds, rounds } = Arguments::parse();
    // The load comes from here: a slow client measures itself.
    let client = own_profile();
    println!("{}", json!({ "figure": "the client's own build", "profile": client }));
    let scale = Scale { objects, requests, clients, events, duration: Duration::from_secs(seconds) };
    let Which { kubeconfig, embedded, compare, real } = which;
    if let Some(path) = kubeconfig {
        let server = Server::new(&Kubeconfig::read(&path)?)?;
        let (processes, profile) = (Vec::new(), "unknown".into());
        run(Target { name: "given".into(), server, processes, started: None, profile }, &scale).await?;
    }
    if let Some(program) = embedded {
        ours(&program, &scale).await?;
    }
    if let Some(program) = compare {
        let pairs = in_turns(rounds, async || ours(&program, &scale).await, async || theirs(&scale).await).await?;
        let figures: BTreeSet<&String> = pairs.iter().flat_map(|(ours, _)| ours.keys()).collect();
        for figure in figures {
            let values = pairs.iter().filter_map(|(ours, theirs)| Some((*ours.get(figure)?, *theirs.get(figure)?)));
            if let Some(ratio) = ratios(values) {
                let (profile, server) = (profile(&program), "embedded beside kubernetes");
                println!(
                    "{}",
                    json!({ "figure": figure, "ratio": ratio.json(), "server": server, "profile": profile })
                );
            }
        }
    } else if real {
        theirs(&scale).await?;
    }
    Ok(())
}

async fn ours(program: &Path, scale: &Scale) -> Result<BTreeMap<String, f64>> {
    let start = Instant::now();
    let embedded = Embedded::begin(program, &[])?;
    let (server, started) = ready(&embedded.kubeconfig(), start).await?;
    let (name, processes) = ("embedded".into(), vec![embedded.process()]);
    run(Target { name, server, processes, started: Some(started), profile: profile(program) }, scale).await
}

async fn theirs(scale: &Scale) -> Result<BTreeMap<String, f64>> {
    let start = Instant::now();
    let plane = ControlPlane::begin()?;
    let (server, started) = ready(&plane.kubeconfig(), start).await?;
    let (name, processes) = ("kubernetes".into(), plane.processes().to_vec());
    run(Target { name, server, processes, started: Some(started), profile: "stripped, by Go".into() }, scale).await
}

async fn run(target: Target, scale: &Scale) -> Result<BTreeMap<String, f64>> {
    let mut figures = BTreeMap::new();
    let mut tell = |figure: Figure| {
        println!("{}", figure.line());
        figures.insert(figure.figure, figure.value);
    };
    measure(&target, scale, &mut tell).await?;
    Ok(figures)
}
