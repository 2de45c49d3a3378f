//! The table of controllers, and what can be set about them.

use manager::context::Started;
use manager::descriptor::Descriptor;
use manager::rate::{Limit, RateLimiter};
use tokio::sync::watch;

use crate::configuration::Configuration;
use crate::data_volumes::Shared;
use crate::node::controller::{self as node, NodeController};
use crate::render::Launcher;
use crate::vm::controller::{self as vm, VmController};
use crate::vmi::controller::{self as vmi, VmiController};

/// As the flag `--controllers` knows what follows the rate limit of the KubeVirt object.
const RATE: &str = "rate-limit-controller";

/// What can be set.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Nodes that are worked on at the same time.
    pub node_workers: usize,
    /// VMs that are worked on at the same time.
    pub vm_workers: usize,
    /// Instances that are worked on at the same time.
    pub vmi_workers: usize,
    /// How launchers are run, now and after every change.
    pub launcher: watch::Receiver<Launcher>,
    /// Whether nodes can mount images as volumes; if nobody says, the server's version tells.
    pub image_volumes: Option<bool>,
    /// The limit of all clients, which follows the KubeVirt object.
    pub limiter: Option<RateLimiter>,
    shared: Shared,
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
            node_workers: 3,
            vm_workers: 3,
            vmi_workers: 10,
            launcher,
            image_volumes: None,
            limiter: None,
            shared: Shared::default(),
        }
    }
}

/// All controllers. They share one account, as KubeVirt's do.
pub const DESCRIPTORS: &[Descriptor<Settings>] = &[
    Descriptor {
        account: ACCOUNT,
        ..Descriptor::new(node::NAME, &["node"], |context, settings| {
            let (controller, workers) = (NodeController::new(context), settings.node_workers);
            Ok(Started::new(async move { controller.run(workers).await }))
        })
    },
    Descriptor {
        account: ACCOUNT,
        ..Descriptor::new(RATE, &[], |context, settings| {
            let (configuration, limiter) = (Configuration::new(context), settings.limiter.clone());
            Ok(Started::until_stopped(context, follow_rate(configuration, limiter)))
        })
    },
    Descriptor {
        account: ACCOUNT,
        ..Descriptor::new(vm::NAME, &["vm"], |context, settings| {
            let (controller, workers) =
                (VmController::new(context, settings.shared.data_volumes(context)), settings.vm_workers);
            Ok(Started::new(async move { controller.run(workers).await }))
        })
    },
    Descriptor {
        account: ACCOUNT,
        ..Descriptor::new(vmi::NAME, &["vmi"], |context, settings| {
            let Settings { vmi_workers, launcher, image_volumes, shared, .. } = settings;
            let volumes = shared.data_volumes(context);
            let controller = VmiController::new(context, launcher.clone(), *image_volumes, volumes);
            let workers = *vmi_workers;
            Ok(Started::new(async move { controller.run(workers).await }))
        })
    },
];

const ACCOUNT: &str = "kubevirt-controller";

/// Requests per second as the KubeVirt object says, from now on and whenever it says otherwise.
async fn follow_rate(configuration: Configuration, limiter: Option<RateLimiter>) {
    configuration.synced().await;
    let mut changes = configuration.subscribe();
    loop {
        if let Some(limiter) = &limiter {
            let rate = configuration.current().controller_rate();
            limiter.set(Limit { qps: rate.qps, burst: rate.burst });
        }
        changes.changed().await;
    }
}
