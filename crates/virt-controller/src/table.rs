//! The table of controllers, and what can be set about them.

use manager::context::Started;
use manager::descriptor::{Descriptor, Unwritten};
use manager::rate::{Limit, RateLimiter};
use tokio::sync::watch;

use crate::clone::controller as clone;
use crate::configuration::Configuration;
use crate::data_volumes::Shared;
use crate::disruption_budget;
use crate::evacuation::controller as evacuation;
use crate::export::External;
use crate::export::controller as export;
use crate::migration::controller as migration;
use crate::node::controller as node;
use crate::pool::controller as pool;
use crate::render::Launcher;
use crate::replicaset::controller as replicaset;
use crate::restore::controller as restore;
use crate::snapshot::controller as snapshot;
use crate::surroundings::Surroundings;
use crate::vm::controller as vm;
use crate::vmi::controller as vmi;
use crate::volume_snapshots;
use crate::workload_update::controller as workload_update;

/// As the flag `--controllers` knows what follows the rate limit of the KubeVirt object.
const RATE: &str = "rate-limit-controller";

/// What can be set.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Clones that are worked on at the same time.
    pub clone_workers: usize,
    /// Disruption budgets that are worked on at the same time.
    pub disruption_budget_workers: usize,
    /// Nodes that are emptied at the same time.
    pub evacuation_workers: usize,
    /// Exports that are worked on at the same time.
    pub export_workers: usize,
    /// Migrations that are worked on at the same time.
    pub migration_workers: usize,
    /// Nodes that are worked on at the same time.
    pub node_workers: usize,
    /// Pools of VMs that are worked on at the same time.
    pub pool_workers: usize,
    /// Replica sets of instances that are worked on at the same time.
    pub replica_set_workers: usize,
    /// Restores that are worked on at the same time.
    pub restore_workers: usize,
    /// Snapshots that are worked on at the same time.
    pub snapshot_workers: usize,
    /// VMs that are worked on at the same time.
    pub vm_workers: usize,
    /// Instances that are worked on at the same time.
    pub vmi_workers: usize,
    /// How launchers are run, now and after every change.
    pub launcher: watch::Receiver<Launcher>,
    /// Whether nodes can mount images as volumes; if nobody says, the server's version tells.
    pub image_volumes: Option<bool>,
    /// Where exports are reached from outside, if they are.
    pub exports: Option<External>,
    /// The limit of all clients, which follows the KubeVirt object.
    pub limiter: Option<RateLimiter>,
    shared: Shared,
    snapshots: volume_snapshots::Shared,
}

impl Settings {
    /// Launchers that are always run in the same way, everything else as usual.
    #[must_use]
    pub fn new(launcher: Launcher) -> Self {
        Self::following(watch::channel(launcher).1)
    }

    /// Launchers that are run as is told, everything else as usual.
    #[must_use]
    pub fn following(launcher: watch::Receiver<Launcher>) -> Self {
        Self {
            clone_workers: 3,
            disruption_budget_workers: 3,
            evacuation_workers: 3,
            export_workers: 3,
            migration_workers: 3,
            node_workers: 3,
            pool_workers: 3,
            replica_set_workers: 3,
            restore_workers: 3,
            snapshot_workers: 6,
            vm_workers: 3,
            vmi_workers: 10,
            launcher,
            image_volumes: None,
            exports: None,
            limiter: None,
            shared: Shared::default(),
            snapshots: volume_snapshots::Shared::default(),
        }
    }
}

