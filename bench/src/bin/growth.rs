//! How what virtual machines cost grows with their number: time, CPU, memory and requests of every part of the control plane,
//! each a process of its own on our API server with hollow nodes and guests, all VMs created at once. `make bench-growth`
//! runs it.
//!
//! ```text
//! cargo build --release -p orlop && cargo run --release -p bench --bin growth
//! cargo run --release -p bench --bin growth -- --vms 100,500 --beside virt-controller
//! ```
//!
//! The memory is what is resident some seconds after all is done, when programs have given back what they do not need; the
//! peak is the most that ever was. What is a process' own is not the pages of its program, which all parts share. Requests are by the count of each program.
#![expect(clippy::print_stdout, reason = "figures go to standard output")]

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use bench::boot::program;
use bench::controllers::table::table;
use bench::growth::{Controllers, Cost, Growth, measure};
use bench::rounds::profile;
use clap::Parser;

/// Measures how the cost of virtual machines grows with their number.
#[derive(Parser)]
struct Arguments {
    /// How many virtual machines; each number is a run of its own.
    #[arg(long, value_delimiter = ',', default_value = "100,500,2000,5000")]
    vms: Vec<usize>,
    /// How many hollow nodes, at least: one for 110 VMs at the most.
    #[arg(long, default_value_t = 10)]
    nodes: usize,
    /// From the end of the load to the look at what is resident.
    #[arg(long, default_value_t = 12)]
    rest_seconds: u64,
    /// KubeVirt's virt-controller, which is measured in the place of ours after it.
    #[arg(long, value_name = "PROGRAM")]
    beside: Option<PathBuf>,
}

/// As many pods as a node takes.
const PODS: usize = 110;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let Arguments { vms, nodes, rest_seconds, beside } = Arguments::parse();
    let (orlop, rest) = (program()?, Duration::from_secs(rest_seconds));
    println!("VMs at once, every part a process, hollow nodes, {} build of orlop", profile(&orlop));
    let ours = std::iter::once(("ours", Controllers::Ours));
    let all: Vec<_> = ours.chain(beside.map(|program| ("KubeVirt's", Controllers::Theirs(program)))).collect();
    for count in vms {
        // The canary has a place, too.
        let nodes = nodes.max((count + 1).div_ceil(PODS));
        for (whose, controllers) in &all {
            let growth = measure(&orlop, controllers, count, nodes, rest).await?;
            println!("\n{count} VMs on {nodes} nodes, virt-controller {whose}: all run after {:.1} s", growth.seconds);
            print!("{}", figures(&growth, count));
        }
    }
    Ok(())
}

const HEADS: [&str; 7] = ["part", "CPU ms/VM", "empty MiB", "MiB", "own MiB", "peak MiB", "requests per VM"];

fn figures(growth: &Growth, vms: usize) -> String {
    let mut rows: Vec<Vec<String>> = growth.costs.iter().map(|cost| row(cost, vms)).collect();
    let cpu: f64 = growth.costs.iter().map(|cost| cost.usage.cpu_seconds).sum();
    let memory: f64 = growth.costs.iter().map(|cost| cost.usage.resident_mib).sum();
    let (cpu, memory) = (format!("{:.1}", per(cpu * 1000.0, vms)), format!("{memory:.0}"));
    let requests = told(growth.requests.writes_and_events(), vms);
    rows.push(["all", &cpu, "-", &memory, "-", "-", &requests].map(str::to_owned).to_vec());
    let own = growth.costs.iter().filter_map(|cost| Some((cost.part.name(), cost.requests.as_ref()?)));
    let own = own.map(|(name, requests)| format!("  {name}: {}\n", requests.per(vms)));
    table(&HEADS, &rows) + &own.collect::<String>()
}

fn row(cost: &Cost, vms: usize) -> Vec<String> {
    let Cost { part, usage, empty_mib, requests } = cost;
    vec![
        part.name().to_owned(),
        format!("{:.1}", per(usage.cpu_seconds * 1000.0, vms)),
        format!("{empty_mib:.0}"),
        format!("{:.0}", usage.resident_mib),
        format!("{:.0}", usage.own_mib),
        format!("{:.0}", usage.peak_mib),
        requests.as_ref().map_or_else(|| "-".to_owned(), |own| told(own.writes_and_events(), vms)),
    ]
}

fn told((writes, events): (f64, f64), vms: usize) -> String {
    format!("{:.2} writes, {:.2} events", per(writes, vms), per(events, vms))
}

fn per(total: f64, vms: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts are small")]
    let vms = vms.max(1) as f64;
    total / vms
}
