//! How fast an API server is, and how much memory it holds: ours, a real kube-apiserver with its etcd, or both in one run.
//!
//! ```text
//! cargo build --release -p orlop
//! cargo run --release -p bench --bin apiserver -- --embedded target/release/orlop
//! ORLOP_PEERS=$(e2e/peers/build --dir) cargo run --release -p bench --bin apiserver -- --compare target/release/orlop
//! cargo run --release -p bench --bin apiserver -- --kubeconfig ~/.kube/config
//! ```
#![expect(clippy::print_stdout, reason = "figures go to standard output")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use bench::apiserver::{Figure, Scale, Target, measure, ready};
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
    /// Our server from this program, then a real one; with the ratio of both.
    #[arg(long)]
    compare: Option<PathBuf>,
    /// A real server.
    #[arg(long)]
    real: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let Arguments { which, objects, requests, clients, events, seconds } = Arguments::parse();
    let scale = Scale { objects, requests, clients, events, duration: Duration::from_secs(seconds) };
    let Which { kubeconfig, embedded, compare, real } = which;
    if let Some(path) = kubeconfig {
        let server = Server::new(&Kubeconfig::read(&path)?)?;
        run(Target { name: "given".into(), server, processes: Vec::new(), started: None }, &scale).await?;
    }
    if let Some(program) = embedded {
        ours(&program, &scale).await?;
    }
    if let Some(program) = compare {
        let mine = ours(&program, &scale).await?;
        let other = theirs(&scale).await?;
        for (figure, value) in &mine {
            if let Some(other) = other.get(figure).filter(|other| **other > 0.0) {
                let ratio = (value / other * 1000.0).round() / 1000.0;
                println!("{}", json!({ "figure": figure, "ratio": ratio, "server": "embedded beside kubernetes" }));
            }
        }
    } else if real {
        theirs(&scale).await?;
    }
    Ok(())
}

async fn ours(program: &Path, scale: &Scale) -> Result<BTreeMap<String, f64>> {
    let start = Instant::now();
    let embedded = Embedded::start(program).await?;
    let server = Server::new(&Kubeconfig::read(&embedded.kubeconfig())?)?;
    let started = Some(ready(&server, start).await?);
    run(Target { name: "embedded".into(), server, processes: vec![embedded.process()], started }, scale).await
}

async fn theirs(scale: &Scale) -> Result<BTreeMap<String, f64>> {
    let start = Instant::now();
    let plane = ControlPlane::start()?;
    let server = Server::new(&Kubeconfig::read(&plane.kubeconfig())?)?;
    let started = Some(ready(&server, start).await?);
    run(Target { name: "kubernetes".into(), server, processes: plane.processes().to_vec(), started }, scale).await
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
