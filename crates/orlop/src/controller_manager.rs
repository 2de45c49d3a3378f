//! `orlop controller-manager`: the controllers that a cluster has, for an API server that has none.

use std::time::Duration;

use anyhow::{Context as _, bail};
use kube::Api;
use kube_controllers::namespace::{self, NamespaceController};
use manager::caches::Caches;
use manager::descriptor::{Descriptor, Selection};
use manager::leader::{Durations, Election, Renewals};
use manager::queue::{Backoff, Queue, QueueMetrics};
use tokio::signal::unix::{SignalKind, signal};

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
}

const DESCRIPTORS: [Descriptor; 1] = [Descriptor {
    name: namespace::NAME,
    aliases: &["namespace"],
    required_gates: &[],
    off_by_default: false,
    special_handling: false,
}];

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
    } = arguments;
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
    let lead = || lead(client.clone(), selection.clone(), concurrent_namespace_syncs);
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
async fn lead(client: kube::Client, selection: Selection, namespace_workers: usize) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let caches = Caches::new(client.clone());
    let metrics = QueueMetrics::default();
    let mut running = Vec::new();
    for descriptor in &DESCRIPTORS {
        match selection.allows(descriptor, |_| true) {
            Err(off) => tracing::info!(controller = descriptor.name, %off, "a controller does not run"),
            Ok(()) => {
                let queue = Queue::new(descriptor.name, Backoff::default(), &metrics);
                let controller = NamespaceController::new(client.clone(), caches.of(&[]), queue);
                running.push(tokio::spawn(async move { controller.run(namespace_workers).await }));
            }
        }
    }
    // Watches start after all controllers have said what they read.
    let ended = tokio::select! {
        biased;
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
        () = caches.run() => bail!("no controller runs, or the watches have ended"),
    };
    for controller in running {
        controller.abort();
    }
    ended
}
