//! What many virtual machines cost the control plane: virt-controller and all beside it, with hollow nodes and handlers in
//! the place of real ones. On our own API server in one process, as in `orlop up`; on a real kube-apiserver with its etcd; or
//! on any server that has had no such load.
//!
//! ```text
//! cargo run --release -p bench --bin density
//! cargo run --release -p bench --bin density -- --vms 500 --gap 0s --kinds vm --store folder
//! ORLOP_PEERS=$(e2e/peers/build --dir) cargo run --release -p bench --bin density -- --real
//! cargo run --release -p bench --bin density -- --kubeconfig data/kubeconfig
//! ```
//!
//! Each line is a run of its own. P50 and P95 are from an object's creation until it runs, both as one watch sees them: for an
//! instance its phase is Running, a VM says Running and is ready. CPU and peak memory are those of the whole process on our
//! own server (server, scheduler, nodes, handlers, load and watches included), and of virt-controller alone on any other.
//! Requests are per virtual machine, without the creations of the load and without leases and heartbeats; those of
//! virt-controller are by its own count. At rest there should be none but leases and heartbeats; a real server has some of
//! its own.
#![expect(clippy::print_stdout, reason = "figures go to standard output")]

use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::Duration;

use anyhow::Result;
use bench::controllers::plane::{Plane, Store, clients};
use bench::controllers::program::{Subject, Whose};
use bench::controllers::table::table;
use bench::controllers::{apart, told};
use bench::density::{Kind, Load, Measured, Waits, measure};
use bench::rounds::own_profile;
use clap::{Parser, ValueEnum as _};

/// Measures what virtual machines cost the control plane.
#[derive(Parser)]
struct Arguments {
    /// How many virtual machines.
    #[arg(long, default_value_t = 100)]
    vms: usize,
    /// Between two creations.
    #[arg(long, default_value = "100ms", value_parser = duration)]
    gap: Duration,
    /// What is created.
    #[arg(long, visible_alias = "kind", value_delimiter = ',', default_value = "vm,vmi")]
    kinds: Vec<Kind>,
    /// How many hollow nodes.
    #[arg(long, default_value_t = 10)]
    nodes: usize,
    /// How long the control plane is looked at when there is nothing to do.
    #[arg(long, default_value = "10s", value_parser = duration)]
    rest: Duration,
    /// Where our own server keeps its objects.
    #[arg(long, default_value = "memory")]
    store: Store,
    /// On a real server.
    #[arg(long, conflicts_with = "kubeconfig")]
    real: bool,
    /// On the server of this kubeconfig, which stays as the load leaves it: one kind only.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// One run on our own server, told to the process that asked.
    #[arg(long, hide = true)]
    inside: bool,
    /// Be virt-controller on the server of this kubeconfig.
    #[arg(long, hide = true, requires = "port")]
    serve: Option<PathBuf>,
    /// Where it shows what it counts.
    #[arg(long, hide = true)]
    port: Option<u16>,
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = api::duration::Duration::from_str(text).map_err(|error| error.to_string())?;
    duration.to_std().ok_or_else(|| format!("{text:?} is negative"))
}

#[tokio::main]
async fn main() -> Result<()> {
    let Arguments { vms, gap, kinds, nodes, rest, store, real, kubeconfig, inside, serve, port } = Arguments::parse();
    if let (Some(kubeconfig), Some(port)) = (serve, port) {
        return Subject::VirtController.serve(clients(&kubeconfig, "virt-controller").await?, port).await;
    }
    let loads = kinds.into_iter().map(|kind| Load { vms, nodes, gap, kind, rest });
    if inside {
        let plane = Plane::embedded(store).await?;
        for load in loads {
            println!("{}", told(&measure(&plane, load, Whose::Inside).await?)?);
        }
        return Ok(());
    }
    let mut all = Vec::new();
    for load in loads {
        let (who, measured) = if let Some(kubeconfig) = &kubeconfig {
            ("given", measure(&Plane::Given(kubeconfig.clone()), load, Whose::Ours).await?)
        } else if real {
            ("kube-apiserver", measure(&Plane::real()?, load, Whose::Ours).await?)
        } else {
            ("embedded", apart(&arguments(load, store))?)
        };
        all.push((who, load, measured));
    }
    println!("{vms} virtual machines, {} ms apart, on {nodes} nodes, {} build", gap.as_millis(), own_profile());
    print!("{}", table(&HEADS, &all.iter().map(|(who, load, measured)| row(who, *load, measured)).collect::<Vec<_>>()));
    for (who, load, measured) in &all {
        println!("\n{who}, {}", load.kind.name());
        println!("  requests per VM, all:             {}", measured.requests.per(vms));
        println!("  requests per VM, virt-controller: {}", measured.own_requests.per(vms));
        let (writes, events) = measured.own_requests.writes_and_events();
        let (writes, events) = (per_vm(writes, vms), per_vm(events, vms));
        println!("  writes per VM, virt-controller:   {writes:.2}, and {events:.2} events");
        println!(
            "  requests at rest, in {:>3} s:       {}",
            rest.as_secs(),
            measured.requests_at_rest.of_work().per(1)
        );
    }
    Ok(())
}

fn arguments(load: Load, store: Store) -> Vec<String> {
    let Load { vms, nodes, gap, kind, rest } = load;
    let store = store.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    vec![
        "--inside".to_owned(),
        format!("--vms={vms}"),
        format!("--nodes={nodes}"),
        format!("--gap={}ms", gap.as_millis()),
        format!("--kinds={}", kind.name()),
        format!("--rest={}ms", rest.as_millis()),
        format!("--store={store}"),
    ]
}

const HEADS: [&str; 11] = [
    "server",
    "load",
    "seconds",
    "VMI P50 ms",
    "P95 ms",
    "VM P50 ms",
    "P95 ms",
    "CPU s",
    "ms/VM",
    "peak MiB",
    "server CPU s",
];

fn row(who: &str, load: Load, measured: &Measured) -> Vec<String> {
    let Measured { seconds, vmi, vm, usage, server_cpu_seconds, .. } = measured;
    let wait = |waits: Option<&Waits>, of: fn(&Waits) -> f64| {
        waits.map_or_else(|| "-".to_owned(), |waits| format!("{:.0}", of(waits)))
    };
    vec![
        who.to_owned(),
        load.kind.name().to_owned(),
        format!("{seconds:.1}"),
        wait(Some(vmi), |waits| waits.p50_ms),
        wait(Some(vmi), |waits| waits.p95_ms),
        wait(vm.as_ref(), |waits| waits.p50_ms),
        wait(vm.as_ref(), |waits| waits.p95_ms),
        format!("{:.2}", usage.cpu_seconds),
        format!("{:.1}", per_vm(usage.cpu_seconds * 1000.0, load.vms)),
        format!("{:.0}", usage.peak_mib),
        if *server_cpu_seconds > 0.0 { format!("{server_cpu_seconds:.1}") } else { "-".to_owned() },
    ]
}

fn per_vm(total: f64, vms: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts are small")]
    let vms = vms.max(1) as f64;
    total / vms
}
