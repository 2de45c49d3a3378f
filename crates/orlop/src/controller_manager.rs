//! `orlop controller-manager`: the controllers that a cluster has, for an API server that has none.

use std::time::Duration;

use anyhow::{Context as _, bail};
use kube::Api;
use kube_controllers::deployment::controller::{self as deployment, DeploymentController};
use kube_controllers::namespace::{self, NamespaceController};
use kube_controllers::replicaset::controller::{self as replicaset, POD_INDEXES, ReplicaSetController};
use manager::caches::Caches;
use manager::descriptor::{Descriptor, Selection};
use manager::leader::{Durations, Election, Renewals};
use manager::queue::{Backoff, Queue, QueueMetrics};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use crate::cluster::{Cluster, clock};

/// Run the controllers of a cluster.
#[derive(clap::Args)]
#[group(id = "controller_manager")]
pub(crate) struct Arguments {
    #[command(flatten)]
    cluster: Cluster,
    /// Which controllers run: `*` is all that are on by default, `foo` is foo, `-foo` is not foo.
    #[arg(long, value_delimiter = ',', default_value = "*", allow_hyphen_values = true, env = "ORLOP_CONTROLLERS")]
    controllers: Vec<String>,
    /// Whether to wait for the lease: needed where more than one of these may run.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, env = "ORLOP_LEADER_ELECT")]
    leader_elect: bool,
    /// Seconds after which a lease that is not renewed is free.
    #[arg(long, default_value_t = 15, value_name = "SECONDS", env = "ORLOP_LEADER_ELECT_LEASE_DURATION")]
    leader_elect_lease_duration: u64,
    /// Seconds after which a leader that cannot renew gives up.
    #[arg(long, default_value_t = 10, value_name = "SECONDS", env = "ORLOP_LEADER_ELECT_RENEW_DEADLINE")]
    leader_elect_renew_deadline: u64,
    /// Seconds between attempts.
    #[arg(long, default_value_t = 2, value_name = "SECONDS", env = "ORLOP_LEADER_ELECT_RETRY_PERIOD")]
    leader_elect_retry_period: u64,
    /// Namespaces that are emptied at the same time.
    #[arg(long, default_value_t = 10, env = "ORLOP_CONCURRENT_NAMESPACE_SYNCS")]
    concurrent_namespace_syncs: usize,
    /// Deployments that are worked on at the same time.
    #[arg(long, default_value_t = 5, env = "ORLOP_CONCURRENT_DEPLOYMENT_SYNCS")]
    concurrent_deployment_syncs: usize,
    /// Replica sets that are worked on at the same time.
    #[arg(long, default_value_t = 5, env = "ORLOP_CONCURRENT_REPLICASET_SYNCS")]
    concurrent_replicaset_syncs: usize,
}

const fn descriptor(name: &'static str, aliases: &'static [&'static str]) -> Descriptor {
    Descriptor { name, aliases, required_gates: &[], off_by_default: false, special_handling: false }
}

const DESCRIPTORS: [Descriptor; 3] = [
    descriptor(deployment::NAME, &["deployment"]),
    descriptor(namespace::NAME, &["namespace"]),
    descriptor(replicaset::NAME, &["replicaset"]),
];

/// How many objects each controller works on at the same time.
#[derive(Clone, Copy)]
struct Workers {
    deployments: usize,
    namespaces: usize,
    replica_sets: usize,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(manage(arguments))
}

async fn manage(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments {
        cluster,
        controllers,
        leader_elect,
        leader_elect_lease_duration,
        leader_elect_renew_deadline,
        leader_elect_retry_period,
        concurrent_namespace_syncs,
        concurrent_deployment_syncs,
        concurrent_replicaset_syncs,
    } = arguments;
    let workers = Workers {
        deployments: concurrent_deployment_syncs,
        namespaces: concurrent_namespace_syncs,
        replica_sets: concurrent_replicaset_syncs,
    };
    let selection = Selection::parse(controllers.iter().map(String::as_str), &DESCRIPTORS).context("--controllers")?;
    let durations = Durations {
        lease: Duration::from_secs(leader_elect_lease_duration),
        renew_deadline: Duration::from_secs(leader_elect_renew_deadline),
        retry: Duration::from_secs(leader_elect_retry_period),
    };
    if durations.renew_deadline >= durations.lease || durations.retry >= durations.renew_deadline {
        bail!("the lease must last longer than the renew deadline, and that longer than the retry period");
    }
    let client = cluster.client("controller-manager").await?;
    let lead = || lead(client.clone(), selection.clone(), workers);
    if !leader_elect {
        return lead().await;
    }
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let election = Election {
        leases: Api::namespaced(client.clone(), "kube-system"),
        name: "kube-controller-manager".to_owned(),
        identity: format!("{host}_{}", std::process::id()),
        durations,
        now: clock(),
    };
    election.run(&Renewals::default(), lead).await.context("lead")?
}

/// Runs the controllers until a signal asks for the end.
async fn lead(client: kube::Client, selection: Selection, workers: Workers) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let caches = Caches::new(client.clone());
    let metrics = QueueMetrics::default();
    let mut running = JoinSet::new();
    for descriptor in &DESCRIPTORS {
        match selection.allows(descriptor, |_| true) {
            Err(off) => tracing::info!(controller = descriptor.name, %off, "a controller does not run"),
            Ok(()) => start(descriptor.name, &client, &caches, &metrics, workers, &mut running),
        }
    }
    // Watches start after all controllers have said what they read.
    tokio::select! {
        biased;
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
        () = caches.run() => bail!("no controller runs, or the watches have ended"),
    }
}

fn start(
    name: &str,
    client: &kube::Client,
    caches: &Caches,
    metrics: &QueueMetrics,
    workers: Workers,
    running: &mut JoinSet<()>,
) {
    let client = client.clone();
    match name {
        namespace::NAME => {
            let queue = Queue::new(name, Backoff::default(), metrics);
            let controller = NamespaceController::new(client, caches.of(&[]), queue);
            running.spawn(async move { controller.run(workers.namespaces).await });
        }
        replicaset::NAME => {
            let queue = Queue::new(name, Backoff::default(), metrics);
            let (sets, pods) = (caches.of(&[]), caches.of(&POD_INDEXES));
            let controller = ReplicaSetController::new(client, sets, pods, queue, clock());
            running.spawn(async move { controller.run(workers.replica_sets).await });
        }
        _ => {
            let queue = Queue::new(name, Backoff::default(), metrics);
            let (sets, pods) = (caches.of(&[]), caches.of(&POD_INDEXES));
            let controller = DeploymentController::new(client, caches.of(&[]), sets, pods, queue, clock());
            running.spawn(async move { controller.run(workers.deployments).await });
        }
    }
}