/// All controllers, in the order in which KubeVirt starts its own. They share one account, as KubeVirt's do.
pub const DESCRIPTORS: &[Descriptor<Settings>] = &[
    Descriptor {
        account: ACCOUNT,
        ..Descriptor::new(evacuation::NAME, &["evacuation"], |context, settings| {
            Ok(evacuation::start(context, settings.evacuation_workers))
        })
    },
    Descriptor {
        account: ACCOUNT,
        ..Descriptor::new(disruption_budget::NAME, &["disruptionbudget"], |context, settings| {
            Ok(disruption_budget::start(context, settings.disruption_budget_workers))
        })
    },
    Descriptor {
        account: ACCOUNT,
        ..Descriptor::new(node::NAME, &["node"], |context, settings| Ok(node::start(context, settings.node_workers)))
    },
    Descriptor {
        account: ACCOUNT,
        ..Descriptor::new(vmi::NAME, &["vmi"], |context, settings| {
            let Settings { vmi_workers, launcher, image_volumes, shared, .. } = settings;
            let volumes = shared.data_volumes(context);
            let surroundings = Surroundings::new(context, *image_volumes);
            Ok(vmi::start(context, launcher.clone(), surroundings, volumes, *vmi_workers))
        })
    },
    Descriptor {
        account: ACCOUNT,
        ..Descriptor::new(replicaset::NAME, &["replicaset", "vmirs"], |context, settings| {
            Ok(replicaset::start(context, settings.replica_set_workers))
        })
    },
    Descriptor {
        account: ACCOUNT,
        ..Descriptor::new(pool::NAME, &["pool"], |context, settings| {
            Ok(pool::start(context, settings.shared.data_volumes(context), settings.pool_workers))
        })
    },
    Descriptor {
        account: ACCOUNT,
        ..Descriptor::new(vm::NAME, &["vm"], |context, settings| {
            let Settings { shared, snapshots, vm_workers, .. } = settings;
            let (volumes, copies) = (shared.data_volumes(context), snapshots.volume_snapshots(context));
            Ok(vm::start(context, volumes, copies, *vm_workers))
        })
    },
    Descriptor {
        account: ACCOUNT,
        ..Descriptor::new(migration::NAME, &["migration"], |context, settings| {
            let Settings { migration_workers, launcher, image_volumes, .. } = settings;
            let surroundings = Surroundings::new(context, *image_volumes);
            Ok(migration::start(context, launcher.clone(), surroundings, *migration_workers))
        })
    },
    Descriptor {
        account: ACCOUNT,
        ..Descriptor::new(snapshot::NAME, &["snapshot"], |context, settings| {
            let Settings { shared, snapshots, snapshot_workers, .. } = settings;
            let (volumes, copies) = (shared.data_volumes(context), snapshots.volume_snapshots(context));
            Ok(snapshot::start(context, volumes, copies, *snapshot_workers))
        })
    },
    Descriptor {
        account: ACCOUNT,
        ..Descriptor::new(restore::NAME, &["restore"], |context, settings| {
            let Settings { shared, snapshots, restore_workers, .. } = settings;
            let (volumes, copies) = (shared.data_volumes(context), snapshots.volume_snapshots(context));
            Ok(restore::start(context, volumes, copies, *restore_workers))
        })
    },
    Descriptor {
        account: ACCOUNT,
        ..Descriptor::new(export::NAME, &["export"], |context, settings| {
            let Settings { shared, snapshots, export_workers, launcher, exports, .. } = settings;
            let shared = export::Shared {
                data_volumes: shared.data_volumes(context),
                volume_snapshots: snapshots.volume_snapshots(context),
                launcher: launcher.clone(),
                external: exports.clone(),
            };
            Ok(export::start(context, shared, *export_workers))
        })
    },
    Descriptor {
        account: ACCOUNT,
        ..Descriptor::new(workload_update::NAME, &[], |context, settings| {
            Ok(workload_update::start(context, settings.launcher.clone()))
        })
    },
    Descriptor {
        account: ACCOUNT,
        ..Descriptor::new(clone::NAME, &["clone"], |context, settings| {
            Ok(clone::start(context, settings.clone_workers))
        })
    },
    Descriptor {
        account: ACCOUNT,
        ..Descriptor::new(RATE, &[], |context, settings| {
            let (configuration, limiter) = (Configuration::new(context), settings.limiter.clone());
            Ok(Started::until_stopped(context, follow_rate(configuration, limiter)))
        })
    },
];

/// Controllers that KubeVirt's own program has and this one does not have yet.
pub const UNWRITTEN: &[Unwritten] = &[
    Unwritten { name: "backup-controller", aliases: &["backup"] },
    Unwritten { name: "node-topology-updater", aliases: &[] },
];

const ACCOUNT: &str = "kubevirt-controller";

/// Requests per second as the KubeVirt object says, from now on and whenever it says otherwise. Where it says nothing, the limit that
/// the clients began with holds.
async fn follow_rate(configuration: Configuration, limiter: Option<RateLimiter>) {
    configuration.synced().await;
    let mut changes = configuration.subscribe();
    let usual = limiter.as_ref().map(RateLimiter::limit);
    loop {
        if let (Some(limiter), Some(usual)) = (&limiter, usual) {
            let rate = configuration.current().controller_rate();
            limiter.set(rate.map_or(usual, |rate| Limit { qps: rate.qps, burst: rate.burst }));
        }
        changes.changed().await;
    }
}
