//! Programs of controllers: of several, one leads.

use std::time::Duration;

use kube_controllers::scheduler::run::{DEFAULT_SCHEDULER, Scheduler};
use kube_controllers::table::Settings;
use manager::clients::{Asker, Clients};
use manager::context::Started;
use manager::descriptor::{Descriptor, Selection};
use manager::fence::Fence;
use manager::frame::{Leading, Program};
use manager::gates::Gates;
use manager::leader::Durations;
use manager::serving::Pages;
use tokio::task::JoinHandle;
use virt_controller::Launcher;
use virt_server::Component;

use super::{LAUNCHER, Start};
use crate::{Scene, wire};

/// As Kubernetes has them, but for the pause between two attempts: most of what a cluster at rest does is to renew leases.
const DURATIONS: Durations = Durations {
    lease: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry: Duration::from_secs(4),
};

const SCHEDULERS: &[Descriptor<Settings>] = &[Descriptor::new("scheduler", &[], |context, _| {
    Ok(Started::until_stopped(context, Scheduler::new(context, DEFAULT_SCHEDULER).run()))
})];

/// They run in the scene of services alone. In the others there is nothing for them to do, and each watch slows every seed down.
const OF_SERVICES: [&str; 4] =
    ["disruption-controller", "endpoints-controller", "endpointslice-controller", "replicationcontroller-controller"];

/// Snapshots, restores, clones and exports have no scene yet. Migrations, and those who ask for them, have none before simulated
/// launchers can send guests.
const WITHOUT_SCENE: [&str; 7] = [
    "clone-controller",
    "evacuation-controller",
    "export-controller",
    "migration-controller",
    "restore-controller",
    "snapshot-controller",
    "workload-updater",
];

/// What else is off in the scene of virtual machines, and in that of pools.
const OF_POOLS: [&str; 1] = ["pool-controller"];
const WITHOUT_POOLS: [&str; 2] = ["disruptionbudget-controller", "vmi-replicaset-controller"];

pub(super) fn controller_manager(start: Start<'_>) -> JoinHandle<()> {
    let (controllers, settings) = (start.options.controllers, start.options.settings.clone());
    let off: &[&str] = match start.options.scene {
        Scene::Services => &[],
        Scene::Deployments | Scene::VirtualMachines(_) | Scene::Pools(_) => &OF_SERVICES,
    };
    let component = Component::ControllerManager;
    elected(start, component, "kube-controller-manager", controllers, settings, all_but(off, controllers))
}

fn all_but<S>(off: &[&str], controllers: &[Descriptor<S>]) -> Selection {
    let known = off.iter().filter(|name| controllers.iter().any(|one| one.name == **name));
    let flags: Vec<String> = known.map(|name| format!("-{name}")).collect();
    let values = ["*"].into_iter().chain(flags.iter().map(String::as_str));
    Selection::parse(values, controllers, &[]).unwrap_or(Selection::all())
}

pub(super) fn scheduler(start: Start<'_>) -> JoinHandle<()> {
    let settings = start.options.settings.clone();
    elected(start, Component::Scheduler, "kube-scheduler", SCHEDULERS, settings, Selection::all())
}

pub(super) fn virt_controller(start: Start<'_>) -> JoinHandle<()> {
    // New with each start: controllers of one process share caches through them.
    let mut settings = virt_controller::Settings::new(Launcher::new(LAUNCHER));
    settings.image_volumes = Some(true);
    let scene = start.options.scene;
    let controllers = scene.guests().map_or(&[][..], |guests| guests.controllers);
    let off: &[&str] = if matches!(scene, Scene::Pools(_)) { &WITHOUT_POOLS } else { &OF_POOLS };
    let selection = all_but(&[&WITHOUT_SCENE[..], off].concat(), controllers);
    elected(start, Component::VirtController, "virt-controller", controllers, settings, selection)
}

fn elected<S: Send + Sync + 'static>(
    start: Start<'_>,
    component: Component,
    lease: &'static str,
    descriptors: &'static [Descriptor<S>],
    settings: S,
    selection: Selection,
) -> JoinHandle<()> {
    let now = start.now();
    let Start { options, server, world, identity, chance, .. } = start;
    let clients = Clients::given({
        let (server, world, identity, fenced) = (server.clone(), world.clone(), identity.clone(), options.fenced);
        move |Asker { name, account }, fence| {
            let fence = if fenced { fence } else { &Fence::default() };
            let who = account.map_or_else(|| component.identity(), |account| component.controller(account));
            wire::client(server.for_identity(who), &world, &identity, name, Some(lease), fence)
        }
    });
    let world = world.clone();
    let program = Program {
        name: lease,
        descriptors,
        settings,
        selection,
        gates: Gates::default(),
        clients,
        caches: None,
        leading: Some(Leading {
            namespace: "kube-system".to_owned(),
            lease: lease.to_owned(),
            identity: identity.clone(),
            durations: DURATIONS,
            migration: None,
        }),
        start_interval: Duration::from_millis(10),
        pages: Pages::new(lease),
        now,
        chance,
    };
    tokio::spawn(async move {
        let result = program.run(std::future::pending()).await;
        world.note(format!("{identity} has ended: {result:?}"));
    })
}
